"""A consumer group (KIP-848) under observation: from outside, and by members that tell what they read and when."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from tests.compat.group_watch import DEADLINE_S, Member, Seen, Watch
from tests.support.wait import wait_until
from tests.support.wire import Wire

from headrace.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest

PROTOCOL = {"group.protocol": "consumer"}
Place = tuple[str, int]


class ConsumerWatch(Watch):
    """The coordinator is asked what each member has."""

    def join(self, client: str = "confluent-kafka", **options: Any) -> Member:
        return self.start(client, **PROTOCOL, **options)

    def describe(self, wire: Wire) -> Seen:
        (group,) = wire.ask(69, 1, ConsumerGroupDescribeRequest((self.name,))).groups
        owned = {
            member.member_id: frozenset(
                index for topic in member.assignment.topic_partitions for index in topic.partitions
            )
            for member in group.members
        }
        return Seen(group.group_state, owned)


class Readers:
    """Who reads what, as the members themselves see it: taken with `on_assign`, given up with `on_revoke`."""

    def __init__(self) -> None:
        self.owners: dict[Place, str] = {}
        self.moved: list[tuple[str, str, Place]] = []  # member, "taken" or "given up", and what
        self.wrong: list[str] = []
        self.values: set[bytes] = set()
        self._lock = threading.Lock()

    def taken(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for place in _places(partitions):
                if place in self.owners:
                    self.wrong.append(f"{place} is given to {name} while {self.owners[place]} reads it")
                self.owners[place] = name
                self.moved.append((name, "taken", place))

    def given_up(self, name: str, partitions: list[TopicPartition]) -> None:
        with self._lock:
            for place in _places(partitions):
                self.owners.pop(place, None)
                self.moved.append((name, "given up", place))

    def shares(self) -> dict[str, set[Place]]:
        with self._lock:
            found: dict[str, set[Place]] = {}
            for place, name in self.owners.items():
                found.setdefault(name, set()).add(place)
            return found

    def wait_shares(self, sizes: list[int]) -> dict[str, set[Place]]:
        """Wait until as many members as there are numbers read so many partitions each."""
        wait_until(
            lambda: sorted(map(len, self.shares().values())) == sizes,
            deadline_s=DEADLINE_S,
            what=lambda: f"shares of {sizes}; found {self.shares()}",
        )
        return self.shares()


def _places(partitions: list[TopicPartition]) -> list[Place]:
    return [(one.topic, one.partition) for one in partitions]


class Reader:
    """One member in a thread of its own, which reads until it is told to leave."""

    def __init__(
        self, server: str, group: str, name: str, readers: Readers, topics: list[str], options: dict[str, Any]
    ):
        self._name = name
        self._readers = readers
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": server,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 500,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda _: None,
                **PROTOCOL,
                **options,
            }
        )
        self._consumer.subscribe(topics, on_assign=self._told(readers.taken), on_revoke=self._told(readers.given_up))
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _told(self, note: Callable[[str, list[TopicPartition]], None]) -> Callable[[Any, list[TopicPartition]], None]:
        return lambda _, partitions: note(self._name, partitions)

    def _read(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(100, 0.05):
                if message.error() is None:
                    self._readers.values.add(message.value())
        try:
            self._consumer.close()
        except KafkaException as error:
            self._readers.wrong.append(str(error))

    def leave(self) -> None:
        self._stop.set()
        self._thread.join(DEADLINE_S)


class Group:
    def __init__(self, server: str, name: str) -> None:
        self.readers = Readers()
        self._server = server
        self._name = name
        self._members: list[Reader] = []

    def join(self, name: str, *topics: str, **options: Any) -> Reader:
        reader = Reader(self._server, self._name, name, self.readers, list(topics), options)
        self._members.append(reader)
        return reader

    def describe(self) -> Any:
        with Wire(self._server) as wire:
            (group,) = wire.ask(69, 1, ConsumerGroupDescribeRequest((self._name,))).groups
            return group

    def close(self) -> None:
        for member in self._members:
            member.leave()
        assert self.readers.wrong == []


@contextmanager
def reading(server: str, name: str) -> Iterator[Group]:
    """A group whose members are all gone afterwards, and never had a partition twice."""
    group = Group(server, name)
    try:
        yield group
    finally:
        group.close()
