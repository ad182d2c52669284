"""Loads: what `headrace bench` puts on a node, and what it measures while doing so.

The client is librdkafka (confluent-kafka), the one whose own cost is smallest. There are three loads:

- unpaced producing hands over messages as fast as the client takes them, with a bounded amount unacknowledged;
- paced producing is open-loop: each message has an intended time of sending, fixed before the run, and its latency
  counts from there, whether or not the client was late. A stall of the node is so seen by every message that fell due
  in it, not by one (coordinated omission);
- consuming reads as fast as the client delivers, or waits for what a paced producer in another process sends.

Every load ends: after its count or its time, or when nothing has moved for a while. Here are the words they share; the
producing loads are in `sender.py`, the consuming one in `receiver.py`, both together in `end_to_end.py`.
"""

import struct
import time  # noqa: TID251 - what is measured here is the machine's own clock, and no test simulates it
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from headrace.model.errors import HeadraceError, TimedOutError, UnknownTopicError
from headrace.model.extra import how_to_install

CHUNK_MESSAGES = 1000
STALL_S = 15.0
METADATA_TIMEOUT_S = 10.0
# The messages of paced loads begin with their number and their intended time (CLOCK_MONOTONIC, the same for every
# process of a machine).
STAMP = struct.Struct(">qq")


class ClientMissingError(HeadraceError):
    """The load generator's client is an extra that is not installed."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a load goes: one topic, or `topics` of them, named topic-0, topic-1 and so on."""

    server: str
    topic: str
    topics: int = 1

    def names(self) -> list[str]:
        return [self.topic] if self.topics == 1 else [f"{self.topic}-{index}" for index in range(self.topics)]


class ProduceLoad(msgspec.Struct, frozen=True, kw_only=True):
    size_bytes: int = 1024
    messages: int | None = None  # how many, or
    seconds: float | None = None  # how long; just one of the two
    warmup_s: float = 0.0  # before the measured part
    rate: float | None = None  # messages a second; None for as fast as possible
    acks: str = "all"
    is_idempotent: bool = False
    linger_ms: float = 5.0
    batch_bytes: int = 1_000_000
    batch_messages: int = 10_000
    compression: str = "none"
    # Whether the client's own partitioner chooses; else messages go round all partitions.
    client_partitioner: bool = False
    # Whether each message is a call, as most programs have it; else the client is given a thousand at a time.
    one_by_one: bool = False


class Percentiles(msgspec.Struct, frozen=True, kw_only=True):
    p50: float
    p90: float
    p99: float
    p999: float
    max: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a load did in its measured part, and in all."""

    messages: int
    bytes: int
    seconds: float
    messages_total: int
    bytes_total: int
    cpu_s: float  # of the client, from its first message to its last
    failed: int = 0
    first_error: str | None = None
    latency_ms: Percentiles | None = None

    @property
    def messages_per_s(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        return self.bytes / self.seconds / 1e6 if self.seconds else 0.0


class Place(NamedTuple):
    topic: str
    partition: int


def client_library() -> Any:
    """confluent_kafka, which only this command needs."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise ClientMissingError(
            f"headrace bench needs the package confluent-kafka; {how_to_install('bench')}"
        ) from error
    return confluent_kafka


def percentiles(latencies_ns: Sequence[int]) -> Percentiles | None:
    """In milliseconds; None of nothing."""
    if not latencies_ns:
        return None
    ordered = sorted(latencies_ns)
    last = len(ordered) - 1

    def at(fraction: float) -> float:
        return ordered[round(last * fraction)] / 1e6

    return Percentiles(p50=at(0.5), p90=at(0.9), p99=at(0.99), p999=at(0.999), max=at(1.0))


def places(client: Any, target: Target) -> list[Place]:
    """Every partition of the target, as the server knows it now."""
    only = target.topic if target.topics == 1 else None
    try:
        topics = client.list_topics(only, timeout=METADATA_TIMEOUT_S).topics
    except client_library().KafkaException as error:
        raise TimedOutError(f"{target.server} does not answer: {error.args[0].str()}; is a node up there?") from error
    found = []
    for name in target.names():
        known = topics.get(name)
        if known is None or known.error is not None or not known.partitions:
            raise UnknownTopicError(f"topic {name} does not exist; let bench make it with --partitions")
        found += [Place(name, partition) for partition in sorted(known.partitions)]
    return found


def create_topics(target: Target, *, partitions: int, settings: dict[str, str]) -> None:
    """Make the target's topics; one that is there already stays as it is."""
    library = client_library()
    from confluent_kafka.admin import AdminClient, NewTopic

    wanted = [NewTopic(name, partitions, 1, config=settings) for name in target.names()]
    client = AdminClient({"bootstrap.servers": target.server, "log_level": 3})
    futures = client.create_topics(wanted, request_timeout=60.0, operation_timeout=60.0)
    for name, future in futures.items():
        try:
            future.result()
        except library.KafkaException as error:
            if error.args[0].code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
                raise HeadraceError(f"topic {name} could not be created: {error.args[0].str()}") from error


class Stall:
    """Raises when a count has not moved for a while."""

    def __init__(self) -> None:
        self._count = -1
        self._since_ns = 0

    def check(self, count: int) -> None:
        now = time.monotonic_ns()
        if count != self._count:
            self._count, self._since_ns = count, now
        elif now - self._since_ns > STALL_S * 1e9:
            raise TimedOutError(f"nothing moved for {STALL_S:.0f} s after {count} messages; is the node alive?")
