"""Load on a node from real clients, and the history of what they were told, checked from their side.

Each message carries its sender and a number that counts up for each sender and partition. `Senders` are idempotent
librdkafka producers that keep a bounded number of messages in flight and note every delivery report; `Follower` reads
along. `check_history` then reads everything once more and compares.
"""

import hashlib
import random
import threading
from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from tests.support.wait import wait_until

SETTLE_DEADLINE_S = 60.0
_IN_FLIGHT_MAX = 400
_RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class Place(NamedTuple):
    topic: str
    partition: int


class Sent(NamedTuple):
    """One message as its sender knows it."""

    sender: int
    number: int
    digest: bytes


def _quiet(error: KafkaError) -> None:
    """A node that is down is the point of these tests; the client connects again."""


def encode(sender: int, number: int, padding: bytes) -> bytes:
    return b"%d %d " % (sender, number) + padding


def decode(value: bytes) -> Sent:
    sender, number, _ = value.split(b" ", 2)
    return Sent(int(sender), int(number), hashlib.blake2b(value, digest_size=8).digest())


class Sender:
    """One idempotent producer in a thread of its own, over all of the places."""

    def __init__(self, id: int, server: str, places: Sequence[Place], sizes: Sequence[int], seed: int) -> None:
        self.id = id
        self.acknowledged: dict[Place, dict[int, Sent]] = defaultdict(dict)  # offset -> message
        self.sent_count: dict[Place, int] = defaultdict(int)
        self.acknowledged_count = 0
        self.errors: list[str] = []
        self._places = places
        self._sizes = sizes
        self._random = random.Random(seed)
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": server,
                "enable.idempotence": True,
                "message.timeout.ms": int(SETTLE_DEADLINE_S * 1000),
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "error_cb": self._failed,
                **_RECONNECT,
            }
        )
        self._thread = threading.Thread(target=self._run, name=f"sender-{id}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Send no more; wait for everything in flight."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(SETTLE_DEADLINE_S)
        if left:
            self.errors.append(f"{left} messages were never acknowledged")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"fatal: {error}")

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.poll(0.0005)
            if len(self._producer) < _IN_FLIGHT_MAX:
                place = self._random.choice(self._places)
                size = self._random.choice(self._sizes)
                number = self.sent_count[place]
                value = encode(self.id, number, self._random.randbytes(size))
                self._producer.produce(place.topic, value=value, partition=place.partition, on_delivery=self._told)
                self.sent_count[place] += 1

    def _told(self, error: KafkaError | None, message: Message) -> None:
        place = Place(str(message.topic()), int(message.partition() or 0))
        if error is not None:
            self.errors.append(f"{place}: {error}")
            return
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        if offset in self.acknowledged[place]:
            self.errors.append(f"{place}: offset {offset} was reported twice")
        self.acknowledged[place][offset] = decode(value)
        self.acknowledged_count += 1


