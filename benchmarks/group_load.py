"""One consumer in a process of its own: of a group, or with all partitions assigned to it.

Run as `python -m benchmarks.group_load ADDRESS TOPIC --group G` (none: assigned). It takes no message until it is told
to: it prints its partitions, as JSON lines, whenever it is given other ones; `go` on standard input starts the reading;
when all of its partitions are read to their ends it prints what it measured. `end` lets it leave.
"""

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

CHUNK_MESSAGES = 1000
POLL_S = 0.05
METADATA_S = 10.0


class MeasuredMember(msgspec.Struct, frozen=True, kw_only=True):
    messages: int
    bytes: int
    began_ns: int  # CLOCK_MONOTONIC, which all processes of a machine share
    ended_ns: int


class Assigned(msgspec.Struct, frozen=True):
    partitions: list[int]


def settings(address: str, group: str | None, protocol: str = "classic", **more: object) -> dict[str, object]:
    config: dict[str, object] = {
        "bootstrap.servers": address,
        "group.id": group or "nobody",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
        "log_level": 3,
        **more,
    }
    if group is not None and protocol != "classic":
        config["group.protocol"] = protocol
    return config


class _Member:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._owned: set[int] = set()
        self._done: set[int] = set()
        self._may_read = threading.Event()
        self._may_leave = threading.Event()

    def assign(self) -> None:
        """All partitions, without a group."""
        found = self._consumer.list_topics(self._topic, timeout=METADATA_S).topics[self._topic].partitions
        self._given(self._consumer, [TopicPartition(self._topic, partition, OFFSET_BEGINNING) for partition in found])

    def subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._given, on_revoke=self._taken)

    def _given(self, consumer: Consumer, places: Sequence[Any]) -> None:
        # librdkafka would do this after the callback, and only what is assigned can be paused.
        consumer.assign(places)
        consumer.pause(places)
        self._owned = {place.partition for place in places}
        _say(Assigned(sorted(self._owned)))

    def _taken(self, consumer: Consumer, places: Sequence[Any]) -> None:
        self._owned.clear()

    def listen(self) -> None:
        """Standard input, in a thread of its own."""
        for line in sys.stdin:
            (self._may_read if line.strip() == "go" else self._may_leave).set()
        self._may_read.set()
        self._may_leave.set()

    def run(self) -> None:
        while not self._may_read.is_set():
            self._consumer.consume(CHUNK_MESSAGES, POLL_S)
        self._consumer.resume(self._consumer.assignment())
        # The first message is the beginning: what comes before it is how a client gets going, not how fast it reads.
        began_ns = ended_ns = 0
        messages = size = 0
        while self._done < self._owned:
            found = self._consumer.consume(CHUNK_MESSAGES, POLL_S)
            if found and not began_ns:
                began_ns = time.monotonic_ns()
            for message in found:
                error = message.error()
                if error is None:
                    messages += 1
                    size += len(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    self._done.add(message.partition())
                    ended_ns = time.monotonic_ns()
                else:
                    raise RuntimeError(str(error))
        _say(MeasuredMember(messages=messages, bytes=size, began_ns=began_ns, ended_ns=ended_ns))
        while not self._may_leave.is_set():
            self._consumer.consume(CHUNK_MESSAGES, POLL_S)
        self._consumer.close()


def _say(value: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.group_load")
    parser.add_argument("address")
    parser.add_argument("topic")
    parser.add_argument("--group", default=None)
    given = parser.parse_args()
    member = _Member(Consumer(settings(given.address, given.group)), given.topic)
    threading.Thread(target=member.listen, daemon=True).start()
    if given.group is None:
        member.assign()
    else:
        member.subscribe()
    member.run()


if __name__ == "__main__":
    main()
