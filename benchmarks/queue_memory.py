"""(i): what a large backlog costs: memory with many messages waiting and many leased, and the time to start with them.

The backlog is made by a Kafka producer, which is the quickest way in; leases are taken by REST, a thousand at a time.
"""

import msgspec

from benchmarks import generator
from benchmarks.door import MsgpackDoor, call, create_queue, request
from benchmarks.http_load import load
from benchmarks.http_round import Receiving
from benchmarks.process import Server, remove, start_node
from benchmarks.report import Report
from benchmarks.settings import Settings

NAME = "queue-memory"
WAITING = 10_000_000
LEASED = 1_000_000
QUICK_WAITING = 1_000_000
QUICK_LEASED = 100_000
SIZE_BYTES = 100
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
    leased_bytes: int
    empty_start_s: float
    stopped_start_s: float  # after a clean stop
    killed_start_s: float  # after SIGKILL
    restarted_bytes: int


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
    waiting, leased = int(settings.either(WAITING, QUICK_WAITING)), int(settings.either(LEASED, QUICK_LEASED))
    data = settings.directory / "queue-memory"
    node = start_node(data)
    try:
        empty_start_s, fresh = node.start_s, node.resident_bytes()
        create_queue(node.http, QUEUE, max_deliveries=None)
        generator.produce(node.address, QUEUE, "--messages", str(waiting), "--size", str(SIZE_BYTES))
        _expect(node, visible=waiting)
        waiting_bytes = node.resident_bytes()
        load(node.http, _Leasing(node.http, leased), seconds=LEASE_DEADLINE_S, connections=LEASE_CONNECTIONS)
        _expect(node, leased=leased)
        leased_bytes = node.resident_bytes()
        node.stop()
        node = start_node(data)
        stopped_start_s, restarted = node.start_s, node.resident_bytes()
        _expect(node, leased=leased)
        node.kill()
        node = start_node(data)
        _expect(node, visible=waiting - leased, leased=leased)
        figures = Figures(
            waiting=waiting,
            leased=leased,
            fresh_bytes=fresh,
            waiting_bytes=waiting_bytes,
            leased_bytes=leased_bytes,
            empty_start_s=empty_start_s,
            stopped_start_s=stopped_start_s,
            killed_start_s=node.start_s,
            restarted_bytes=restarted,
        )
    finally:
        node.kill()
        remove(data)
    return report(figures)


def _expect(node: Server, **counts: int) -> None:
    """The node says so itself; else the figures would be those of another load."""
    found = call("GET", node.http, f"/queues/{QUEUE}")["counts"]
    for name, count in counts.items():
        if abs(found[name] - count) > RECEIVE_MAX * LEASE_CONNECTIONS:
            raise RuntimeError(f"{count:,} messages should be {name}, and the node counts {found}")


def report(found: Figures) -> Report:
    each = (found.leased_bytes - found.waiting_bytes) / found.leased
    return Report(
        name=NAME,
        title=f"(i) A queue with {found.waiting:,} messages waiting, {found.leased:,} of them leased",
        columns=["state", "MB resident", "bytes for each", "seconds to start"],
        rows=[
            ["empty", f"{found.fresh_bytes / 1e6:.1f}", "", f"{found.empty_start_s:.2f}"],
            [
                f"{found.waiting:,} waiting",
                f"{found.waiting_bytes / 1e6:.1f}",
                f"{(found.waiting_bytes - found.fresh_bytes) / found.waiting:.2f}",
                "",
            ],
            [f"and {found.leased:,} leased", f"{found.leased_bytes / 1e6:.1f}", f"{each:.1f}", ""],
            [
                "started again after a clean stop",
                f"{found.restarted_bytes / 1e6:.1f}",
                "",
                f"{found.stopped_start_s:.2f}",
            ],
            ["started again after SIGKILL", "", "", f"{found.killed_start_s:.2f}"],
        ],
        figures=msgspec.to_builtins(found),
        notes=[
            f"Messages of {SIZE_BYTES} bytes, produced by librdkafka. Seconds from the start of the process to its "
            "first line, when it serves. Resident memory has what the load itself needed in buffers, too."
        ],
    )
