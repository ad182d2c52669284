"""A node under a mixed load that is killed, stopped and paused at random instants, judged by what its clients saw.

HEADRACE_LONG=1 makes it a hundred rounds, and HEADRACE_TEST_SEED repeats the instants.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.mixed import SMALL, MixedLoad, address
from tests.support.node import NodeProcess, running

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
ROUNDS = 100 if IS_LONG else 4
TRANSACTION_EVERY = 4  # rounds
PAUSE_S = 40.0 if IS_LONG else 3.0
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))


def kill(node: NodeProcess, chance: random.Random) -> None:
    node.kill()
    node.start()


def kill_twice(node: NodeProcess, chance: random.Random) -> None:
    """Recovery is interrupted as well, wherever it is."""
    node.kill()
    node.launch()
    time.sleep(chance.uniform(0.0, 0.8))
    node.kill()
    node.start()


def stop(node: NodeProcess, chance: random.Random) -> None:
    assert node.stop() == 0, node.log_text()
    node.start()


def pause(node: NodeProcess, chance: random.Random) -> None:
    os.kill(node.pid, signal.SIGSTOP)
    time.sleep(chance.uniform(0.0, PAUSE_S))
    os.kill(node.pid, signal.SIGCONT)


FAULTS: dict[str, Callable[[NodeProcess, random.Random], None]] = {
    "kill": kill,
    "kill during recovery": kill_twice,
    "stop": stop,
    "pause": pause,
}


@pytest.mark.timeout(7200 if IS_LONG else 300)
def test_no_client_sees_a_loss_or_a_double_through_kills_stops_and_pauses(tmp_path: Path) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    # A short run has each fault once; a long one draws, mostly kills.
    drawn = chance.choices(list(FAULTS), weights=(6, 2, 1, 1), k=ROUNDS) if IS_LONG else list(FAULTS)
    http = address()
    with running(tmp_path / "data", settings=SMALL, arguments=["--http", http]) as node:
        load = MixedLoad(node, http, seed=SEED)
        load.start()
        try:
            for number, name in enumerate(drawn):
                load.wait_progress(100)
                if number % TRANSACTION_EVERY == 0:
                    # A node that never lives as long as a transaction takes would starve its producer.
                    load.wait_transaction()
                time.sleep(chance.uniform(0.0, 1.0))  # a random instant, not a synchronisation
                FAULTS[name](node, chance)
                assert not load.history.trouble, load.history.trouble[:5]
            load.wait_progress(100)
        finally:
            load.stop()
        verdict = load.verdict()
        done = ", ".join(f"{count} x {name}" for name, count in Counter(drawn).items())
        print(f"{done}\n{verdict}")
        assert not verdict.violations, str(verdict)
