"""Read, process, write, while producer, consumer and node are killed: the output holds each input exactly once.

HEADRACE_LONG=1 makes it fifty kills, and HEADRACE_TEST_SEED repeats the choices.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.clients.every import CONFLUENT
from tests.compat.clients.message import DEADLINE_S
from tests.compat.stream_worker import PARTITIONS
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
KILLS = 50 if IS_LONG else 5
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
PROGRESS_S = 60.0
ROOT = Path(__file__).parents[2]
INPUT, OUTPUT, GROUP = "input", "output", "pipeline"
# Small files, so that a short run rolls segments and takes checkpoints many times.
SMALL = {
    "log.journal_bytes": 1024 * 1024,
    "log.checkpoint_bytes": 256 * 1024,
    "log.maintenance_interval_ms": 200,
}


class Part:
    """A process that is started again whenever it is gone."""

    def __init__(self, directory: Path, name: str, *arguments: str) -> None:
        self.name = name
        self._arguments = arguments
        self._errors = directory / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None

    def keep_alive(self) -> None:
        if self._process is None or self._process.poll() is not None:
            with self._errors.open("ab") as errors:
                command = [sys.executable, "-m", "tests.compat.stream_worker", *self._arguments]
                self._process = subprocess.Popen(command, cwd=ROOT, stderr=errors)

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()


class Pipeline:
    def __init__(self, node: NodeProcess, directory: Path) -> None:
        self.node = node
        self.feeder = Part(directory, "feeder", "feed", node.server, "feeder", INPUT)
        self.workers = [
            Part(directory, f"worker-{at}", "work", node.server, f"worker-{at}", INPUT, OUTPUT, GROUP)
            for at in range(2)
        ]

    def keep_alive(self) -> None:
        for part in (self.feeder, *self.workers):
            part.keep_alive()

    def ends(self, topic: str) -> list[int]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.node.server,
                "group.id": GROUP,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        try:
            return [
                consumer.get_watermark_offsets(TopicPartition(topic, at), timeout=DEADLINE_S)[1]
                for at in range(PARTITIONS)
            ]
        finally:
            consumer.close()

    def wait_progress(self, since: int) -> int:
        """Wait until the output has grown, starting again what has ended meanwhile."""
        end_s = time.monotonic() + PROGRESS_S
        while time.monotonic() < end_s:
            self.keep_alive()
            total = sum(self.ends(OUTPUT))
            if total > since + 40:
                return total
        raise AssertionError(f"the output does not grow beyond {since}")

    def is_drained(self) -> bool:
        """Whether the group has read everything that is committed."""
        for part in self.workers:
            part.keep_alive()
        consumer = Consumer({"bootstrap.servers": self.node.server, "group.id": GROUP, "log_level": 0})
        try:
            places = [TopicPartition(INPUT, at) for at in range(PARTITIONS)]
            committed = [max(one.offset, 0) for one in consumer.committed(places, timeout=DEADLINE_S)]
        finally:
            consumer.close()
        return all(
            not CONFLUENT.read(self.node.server, INPUT, offset=offset, partition=at, committed=True)
            for at, offset in enumerate(committed)
        )

    def values(self, topic: str) -> Counter[bytes]:
        return Counter(
            message.value or b""
            for at in range(PARTITIONS)
            for _, message in CONFLUENT.read(self.node.server, topic, partition=at, committed=True)
        )


@contextmanager
def pipeline(directory: Path) -> Iterator[Pipeline]:
    with running(directory / "data", settings=SMALL) as node:
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        topics = [NewTopic(name, PARTITIONS, 1) for name in (INPUT, OUTPUT)]
        for future in admin.create_topics(topics).values():
            future.result(DEADLINE_S)
        made = Pipeline(node, directory)
        try:
            yield made
        finally:
            for part in (made.feeder, *made.workers):
                part.kill()


@pytest.mark.timeout(1800 if IS_LONG else 180)
def test_the_output_holds_each_input_exactly_once_whoever_is_killed(tmp_path: Path) -> None:
    rand = random.Random(SEED)
    with pipeline(tmp_path) as made:
        print(f"HEADRACE_TEST_SEED={SEED}")
        total = made.wait_progress(0)
        victims = ["node", "feeder", "worker-0", "worker-1", "node"]
        rand.shuffle(victims)
        for at in range(KILLS):
            victim = victims[at % len(victims)]
            time.sleep(rand.uniform(0, 0.3))  # the instant of the kill is the test's input
            if victim == "node":
                made.node.kill()
                made.node.start()
            else:
                next(part for part in (made.feeder, *made.workers) if part.name == victim).kill()
            total = made.wait_progress(total)
        made.feeder.stop()
        wait_until(made.is_drained, deadline_s=PROGRESS_S, what="everything is passed on")
        for part in made.workers:
            part.stop()
        given, passed = made.values(INPUT), made.values(OUTPUT)
    assert sum(given.values()) == len(given), "every input has a value of its own"
    missing, repeated = given - passed, passed - given
    assert not missing, f"{len(missing)} of {len(given)} are missing: {sorted(missing)[:5]} (seed {SEED})"
    assert not repeated, f"{len(repeated)} came twice or from nowhere: {sorted(repeated)[:5]} (seed {SEED})"
