"""(k): what a queue keeps on disk of a long past: messages that went through, and a thousand delayed ones between them.

A named reader registers before the first message and begins to read late, so the log is held for it and cleaned behind
it. What the partition's files take is looked at while that goes on, and until nothing changes any more.
"""

import time
from pathlib import Path

import msgspec

from benchmarks import past_load
from benchmarks.door import call, create_queue
from benchmarks.past_load import MeasuredPast, Past
from benchmarks.process import Server, remove, start_node
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings

NAME = "queue-space"
QUEUE = "past"
SIZE_BYTES = 8192
MESSAGES = 1_310_720  # 10 GiB
QUICK_MESSAGES = 65_536
DELAYED = 1000
LOOK_S = 0.5
SETTLED_S = 60.0  # cleaning is over when the size has not changed for so long
GOAL_RATIO = 2.0


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    past: Past
    load: MeasuredPast
    peak_disk_bytes: int  # of the partition, while the reader held it
    disk_bytes: int  # of the partition, at the end
    files: int
    cleaned_s: float  # from the reader's end until the size changed last
    fresh_bytes: int
    peak_resident_bytes: int
    resident_bytes: int
    delayed: int  # that the node counts after SIGKILL
    killed_start_s: float

    @property
    def needed_bytes(self) -> int:
        return self.past.delayed * self.past.size_bytes


class _Watch:
    """The most that a node took of disk and memory, as far as it was looked at."""

    def __init__(self, node: Server, data: Path) -> None:
        self._node = node
        self._partitions = data / "partitions"
        self.disk_bytes = self.peak_disk_bytes = self.peak_resident_bytes = 0

    def look(self) -> None:
        self.disk_bytes = sum(_blocks(path) for path in self._files())
        self.peak_disk_bytes = max(self.peak_disk_bytes, self.disk_bytes)
        self.peak_resident_bytes = max(self.peak_resident_bytes, self._node.resident_bytes())

    def file_count(self) -> int:
        return len(self._files())

    def settle(self) -> float:
        """Wait until the size stays as it is. How long it went on changing."""
        begun_s = changed_s = time.monotonic()
        while time.monotonic() - changed_s < SETTLED_S:
            before = self.disk_bytes
            time.sleep(LOOK_S)
            self.look()
            if self.disk_bytes != before:
                changed_s = time.monotonic()
        return changed_s - begun_s

    def _files(self) -> list[Path]:
        return [path for path in self._partitions.rglob("*") if path.is_file()]


def _blocks(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # cleaned away since the directory was listed
        return 0


def run(settings: Settings) -> Report:
    past = Past(messages=int(settings.either(MESSAGES, QUICK_MESSAGES)), size_bytes=SIZE_BYTES, delayed=DELAYED)
    data = settings.directory / "queue-space"
    node = start_node(data)
    try:
        fresh_bytes = node.resident_bytes()
        create_queue(node.http, QUEUE, max_deliveries=None)
        watch = _Watch(node, data)
        process = past_load.start(node.http, node.address, QUEUE, past)
        try:
            while process.poll() is None:
                watch.look()
                time.sleep(LOOK_S)
        finally:
            process.kill()
        load = past_load.result(process)
        cleaned_s = watch.settle()
        resident_bytes = node.resident_bytes()
        node.kill()
        node = start_node(data)
        figures = Figures(
            past=past,
            load=load,
            peak_disk_bytes=watch.peak_disk_bytes,
            disk_bytes=watch.disk_bytes,
            files=watch.file_count(),
            cleaned_s=cleaned_s,
            fresh_bytes=fresh_bytes,
            peak_resident_bytes=watch.peak_resident_bytes,
            resident_bytes=resident_bytes,
            delayed=call("GET", node.http, f"/queues/{QUEUE}")["counts"]["delayed"],
            killed_start_s=node.start_s,
        )
    finally:
        node.kill()
        remove(data)
    return report(figures)


def report(found: Figures) -> Report:
    past, load = found.past, found.load
    through_bytes = past.messages * past.size_bytes
    ratio = found.disk_bytes / found.needed_bytes
    return Report(
        name=NAME,
        title=f"(k) A queue that has seen {through_bytes / 1e9:.1f} GB and holds {past.delayed:,} delayed messages",
        columns=["", "MB on disk", "MB resident", "seconds"],
        rows=[
            ["empty", "", f"{found.fresh_bytes / 1e6:.1f}", ""],
            [
                "at most, while a reader held it",
                f"{found.peak_disk_bytes / 1e6:,.1f}",
                f"{found.peak_resident_bytes / 1e6:.1f}",
                f"{load.worked_s:.1f} of work, {load.read_s:.1f} of reading",
            ],
            [
                "cleaned",
                f"{found.disk_bytes / 1e6:.1f}",
                f"{found.resident_bytes / 1e6:.1f}",
                f"{found.cleaned_s:.1f}",
            ],
            ["started again after SIGKILL", "", "", f"{found.killed_start_s:.2f}"],
        ],
        figures=msgspec.to_builtins(found),
        goals=[
            Goal.below("queue: disk that it uses, as a multiple of what it holds", GOAL_RATIO, ratio),
            Goal.at_least("queue: part that a named reader saw", 1.0, load.read / past.messages),
        ],
        notes=[
            f"Messages of {past.size_bytes:,} bytes, sent, received and acknowledged by the Python client in batches "
            f"of {past_load.BATCH}, fsync; the reader begins when half is sent. {load.acknowledged:,} acknowledged, "
            f"{load.repeated:,} handed out twice, {load.read:,} read by offset, {found.delayed:,} delayed after "
            f"SIGKILL; {found.files} files. Disk is that of the partition: the node's two journals come to it."
        ],
    )
