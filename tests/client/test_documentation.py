"""The examples of the client's page run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.running import RunningNode, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


QUEUES, WORKER, SERVE, TRANSACTIONS, STREAMS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run(program: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, timeout=30, env=clean_environment()
    )
    assert done.stderr == b""
    return done.stdout


def test_the_example_of_queues_prints_what_it_sent(node: RunningNode) -> None:
    printed = run(QUEUES.replace("127.0.0.1:8080", node.ready["http"]))
    # The one of priority 9 comes first.
    assert printed.decode() == '1 b\'alice\' {"kind":"green","cups":2}\n1 None one tea\n'


def test_the_example_of_a_worker_can_be_imported() -> None:
    assert run(f"{WORKER}\nprint(brew.config.queue)") == b"tasks\n"


def test_the_example_of_a_worker_in_a_loop_of_ones_own_handles_what_it_sent(node: RunningNode) -> None:
    assert run(SERVE.replace("127.0.0.1:8080", node.ready["http"])) == b"one tea\nTrue\n"


def test_the_example_of_transactions_prints_what_was_committed(node: RunningNode) -> None:
    printed = run(TRANSACTIONS.replace("127.0.0.1:8080", node.ready["http"]))
    assert printed == b"['invoice for one tea', 'invoice for two coffees']\n"


def test_the_example_of_streams_prints_what_it_sent(node: RunningNode) -> None:
    assert run(STREAMS.replace("127.0.0.1:9092", node.server)).endswith(b" 0 b'alice' b'one tea'\n")
