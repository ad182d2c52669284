"""A queue under load whose node is killed at random instants: nothing sent is lost, nothing acknowledged comes again.

Attempts and leases are entries of the log (failure rows 32 and 33). Where the guarantee is exactly once, no attempt at
a message is ever handed out twice, whatever a kill interrupts. HEADRACE_LONG=1 makes it thirty kills, and
HEADRACE_TEST_SEED repeats the instants.
"""

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import pytest
from tests.support.node import NodeProcess, free_port, running
from tests.support.wait import wait_until

from headrace import Client, HeadraceError, Message
from headrace.client.settings import QueueClientConfig

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
KILLS = 30 if IS_LONG else 3
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
LEASE_S = 3.0
# Small files, so that a short run rolls segments, is cleaned and takes checkpoints many times.
SMALL = {
    "log.journal_bytes": 1024 * 1024,
    "log.checkpoint_bytes": 256 * 1024,
    "log.maintenance_interval_ms": 200,
    "log.clean_active_bytes": 256 * 1024,
    "queues.keep_interval_ms": 200,
}
Guarantee = Literal["at_least_once", "exactly_once"]
PATIENT = QueueClientConfig(deadline_ms=60_000)


class History:
    """What senders and workers saw, in the order in which they saw it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sent: set[str] = set()
        self.received: list[tuple[str, int]] = []
        # By body: which acknowledgement it was, of all, and of which attempt.
        self.acknowledged: dict[str, tuple[int, int]] = {}
        self.again: list[str] = []
        self.refused: Counter[str] = Counter()

    def receive(self, messages: Sequence[Message], *, asked: int) -> None:
        """Note what came, as soon as it came, of a question that was asked after so many acknowledgements.

        Whoever asked before an acknowledgement may have been given the message before it, and hear of it late.
        """
        with self.lock:
            for message in messages:
                body, attempt = message.text, message.attempt
                self.received.append((body, attempt))
                place, acknowledged = self.acknowledged.get(body, (asked, 0))
                if place < asked:
                    self.again.append(f"{body}, attempt {attempt} after attempt {acknowledged} was acknowledged")

    def acknowledge(self, message: Message) -> None:
        with self.lock:
            self.acknowledged[message.text] = (len(self.acknowledged), message.attempt)

    @property
    def progress(self) -> int:
        with self.lock:
            return len(self.acknowledged)


def send(server: str, history: History, stop: threading.Event, name: str) -> None:
    number = 0
    with Client(server, config=PATIENT) as client:
        queue = client.queue("orders")
        while not stop.is_set():
            bodies = [f"{name}-{number + at}" for at in range(5)]
            queue.send_many(bodies)
            with history.lock:
                history.sent.update(bodies)
            number += 5
            stop.wait(0.005)


def work(server: str, history: History, stop: threading.Event, chance: random.Random) -> None:
    with Client(server, config=PATIENT) as client:
        queue = client.queue("orders")
        while not stop.is_set():
            try:
                asked = history.progress
                messages = queue.receive(max=10, wait=1, lease=LEASE_S)
                history.receive(messages, asked=asked)
                for message in messages:
                    if chance.random() < 0.1:
                        continue  # a worker that dies with its message
                    message.ack()
                    history.acknowledge(message)
            except HeadraceError as error:
                with history.lock:
                    history.refused[type(error).__name__] += 1


def check(node: NodeProcess, history: History) -> None:
    """Work off what is left, then compare."""
    with Client(node.http, config=PATIENT) as client:
        queue = client.queue("orders")

        def is_empty() -> bool:
            asked = history.progress
            messages = queue.receive(max=100, wait=1, lease=60)
            history.receive(messages, asked=asked)
            for message in messages:
                message.ack()
                history.acknowledge(message)
            counts = queue.describe().counts
            return counts.visible + counts.leased + counts.delayed == 0

        wait_until(is_empty, deadline_s=60, what=lambda: f"the queue is worked off: {queue.describe().counts}")
        counts = queue.describe().counts
    assert not history.again, f"acknowledged and handed out again: {history.again[:5]}"
    handled = {body for body, _ in history.received}
    assert history.sent <= handled, f"lost: {sorted(history.sent - handled)[:5]}"
    assert counts.sent == counts.acknowledged == len(handled), (counts, len(handled))


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@pytest.mark.timeout(900 if IS_LONG else 180)
def test_kills_lose_nothing_sent_and_bring_back_nothing_acknowledged(
    tmp_path: Path, guarantee: Literal["at_least_once", "exactly_once"]
) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    server = f"127.0.0.1:{free_port()}"
    with running(tmp_path / "data", settings=SMALL, arguments=["--http", server]) as node:
        with Client(server, config=PATIENT) as client:
            client.queue("orders").create(partitions=2, guarantee=guarantee, max_deliveries=1000)
        history, stop = History(), threading.Event()
        threads = [threading.Thread(target=send, args=(server, history, stop, name)) for name in "ab"]
        threads += [
            threading.Thread(target=work, args=(server, history, stop, random.Random(SEED + number)))
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in range(KILLS):
                before = history.progress
                wait_until(
                    lambda: history.progress > before + 50,  # noqa: B023 - called in this turn alone
                    deadline_s=30,
                    what=lambda: f"progress: {history.refused}",
                )
                time.sleep(chance.uniform(0.0, 0.5))  # a random instant, not a synchronisation
                node.kill()
                node.start()
        finally:
            stop.set()
            for thread in threads:
                thread.join(90)
        assert not any(thread.is_alive() for thread in threads)
        check(node, history)
        if guarantee == "exactly_once":
            twice = [delivery for delivery, count in Counter(history.received).items() if count > 1]
            assert not twice, f"one attempt handed out twice: {twice[:5]}"
        print(f"{KILLS} kills, {len(history.sent)} messages, {len(history.received)} deliveries, {history.refused}")
