"""(i): what a large backlog costs: memory with many messages waiting and many leased, and the time to start with them.

The backlog is made by a Kafka producer, which is the quickest way in; leases are taken by REST, a thousand at a time.

A node that is used takes snapshots, one for every 64 MiB that are written, and what that needs in memory may stay with
the process. So when half is leased, as much is written as makes the next one due, the other half is leased, and memory
is measured once that snapshot is on disk; and once again after the same with all of it leased.
"""

import time
from pathlib import Path

import msgspec

from benchmarks import generator
from benchmarks.door import MsgpackDoor, call, create_queue, request
from benchmarks.http_load import load
from benchmarks.http_round import Receiving
from benchmarks.process import Server, remove, start_node
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings
from headrace.log.config import LogConfig

NAME = "queue-memory"
WAITING = 10_000_000
LEASED = 1_000_000  # also in a quick run, since of fewer the process itself would be most of what is measured
QUICK_WAITING = 2_000_000
GOAL_LEASE_BYTES = 200
SIZE_BYTES = 100
DUE_COUNT = LogConfig().checkpoint_bytes // SIZE_BYTES  # so many messages make a snapshot due
SNAPSHOT_DEADLINE_S = 60.0
LOOK_INTERVAL_S = 0.1
RECEIVE_MAX = 1000
LEASE_S = 43_200
LEASE_CONNECTIONS = 4
LEASE_DEADLINE_S = 300.0
QUEUE = "backlog"


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    waiting: int
    leased: int
    fresh_bytes: int
    waiting_bytes: int
    leased_bytes: int  # after a snapshot that fell into the load
    again_bytes: int  # after one more
    empty_start_s: float
    stopped_start_s: float  # after a clean stop
    stopped_bytes: int
    killed_start_s: float  # after SIGKILL
    killed_bytes: int


class _Leasing(Receiving):
    """Receives until so many are leased."""

    def __init__(self, address: str, count: int) -> None:
        super().__init__(MsgpackDoor(address, QUEUE), RECEIVE_MAX)
        path = f"/queues/{QUEUE}/messages?batch_size={RECEIVE_MAX}&lease={LEASE_S}"
        self._request = request("GET", address, path, accept="application/msgpack")
        self._left = count

    def next(self) -> bytes | None:
        return super().next() if self._left > 0 else None

    def answered(self, status: int, body: bytes) -> int:
        found = super().answered(status, body)
        self._left -= found
        self.receipts.clear()
        return found


