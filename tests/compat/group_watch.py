"""A group under observation: its members as processes, a producer that never stops, and what the coordinator says.

Two things are looked at all the time: that what the group has committed for a partition never goes back, and that no
partition has two owners in what the coordinator has handed out.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

from confluent_kafka import Producer
from tests.compat.clients.java import Java
from tests.compat.group_member import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS
from tests.support.wait import wait_until
from tests.support.wire import Wire

from headrace.wire.kafka.messages import consumer_protocol_assignment
from headrace.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.wire.kafka.messages.offset_fetch import OffsetFetchRequest
from headrace.wire.kafka.primitives import Reader

REPOSITORY = Path(__file__).parents[2]
JAVA = "java"
DEADLINE_S = 45.0
_PAUSE_S = 0.02


class Seen(NamedTuple):
    """The group, as the coordinator describes it."""

    state: str
    owned: Mapping[str, frozenset[int]]  # partitions by member id; of a stable group


class Member:
    def __init__(self, command: list[str], notes: Path) -> None:
        self.notes = notes
        self.process = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)

    def send(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)

    def end(self, number: signal.Signals) -> None:
        self.send(number)
        self.process.wait(DEADLINE_S)


class Watch:
    def __init__(self, server: str, name: str, directory: Path, *, partitions: int, java: Java | None = None) -> None:
        self.server = server
        self.java = java
        self.name = name
        self.partitions = partitions
        self.sent: list[str] = []
        self.seen: list[Seen] = []
        self.wrong: list[str] = []
        self.committed: dict[int, int] = {}
        self._directory = directory
        self._files = count(1)
        self._members: list[Member] = []
        self._stop = threading.Event()
        self._pause = threading.Event()
        with Wire(server) as wire:
            wire.ask(19, 5, CreateTopicsRequest((CreatableTopic(name, partitions, 1),)))

    # Members.

    def start(self, client: str, **options: Any) -> Member:
        path = self._directory / f"{self.name}-{next(self._files)}"
        member = Member(self._command(client, path, options), path)
        self._members.append(member)
        return member

    def _command(self, client: str, path: Path, options: dict[str, Any]) -> list[str]:
        if client != JAVA:
            command = [sys.executable, "-m", "tests.compat.group_member", client, self.server, self.name, self.name]
            return [*command, str(path), json.dumps(options)]
        assert self.java is not None
        times = {"session_ms": SESSION_MS, "heartbeat_ms": HEARTBEAT_MS, "rebalance_ms": REBALANCE_MS}
        named = {"group": self.name, "topic": self.name, "notes": path, "events": os.devnull}
        return self.java.command("member", self.server, {**times, **named, **options})

    def read(self) -> set[str]:
        """Everything that any member has ever noted."""
        found: set[str] = set()
        for path in self._directory.glob(f"{self.name}-*"):
            found.update(path.read_text(encoding="utf-8").split())
        return found

    def wait_reading(self, member: Member) -> None:
        """Wait until a member has read something that was sent after now: it has its partitions and is at work."""
        begin = len(self.sent)

        def reads() -> bool:
            return not set(self.sent[begin:]).isdisjoint(member.notes.read_text(encoding="utf-8").split())

        wait_until(reads, deadline_s=DEADLINE_S, what="the member reads")

    # What the coordinator says.

    def wait_stable(self, member_count: int) -> Seen:
        """Wait until so many members have all partitions between them."""

        def is_stable() -> bool:
            return bool(self.seen) and self._is_whole(self.seen[-1], member_count)

        self.seen.clear()
        wait_until(is_stable, deadline_s=DEADLINE_S, what=lambda: f"{member_count} members; {self.seen[-1:]}")
        return self.seen[-1]

    def _is_whole(self, seen: Seen, member_count: int) -> bool:
        owned = sum(len(partitions) for partitions in seen.owned.values())
        return seen.state == "Stable" and len(seen.owned) == member_count and owned == self.partitions

    def describe(self, wire: Wire) -> Seen:
        (group,) = wire.ask(15, 4, DescribeGroupsRequest((self.name,))).groups
        return Seen(group.group_state, {one.member_id: _partitions(one.member_assignment) for one in group.members})

    def _look(self, wire: Wire) -> None:
        seen = self.describe(wire)
        owned = seen.owned.values()
        if sum(map(len, owned)) != len(frozenset().union(*owned)):
            self.wrong.append(f"a partition has two owners: {seen.owned}")
        self.seen.append(seen)
        for topic in wire.ask(9, 5, OffsetFetchRequest(self.name, None)).topics:
            for one in topic.partitions:
                before = self.committed.get(one.partition_index, -1)
                if one.committed_offset < before:
                    self.wrong.append(f"partition {one.partition_index}: {before} then {one.committed_offset}")
                self.committed[one.partition_index] = one.committed_offset

    def _watch(self) -> None:
        while not self._stop.is_set():
            try:
                with Wire(self.server) as wire:
                    while not self._stop.wait(_PAUSE_S):
                        self._look(wire)
            except OSError:
                self._stop.wait(_PAUSE_S)  # the node is down

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self.server, "log_level": 0, "error_cb": lambda _: None, "linger.ms": 5}
        producer = Producer({**settings, "enable.idempotence": True, "reconnect.backoff.max.ms": 200})

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.sent.append(message.value().decode())

        for number in count():
            if self._pause.is_set():
                break
            producer.produce(self.name, value=b"%d" % number, partition=number % self.partitions, on_delivery=delivered)
            producer.poll(0)
            if number % 20 == 19:
                self._pause.wait(0.02)
        producer.flush(DEADLINE_S)

    def finish(self) -> None:
        """Stop producing, and wait until everything was read and committed."""
        self._pause.set()
        self._producer.join(DEADLINE_S * 2)
        assert self.sent
        wait_until(
            lambda: set(self.sent) <= self.read(),
            deadline_s=DEADLINE_S,
            what=lambda: f"{len(set(self.sent) - self.read())} of {len(self.sent)} messages were never read",
        )
        wait_until(
            lambda: sum(self.committed.values()) >= len(self.sent),
            deadline_s=DEADLINE_S,
            what=lambda: f"all is committed: {self.committed}",
        )
        assert self.wrong == [], self.wrong[:5]

    @contextmanager
    def running(self) -> Iterator[Self]:
        self._producer = threading.Thread(target=self._produce)
        watcher = threading.Thread(target=self._watch)
        self._producer.start()
        watcher.start()
        try:
            yield self
        finally:
            self._pause.set()
            self._stop.set()
            for member in self._members:
                if member.process.poll() is None:
                    member.end(signal.SIGKILL)
            self._producer.join(DEADLINE_S * 2)
            watcher.join(DEADLINE_S)


def _partitions(assignment: bytes) -> frozenset[int]:
    if not assignment:
        return frozenset()
    reader = Reader(assignment)
    version = reader.int16()
    found = consumer_protocol_assignment.read_data(reader, min(version, 3))
    return frozenset(partition for topic in found.assigned_partitions for partition in topic.partitions)
