"""Send-to-receive latency: a paced producer here, a consumer in a process of its own, as users have them.

Each message carries the time at which it was due to be sent; the consumer takes the difference when its application
gets the message. Both read CLOCK_MONOTONIC, which is one clock for all processes of a machine, so this load must run
with both ends on one.
"""

import multiprocessing
import time  # noqa: TID251 - what is measured here is the machine's own clock, and no test simulates it
from array import array
from multiprocessing.connection import Connection

import msgspec

from headrace.cli.load import STALL_S, STAMP, Measured, Percentiles, ProduceLoad, Target, percentiles
from headrace.cli.receiver import consumer
from headrace.cli.sender import Schedule, produce
from headrace.model.errors import HeadraceError, TimedOutError

READY_DEADLINE_S = 30.0
_READY = b"ready"  # or else why not, in a sentence


class EndToEnd(msgspec.Struct, frozen=True, kw_only=True):
    sent: Measured  # its latency is that of the acknowledgement
    received: int  # of all messages, those of the warm-up included
    latency_ms: Percentiles | None


class Received(msgspec.Struct, frozen=True, kw_only=True):
    count: int
    latency_ms: Percentiles | None


def measure(target: Target, load: ProduceLoad) -> EndToEnd:
    """Send at a rate, receive in another process, and compare the clocks."""
    schedule = Schedule.of(load)
    context = multiprocessing.get_context("spawn")  # a fork would share librdkafka's threads, which do not survive it
    here, there = context.Pipe()
    child = context.Process(target=receive, args=(there, target, schedule.total, schedule.warmup), daemon=True)
    child.start()
    there.close()
    try:
        ready = _expect(here, READY_DEADLINE_S, "the consumer was not ready")
        if ready != _READY:
            raise HeadraceError(ready.decode())
        sent = produce(target, load)
        answer = _expect(here, STALL_S * 2, "the consumer gave no result")
    finally:
        here.close()
        child.join(5)
        if child.is_alive():
            child.kill()
            child.join()
    received = msgspec.json.decode(answer, type=Received)
    return EndToEnd(sent=sent, received=received.count, latency_ms=received.latency_ms)


def _expect(pipe: Connection, deadline_s: float, problem: str) -> bytes:
    try:
        if pipe.poll(deadline_s):
            return pipe.recv_bytes()
    except EOFError:
        raise HeadraceError(f"{problem}: its process ended") from None
    raise TimedOutError(f"{problem} within {deadline_s:.0f} s")


def receive(pipe: Connection, target: Target, total: int, warmup: int) -> None:
    """The consumer's process: read until all have come, or nothing has for a while."""
    try:
        client = consumer(target, at_end=True)
    except HeadraceError as error:
        pipe.send_bytes(str(error).encode())
        return
    client.poll(0)
    pipe.send_bytes(_READY)
    latencies = array("q")
    count = 0
    poll, unpack, now_ns = client.poll, STAMP.unpack_from, time.monotonic_ns
    last_ns = now_ns()
    while count < total and now_ns() - last_ns < STALL_S * 1e9:
        message = poll(0.1)
        if message is None or message.error() is not None:
            continue
        last_ns = now_ns()
        number, due_ns = unpack(message.value())
        count += 1
        if number >= warmup:
            latencies.append(last_ns - due_ns)
    client.close()
    pipe.send_bytes(msgspec.json.encode(Received(count=count, latency_ms=percentiles(latencies))))