def run(settings: Settings) -> Report:
    waiting = int(settings.either(WAITING, QUICK_WAITING))
    data = settings.directory / "queue-memory"
    node = start_node(data)
    try:
        empty_start_s, fresh = node.start_s, node.resident_bytes()
        create_queue(node.http, QUEUE, max_deliveries=None)
        _produce(node, waiting)
        _wait_for_snapshot(data, waiting)
        _expect(node, visible=waiting)
        waiting_bytes = node.resident_bytes()
        _lease(node, LEASED // 2)
        _produce(node, DUE_COUNT)
        _lease(node, LEASED - LEASED // 2)
        _wait_for_snapshot(data, waiting + DUE_COUNT)
        leased_bytes = node.resident_bytes()
        _produce(node, DUE_COUNT)
        _wait_for_snapshot(data, waiting + 2 * DUE_COUNT)
        _expect(node, leased=LEASED)
        again_bytes = node.resident_bytes()
        node.stop()
        node = start_node(data)
        stopped_start_s, stopped_bytes = node.start_s, node.resident_bytes()
        _expect(node, leased=LEASED)
        node.kill()
        node = start_node(data)
        killed_start_s, killed_bytes = node.start_s, node.resident_bytes()
        _expect(node, visible=waiting + 2 * DUE_COUNT - LEASED, leased=LEASED)
    finally:
        node.kill()
        remove(data)
    return report(
        Figures(
            waiting=waiting,
            leased=LEASED,
            fresh_bytes=fresh,
            waiting_bytes=waiting_bytes,
            leased_bytes=leased_bytes,
            again_bytes=again_bytes,
            empty_start_s=empty_start_s,
            stopped_start_s=stopped_start_s,
            stopped_bytes=stopped_bytes,
            killed_start_s=killed_start_s,
            killed_bytes=killed_bytes,
        )
    )


def _produce(node: Server, count: int) -> None:
    generator.produce(node.address, QUEUE, "--messages", str(count), "--size", str(SIZE_BYTES))


def _lease(node: Server, count: int) -> None:
    load(node.http, _Leasing(node.http, count), seconds=LEASE_DEADLINE_S, connections=LEASE_CONNECTIONS)


def _wait_for_snapshot(data: Path, offset: int) -> None:
    """Until one is on disk that has everything below an offset; the one before is gone soon after."""
    deadline = time.monotonic() + SNAPSHOT_DEADLINE_S
    while not any(_offset_of(path) >= offset for path in data.glob("partitions/*/folds/queue-*.snapshot")):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the node took no snapshot at offset {offset:,} within {SNAPSHOT_DEADLINE_S:.0f} s")
        time.sleep(LOOK_INTERVAL_S)


def _offset_of(snapshot: Path) -> int:
    return int(snapshot.stem.rpartition("-")[2])


def _expect(node: Server, **counts: int) -> None:
    """The node says so itself; else the figures would be those of another load."""
    found = call("GET", node.http, f"/queues/{QUEUE}")["counts"]
    for name, count in counts.items():
        if abs(found[name] - count) > RECEIVE_MAX * LEASE_CONNECTIONS:
            raise RuntimeError(f"{count:,} messages should be {name}, and the node counts {found}")


def report(found: Figures) -> Report:
    def lease_bytes(resident: int, without: int) -> float:
        return (resident - without) / found.leased

    def state(name: str, resident: int, each: str, start_s: float | None = None) -> list[str]:
        return [name, f"{resident / 1e6:.1f}", each, "" if start_s is None else f"{start_s:.2f}"]

    leased = lease_bytes(found.leased_bytes, found.waiting_bytes)
    again = lease_bytes(found.again_bytes, found.waiting_bytes)
    stopped = lease_bytes(found.stopped_bytes, found.fresh_bytes)
    killed = lease_bytes(found.killed_bytes, found.fresh_bytes)
    waiting_each = (found.waiting_bytes - found.fresh_bytes) / found.waiting
    return Report(
        name=NAME,
        title=f"(i) A queue with {found.waiting:,} messages waiting, then {found.leased:,} leased",
        columns=["state", "MB resident", "bytes for each", "seconds to start"],
        rows=[
            state("empty", found.fresh_bytes, "", found.empty_start_s),
            state(f"{found.waiting:,} waiting", found.waiting_bytes, f"{waiting_each:.2f}"),
            state(f"{found.leased:,} leased, a snapshot meanwhile", found.leased_bytes, f"{leased:.1f}"),
            state("after another snapshot", found.again_bytes, f"{again:.1f}"),
            state("started again after a clean stop", found.stopped_bytes, f"{stopped:.1f}", found.stopped_start_s),
            state("started again after SIGKILL", found.killed_bytes, f"{killed:.1f}", found.killed_start_s),
        ],
        figures=msgspec.to_builtins(found),
        goals=[
            Goal.at_most(
                f"queue: a lease is at most {GOAL_LEASE_BYTES} bytes resident, in each of these states",
                GOAL_LEASE_BYTES,
                max(leased, again, stopped, killed),
            )
        ],
        notes=[
            f"Messages of {SIZE_BYTES} bytes, produced by librdkafka. Seconds from the start of the process to its "
            "first line, when it serves. A lease is what the process has more than with the same messages waiting; "
            "after a start, more than an empty one has. What the load left in buffers and in the cache is part of it."
        ],
    )
