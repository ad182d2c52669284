"""Exactly once from queue to queue: workers and the node are killed at random, and the output has each input once.

Each step (receive, send elsewhere, acknowledge) is one transaction of the Python client (failure rows 27 to 30).
Whatever a kill interrupts is done as a whole or not at all, and what was not done is received again. HEADRACE_LONG=1
makes it fifty kills, and HEADRACE_TEST_SEED repeats their instants.
"""

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest
from tests.support.node import NodeProcess, free_port, running
from tests.support.wait import wait_until

from headrace import Client, HeadraceError
from headrace.client.settings import QueueClientConfig

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
KILLS = 50 if IS_LONG else 4
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
WORKERS = 3
INPUTS_A_KILL = 150
DEADLINE_S = 120.0
ROOT = Path(__file__).parents[2]
PATIENT = QueueClientConfig(deadline_ms=60_000)
SMALL = {
    "log.journal_bytes": 1024 * 1024,
    "log.checkpoint_bytes": 256 * 1024,
    "log.maintenance_interval_ms": 200,
    "log.clean_active_bytes": 256 * 1024,
    "queues.keep_interval_ms": 200,
}


class Workers:
    """Processes that move messages; one that was killed is replaced."""

    def __init__(self, server: str, log: Path) -> None:
        self._server = server
        self._log = log
        self._count = 0
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.cluster.moving_worker", self._server, "orders", "invoices"]
        self._count += 1
        with self._log.open("ab") as log:
            self._running.append(
                subprocess.Popen([*command, str(SEED + self._count)], cwd=ROOT, stdout=log, stderr=log)
            )

    def kill_one(self, chance: random.Random) -> None:
        victim = self._running.pop(chance.randrange(len(self._running)))
        assert victim.poll() is None, f"a worker ended by itself:\n{self.said()}"
        victim.kill()
        victim.wait(10)

    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def end(self) -> None:
        for process in self._running:
            process.kill()
            process.wait(10)


@contextmanager
def working(server: str, log: Path) -> Iterator[Workers]:
    workers = Workers(server, log)
    try:
        for _ in range(WORKERS):
            workers.start()
        yield workers
    finally:
        workers.end()


def moved(client: Client) -> int:
    return client.queue("orders").describe().counts.acknowledged


def wait_moved(client: Client, workers: Workers, count: int) -> None:
    wait_until(
        lambda: moved(client) >= count,
        deadline_s=DEADLINE_S,
        what=lambda: f"{count} are moved, not {moved(client)}; workers said:\n{workers.said()}",
    )


def kill_something(node: NodeProcess, workers: Workers, chance: random.Random) -> None:
    which = chance.choice(("node", "worker", "both"))
    if which != "node":
        workers.kill_one(chance)
    if which != "worker":
        node.kill()
        node.start()
    if which != "node":
        workers.start()


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.timeout(1800 if IS_LONG else 240)
def test_each_input_is_in_the_output_once_whoever_is_killed(
    tmp_path: Path, guarantee: Literal["at_least_once", "exactly_once"]
) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    server = f"127.0.0.1:{free_port()}"
    inputs: list[str] = []
    with (
        running(tmp_path / "data", settings=SMALL, arguments=["--http", server]) as node,
        Client(server, config=PATIENT) as client,
    ):
        orders = client.queue("orders")
        orders.create(partitions=2, guarantee=guarantee, max_deliveries=None)
        client.queue("invoices").create(partitions=2, max_deliveries=None)
        with working(server, tmp_path / "workers.log") as workers:
            for _ in range(KILLS):
                more = [f"order {len(inputs) + number}" for number in range(INPUTS_A_KILL)]
                orders.send_many(more)
                inputs += more
                wait_moved(client, workers, len(inputs) - INPUTS_A_KILL // 2)
                time.sleep(chance.uniform(0.0, 0.2))  # a random instant, not a synchronisation
                kill_something(node, workers, chance)
            wait_moved(client, workers, len(inputs))
        assert not node.said("Traceback"), node.log_text()[-4000:]
        found = Counter(everything_of(client, "invoices"))
    assert {body: count for body, count in found.items() if count > 1} == {}
    assert found == Counter(inputs)
    print(f"{KILLS} kills, {len(inputs)} messages")


def everything_of(client: Client, name: str) -> list[str]:
    """What is in a queue once nothing is left of the transactions of workers that were killed."""
    queue, found = client.queue(name), []

    def is_empty() -> bool:
        for message in queue.receive(max=100, wait=1, lease=60):
            found.append(message.text)
            message.ack()
        try:
            counts = queue.describe().counts
        except HeadraceError:
            return False
        return counts.visible + counts.leased + counts.delayed == 0

    wait_until(is_empty, deadline_s=DEADLINE_S, what="the output is read")
    return found
