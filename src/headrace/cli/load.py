"""Loads: what `headrace bench` puts on a node, and what it measures while doing so.

The client is librdkafka (confluent-kafka), the one whose own cost is smallest. There are three loads:

- unpaced producing hands over messages as fast as the client takes them, with a bounded amount unacknowledged;
- paced producing is open-loop: each message has an intended time of sending, fixed before the run, and its latency
  counts from there, whether or not the client was late. A stall of the node is so seen by every message that fell due
  in it, not by one (coordinated omission);
- consuming reads as fast as the client delivers, or waits for what a paced producer in another process sends.

Every load ends: after its count or its time, or when nothing has moved for a while.
"""

import hashlib
import struct
import sys
import threading
import time  # noqa: TID251 - what is measured here is the machine's own clock, and no test simulates it
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headrace.model.errors import HeadraceError, TimedOutError, UnknownTopicError

CHUNK_MESSAGES = 1000
UNACKNOWLEDGED_MESSAGES_MAX = 100_000
UNACKNOWLEDGED_BYTES_MAX = 64 * 1024 * 1024
TICK_S = 0.001
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
            "headrace bench needs the package confluent-kafka; install it with: pip install 'headrace[bench]'"
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


def filler(size_bytes: int) -> bytes:
    """Text of a size that a codec makes about half as large, and the same in every run."""
    return hashlib.shake_128(b"headrace").hexdigest(size_bytes // 2 + 1).encode()[:size_bytes]


def places(client: Any, target: Target) -> list[Place]:
    """Every partition of the target, as the server knows it now."""
    only = target.topic if target.topics == 1 else None
    topics = client.list_topics(only, timeout=METADATA_TIMEOUT_S).topics
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
    client = AdminClient({"bootstrap.servers": target.server})
    futures = client.create_topics(wanted, request_timeout=60.0, operation_timeout=60.0)
    for name, future in futures.items():
        try:
            future.result()
        except library.KafkaException as error:
            if error.args[0].code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
                raise HeadraceError(f"topic {name} could not be created: {error.args[0].str()}") from error


# Producing.


class Sender:
    """A producer and the failures that it reported. Successes are counted by the client, without a call for each."""

    def __init__(self, target: Target, load: ProduceLoad) -> None:
        self.failed = 0
        self.first_error: str | None = None
        self.cpu_before_s = time.process_time()
        self.producer = client_library().Producer(
            {
                "bootstrap.servers": target.server,
                "client.id": "headrace-bench",
                "acks": load.acks,
                "enable.idempotence": load.is_idempotent,
                "linger.ms": load.linger_ms,
                "batch.size": load.batch_bytes,
                "batch.num.messages": load.batch_messages,
                "compression.type": load.compression,
                "queue.buffering.max.messages": 2 * UNACKNOWLEDGED_MESSAGES_MAX,
                "message.max.bytes": max(1_000_000, 2 * load.size_bytes),
                "delivery.timeout.ms": 60_000,
                "delivery.report.only.error": load.rate is None,
            }
        )
        found = places(self.producer, target)
        # With the client's partitioner a topic is one destination, of which the client makes several.
        self.places = sorted({Place(place.topic, -1) for place in found}) if load.client_partitioner else found

    def report(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error.str()

    def finish(self) -> None:
        """Wait for every acknowledgement."""
        left = self.producer.flush(STALL_S)
        while left:
            now_left = self.producer.flush(STALL_S)
            if now_left == left:
                self.failed += left
                self.first_error = self.first_error or f"not acknowledged within {STALL_S:.0f} s"
                self.producer.purge()
                return
            left = now_left


def produce(target: Target, load: ProduceLoad) -> Measured:
    """Run a load to its end."""
    sender = Sender(target, load)
    return _produce_unpaced(sender, load) if load.rate is None else _produce_paced(sender, load)


def _produce_unpaced(sender: Sender, load: ProduceLoad) -> Measured:
    """The latency of this load is of chunks: from handing one over to as many acknowledgements."""
    producer, report = sender.producer, sender.report
    count = min(CHUNK_MESSAGES, load.messages or CHUNK_MESSAGES)
    chunk = [{"value": filler(load.size_bytes)}] * count
    pending_max = max(count, min(UNACKNOWLEDGED_MESSAGES_MAX, UNACKNOWLEDGED_BYTES_MAX // load.size_bytes))
    waiting: list[tuple[int, int]] = []  # how many were sent up to a chunk, and when
    latencies = array("q")
    sent = chunks = oldest = sent_before = 0
    started = time.monotonic_ns()
    measured_from = started + int(load.warmup_s * 1e9)
    ends = None if load.seconds is None else measured_from + int(load.seconds * 1e9)
    is_measuring = False
    stalls = Stall()
    while True:
        now = time.monotonic_ns()
        if not is_measuring and now >= measured_from:
            is_measuring, measured_from, sent_before = True, now, sent - len(producer)
        if (load.messages is not None and sent - sent_before >= load.messages and is_measuring) or (
            ends is not None and now >= ends
        ):
            break
        unacknowledged = len(producer)
        stalls.check(sent - unacknowledged)
        while oldest < len(waiting) and waiting[oldest][0] <= sent - unacknowledged:
            if is_measuring:
                latencies.append(now - waiting[oldest][1])
            oldest += 1
        if unacknowledged >= pending_max:
            producer.poll(0.001)
            continue
        place = sender.places[chunks % len(sender.places)]
        sent += producer.produce_batch(place.topic, chunk, partition=place.partition, on_delivery=report)
        chunks += 1
        waiting.append((sent, now))
        producer.poll(0)
    sender.finish()
    seconds = (time.monotonic_ns() - measured_from) / 1e9
    return _measured(sender, load.size_bytes, sent - sent_before, sent, seconds, latencies)


def _produce_paced(sender: Sender, load: ProduceLoad) -> Measured:
    assert load.rate is not None
    schedule = Schedule.of(load)
    latencies = array("q")

    def acknowledged(number: int, due_ns: int, error: Any, message: Any) -> None:
        if error is not None:
            sender.report(error, message)
        elif number >= schedule.warmup:
            latencies.append(time.monotonic_ns() - due_ns)

    with _polling(sender.producer):
        _send_on_time(sender, load, schedule, acknowledged)
        sender.finish()
    measured = schedule.total - schedule.warmup
    return _measured(sender, load.size_bytes, measured, schedule.total, measured / load.rate, latencies)


class Schedule(NamedTuple):
    """How many messages in all, how many of them before measuring, and how many fall due with each tick."""

    total: int
    warmup: int
    rate: float

    @classmethod
    def of(cls, load: ProduceLoad) -> "Schedule":
        assert load.rate is not None
        warmup = int(load.warmup_s * load.rate)
        measured = load.messages if load.messages is not None else int((load.seconds or 0.0) * load.rate)
        return cls(warmup + max(1, measured), warmup, load.rate)


def _send_on_time(
    sender: Sender, load: ProduceLoad, schedule: Schedule, acknowledged: Callable[[int, int, Any, Any], None]
) -> None:
    """Messages fall due in ticks, and each carries its tick's time, however late it is handed over."""
    send, destinations = sender.producer.produce, sender.places
    body = filler(max(0, load.size_bytes - STAMP.size))
    started = time.monotonic_ns() + 20_000_000
    tick_ns = int(TICK_S * 1e9)
    sent = ticks = 0
    while sent < schedule.total:
        due_ns = started + ticks * tick_ns
        if (early_ns := due_ns - time.monotonic_ns()) > 0:
            time.sleep(early_ns / 1e9)
        ticks += 1
        until = min(schedule.total, int(ticks * TICK_S * schedule.rate))
        while sent < until:
            topic, partition = destinations[sent % len(destinations)]
            value = STAMP.pack(sent, due_ns) + body
            try:
                send(topic, value, partition=partition, on_delivery=partial(acknowledged, sent, due_ns))
            except BufferError:
                time.sleep(TICK_S)  # a full queue makes this message late, and its latency says so
                continue
            sent += 1


@contextmanager
def _polling(producer: Any) -> Iterator[None]:
    """Acknowledgements are taken in a thread of their own, so that pacing does not delay them."""
    is_over = threading.Event()

    def poll() -> None:
        while not is_over.is_set():
            producer.poll(0.05)

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    thread = threading.Thread(target=poll, name="bench-poll")
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval_s)


def _measured(
    sender: Sender, size_bytes: int, messages: int, total: int, seconds: float, latencies: Sequence[int]
) -> Measured:
    return Measured(
        messages=max(0, messages - sender.failed),
        bytes=max(0, messages - sender.failed) * size_bytes,
        seconds=seconds,
        messages_total=total,
        bytes_total=total * size_bytes,
        cpu_s=time.process_time() - sender.cpu_before_s,
        failed=sender.failed,
        first_error=sender.first_error,
        latency_ms=percentiles(latencies),
    )


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


# Consuming.


def consumer(target: Target, *, at_end: bool) -> Any:
    """A consumer with every partition of the target assigned, from its beginning or from its end."""
    library = client_library()
    client = library.Consumer(
        {
            "bootstrap.servers": target.server,
            "client.id": "headrace-bench",
            "group.id": "headrace-bench",
            "enable.auto.commit": False,
            # By default librdkafka looks away for a second whenever it has 100,000 messages waiting.
            "fetch.queue.backoff.ms": 1,
        }
    )
    assigned = []
    for topic, number in places(client, target):
        partition = library.TopicPartition(topic, number)
        low, high = client.get_watermark_offsets(partition, timeout=METADATA_TIMEOUT_S)
        # Whole numbers, not "the end": a message sent after this function returns is read, whenever the fetch begins.
        assigned.append(library.TopicPartition(topic, number, high if at_end else low))
    client.assign(assigned)
    return client


def consume(target: Target, *, messages: int | None, seconds: float | None, warmup_s: float = 0.0) -> Measured:
    """Read from the beginning, as fast as it goes, so many messages or so long."""
    client = consumer(target, at_end=False)
    count = size = total = total_bytes = 0
    started = time.monotonic_ns()
    cpu_before_s = time.process_time()
    measured_from: int | None = None  # the first message after the warm-up starts the clock
    stalls = Stall()
    try:
        while True:
            batch = client.consume(num_messages=CHUNK_MESSAGES, timeout=0.1)
            now = time.monotonic_ns()
            stalls.check(total)
            received = sum(map(len, batch))
            total += len(batch)
            total_bytes += received
            if measured_from is not None:
                count += len(batch)
                size += received
            elif batch and now - started >= warmup_s * 1e9:
                measured_from = now
            since = started if measured_from is None else measured_from
            if messages is not None and total >= messages:
                break
            if seconds is not None and now - since >= seconds * 1e9:
                break
    finally:
        client.close()
    return Measured(
        messages=count,
        bytes=size,
        seconds=(now - since) / 1e9,
        messages_total=total,
        bytes_total=total_bytes,
        cpu_s=time.process_time() - cpu_before_s,
    )