class Follower:
    """A consumer that reads along, through every restart."""

    def __init__(self, server: str, places: Sequence[Place]) -> None:
        self.seen: dict[Place, dict[int, Sent]] = defaultdict(dict)
        self.errors: list[str] = []
        self._next: dict[Place, int] = defaultdict(int)
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": server,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "error_cb": _quiet,
                **_RECONNECT,
            }
        )
        self._consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
        self._thread = threading.Thread(target=self._run, name="follower")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()

    def count(self) -> int:
        return sum(len(seen) for seen in self.seen.values())

    def _run(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                error = message.error()
                if error is None:
                    self._take(message)
                elif not error.retriable():
                    self.errors.append(str(error))

    def _take(self, message: Message) -> None:
        place = Place(str(message.topic()), int(message.partition() or 0))
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert isinstance(value, bytes)
        if offset != self._next[place]:
            self.errors.append(f"{place}: read {offset} where {self._next[place]} was next")
        self._next[place] = offset + 1
        self.seen[place][offset] = decode(value)


class Load:
    """Senders and a follower, going from entry to exit."""

    def __init__(
        self, server: str, places: Sequence[Place], *, seed: int, senders: int = 2, sizes: Sequence[int]
    ) -> None:
        self.places = places
        self.server = server
        self.senders = [Sender(id, server, places, sizes, seed + id) for id in range(senders)]
        self.follower = Follower(server, places)
        self._runs = False

    def __enter__(self) -> "Load":
        self._runs = True
        for sender in self.senders:
            sender.start()
        self.follower.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runs:
            self._stop_all()

    def acknowledged_count(self) -> int:
        return sum(sender.acknowledged_count for sender in self.senders)

    def wait_progress(self, count: int, *, deadline_s: float = SETTLE_DEADLINE_S) -> None:
        """Until so many more messages are acknowledged: the clients are connected and the node works."""
        target = self.acknowledged_count() + count
        wait_until(
            lambda: self.acknowledged_count() >= target or bool(self.errors()),
            deadline_s=deadline_s,
            what=lambda: f"{count} more acknowledgements, with {self.acknowledged_count()} so far; {self.errors()}",
        )
        assert not self.errors(), self.errors()[:10]

    def errors(self) -> list[str]:
        return [error for sender in self.senders for error in sender.errors] + self.follower.errors

    def settle(self) -> None:
        """Stop sending, and let the follower come to the end."""
        for sender in self.senders:
            sender.stop()
        wait_until(
            lambda: self.follower.count() >= self.acknowledged_count() or bool(self.errors()),
            deadline_s=SETTLE_DEADLINE_S,
            what=lambda: f"the follower reads {self.acknowledged_count()} messages, so far {self.follower.count()}",
        )
        self.follower.stop()
        self._runs = False

    def _stop_all(self) -> None:
        for sender in self.senders:
            sender._stop.set()
            sender._thread.join()
        self.follower.stop()


def read_all(server: str, places: Sequence[Place]) -> dict[Place, list[tuple[int, Sent]]]:
    """Everything that is there, read by a fresh consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[Place, list[tuple[int, Sent]]] = {place: [] for place in places}
    ended: set[Place] = set()

    def take() -> bool:
        for message in consumer.consume(1000, timeout=0.1):
            place = Place(str(message.topic()), int(message.partition() or 0))
            error: Any = message.error()
            if error is None:
                value, offset = message.value(), message.offset()
                assert isinstance(value, bytes)
                assert offset is not None
                found[place].append((offset, decode(value)))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(place)
        return len(ended) == len(places)

    try:
        consumer.assign([TopicPartition(place.topic, place.partition, 0) for place in places])
        wait_until(take, deadline_s=SETTLE_DEADLINE_S, what="every partition is read to its end")
    finally:
        consumer.close()
    return found


def check_history(load: Load) -> int:
    """Everything acknowledged is there, once, in order, where it was said to be; returns how many messages."""
    assert not load.errors(), load.errors()[:10]
    found = read_all(load.server, load.places)
    total = 0
    for place, stored in found.items():
        total += len(stored)
        assert [offset for offset, _ in stored] == list(range(len(stored))), f"{place}: offsets have gaps"
        by_offset = dict(stored)
        for sender in load.senders:
            for offset, sent in sender.acknowledged[place].items():
                assert by_offset.get(offset) == sent, f"{place}: {sent} was acknowledged at {offset}"
            numbers = [sent.number for _, sent in stored if sent.sender == sender.id]
            # All that was sent is acknowledged at the end, so once and in order means: exactly these.
            assert numbers == list(range(sender.sent_count[place])), f"{place}: sender {sender.id} lost or doubled"
        for offset, sent in load.follower.seen[place].items():
            assert by_offset.get(offset) == sent, f"{place}: offset {offset} changed under the follower"
    assert total == load.acknowledged_count()
    return total
