"""The example of the client's page runs as it stands."""

import re
import subprocess
import sys
from pathlib import Path

from tests.cli.running import RunningNode, clean_environment

PAGE = Path(__file__).parents[2] / "docs" / "client.md"


def test_the_example_prints_what_it_sent(node: RunningNode) -> None:
    block = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert block is not None
    program = block[1].replace("127.0.0.1:9092", node.server)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, timeout=30, env=clean_environment()
    )
    assert done.stderr == b""
    assert done.stdout.endswith(b" 0 b'alice' b'one tea'\n")
