"""The producing loads: as fast as the client takes messages, or each at its time."""

import hashlib
import sys
import threading
import time  # noqa: TID251 - what is measured here is the machine's own clock, and no test simulates it
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from headrace.cli.load import (
    CHUNK_MESSAGES,
    STALL_S,
    STAMP,
    Measured,
    Place,
    ProduceLoad,
    Stall,
    Target,
    client_library,
    percentiles,
    places,
)

UNACKNOWLEDGED_MESSAGES_MAX = 100_000
UNACKNOWLEDGED_BYTES_MAX = 64 * 1024 * 1024
TICK_S = 0.001


def filler(size_bytes: int) -> bytes:
    """Text of a size that a codec makes about half as large, and the same in every run."""
    return hashlib.shake_128(b"headrace").hexdigest(size_bytes // 2 + 1).encode()[:size_bytes]


class Sender:
    """A producer and the failures that it reported. Successes are counted by the client, without a call for each."""

    def __init__(self, target: Target, load: ProduceLoad) -> None:
        self.size_bytes = load.size_bytes
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

    def measured(self, messages: int, total: int, seconds: float, latencies: Sequence[int]) -> Measured:
        acknowledged = max(0, messages - self.failed)
        return Measured(
            messages=acknowledged,
            bytes=acknowledged * self.size_bytes,
            seconds=seconds,
            messages_total=total,
            bytes_total=total * self.size_bytes,
            cpu_s=time.process_time() - self.cpu_before_s,
            failed=self.failed,
            first_error=self.first_error,
            latency_ms=percentiles(latencies),
        )

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
    return Unpaced(sender, load).run() if load.rate is None else _produce_paced(sender, load)


class Unpaced:
    """As fast as the client takes them. The latency of this load is of chunks: from handing one over to as many
    acknowledgements.
    """

    def __init__(self, sender: Sender, load: ProduceLoad) -> None:
        self._sender = sender
        self._load = load
        self._chunk = [{"value": filler(load.size_bytes)}] * CHUNK_MESSAGES
        self._sent = self._chunks = 0
        self._waiting: deque[tuple[int, int]] = deque()  # how many were sent up to a chunk, and when
        self._latencies = array("q")
        self._stall = Stall()
        self._sent_before = 0  # in the warm-up
        self._measured_from_ns: int | None = None

    def run(self) -> Measured:
        load, producer = self._load, self._sender.producer
        pending_max = max(1, min(UNACKNOWLEDGED_MESSAGES_MAX, UNACKNOWLEDGED_BYTES_MAX // load.size_bytes))
        started_ns = time.monotonic_ns()
        while True:
            now_ns, pending = time.monotonic_ns(), len(producer)
            if self._measured_from_ns is None and now_ns - started_ns >= load.warmup_s * 1e9:
                self._measured_from_ns, self._sent_before = now_ns, self._sent - pending
            self._take_acknowledged(now_ns, self._sent - pending)
            room = min(CHUNK_MESSAGES, self._left(now_ns))
            if not room:
                break
            if pending >= pending_max:
                producer.poll(0.001)
                continue
            self._send(room, now_ns)
            producer.poll(0)
        self._finish()
        assert self._measured_from_ns is not None
        seconds = (time.monotonic_ns() - self._measured_from_ns) / 1e9
        counted = self._sent - self._sent_before
        return self._sender.measured(counted, self._sent, seconds, self._latencies)

    def _left(self, now_ns: int) -> int:
        """How many may still be sent."""
        if self._measured_from_ns is None:
            return CHUNK_MESSAGES
        if self._load.messages is not None:
            return max(0, self._load.messages - (self._sent - self._sent_before))
        assert self._load.seconds is not None
        return CHUNK_MESSAGES if now_ns - self._measured_from_ns < self._load.seconds * 1e9 else 0

    def _send(self, count: int, now_ns: int) -> None:
        sender = self._sender
        topic, partition = sender.places[self._chunks % len(sender.places)]
        if self._load.one_by_one:
            value, send = self._chunk[0]["value"], sender.producer.produce
            for _ in range(count):
                send(topic, value, partition=partition, on_delivery=sender.report)
            self._sent += count
        else:
            chunk = self._chunk if count == CHUNK_MESSAGES else self._chunk[:count]
            self._sent += sender.producer.produce_batch(topic, chunk, partition=partition, on_delivery=sender.report)
        self._chunks += 1
        self._waiting.append((self._sent, now_ns))

    def _take_acknowledged(self, now_ns: int, count: int) -> None:
        self._stall.check(count)
        waiting = self._waiting
        while waiting and waiting[0][0] <= count:
            if self._measured_from_ns is not None:
                self._latencies.append(now_ns - waiting[0][1])
            waiting.popleft()

    def _finish(self) -> None:
        while pending := self._sender.producer.flush(0.001):
            self._take_acknowledged(time.monotonic_ns(), self._sent - pending)
        self._take_acknowledged(time.monotonic_ns(), self._sent)


def _produce_paced(sender: Sender, load: ProduceLoad) -> Measured:
    schedule = Schedule.of(load)
    latencies = array("q")
    last_ns = 0

    def acknowledged(number: int, due_ns: int, error: Any, message: Any) -> None:
        nonlocal last_ns
        last_ns = time.monotonic_ns()
        if error is not None:
            sender.report(error, message)
        elif number >= schedule.warmup:
            latencies.append(last_ns - due_ns)

    with _polling(sender.producer):
        started_ns = _send_on_time(sender, load, schedule, acknowledged)
        sender.finish()
    # To the last acknowledgement, not to the last due time: a node that falls behind shows a lower rate.
    seconds = ((last_ns or time.monotonic_ns()) - started_ns) / 1e9 - schedule.warmup / schedule.rate
    return sender.measured(schedule.total - schedule.warmup, schedule.total, seconds, latencies)


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
) -> int:
    """Messages fall due in ticks, and each carries its tick's time, however late it is handed over.

    Returns the time of the first tick.
    """
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
    return started


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
