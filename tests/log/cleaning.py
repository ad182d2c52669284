"""Somebody who knows what is dead, for the tests of cleaning, with a fold whose state is in the log.

Messages are acknowledged by control entries, as a queue does it: the fold is the set of offsets that were. Its
state is rebuilt from the newest snapshot and the entries after it, and must be the same after every restart.
"""

from collections.abc import Iterable, Sequence

import msgspec

from headrace.log import snapshots
from headrace.log.config import LogConfig
from headrace.log.partition_log import Incoming, PartitionLog
from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.log.snapshots import Snapshot
from headrace.model.batch import read_header
from headrace.model.ids import Offset
from headrace.wire.kafka.records import control_kind, decode_batch, encode_control_batch

from .world import SMALL, World

ACKED = 100
EAGER = msgspec.structs.replace(SMALL, clean_gain_bytes_min=1, clean_merge_bytes=1500, clean_active_bytes=2000)


class Fold:
    """Which messages were acknowledged, as of an offset; it is the log's retainer too."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.acked: set[int] = set()
        self.messages: set[int] = set()
        self.end_offset = 0
        self.limit_offset: int | None = None

    # The retainer.

    def limit(self) -> Offset:
        return self.log.durable_offset if self.limit_offset is None else Offset(self.limit_offset)

    def live_count(self, start: Offset, end: Offset) -> int:
        return len(self.live_offsets(start, end))

    def live_offsets(self, start: Offset, end: Offset) -> Sequence[int]:
        return [offset for offset in sorted(self.messages - self.acked) if start <= offset < end]

    # The fold.

    def apply(self, batch: memoryview) -> None:
        header = read_header(batch)
        for record in decode_batch(batch):
            if header.is_control:
                assert control_kind(record) == ACKED
                self.acked |= set(msgspec.json.decode(record.value or b"", type=list[int]))
            else:
                self.messages.add(record.offset)
        self.end_offset = header.next_offset

    def snapshot(self) -> Sequence[Snapshot]:
        state = (sorted(self.acked), sorted(self.messages))
        return (Snapshot("fold", self.end_offset, msgspec.json.encode(state)),)

    def attach(self) -> "Fold":
        self.log.retainer = self
        self.log.take_snapshots = self.snapshot
        return self


def ack(world: World, fold: Fold, offsets: Iterable[int], index: int = 0) -> None:
    """Write a control entry that acknowledges messages."""
    value = msgspec.json.encode(sorted(offsets))
    data = memoryview(encode_control_batch(ACKED, value, timestamp_ms=world.clock.wall_ms()))
    log = world.log(index)
    base = log.end_offset
    log.append([Incoming(read_header(data), data)], epoch=world.epoch, now_ms=world.clock.wall_ms())
    world.store.committer.commit(log, base, [data], len(data))
    fold.apply(data)


def send(world: World, fold: Fold, values: Sequence[bytes], index: int = 0) -> Offset:
    base = world.append(index, values)
    log = world.log(index)
    fold.messages |= set(range(base, log.end_offset))
    fold.end_offset = log.end_offset
    return base


async def restored(world: World, index: int = 0) -> Fold:
    """The fold as a new process has it: from its snapshot and what the log holds after that."""
    log = world.log(index)
    fold = Fold(log)
    found = list(snapshots.load(log.disk, f"{log.directory}/{FOLDS_DIRECTORY}", "fold", upto=log.end_offset))
    if found:
        acked, messages = msgspec.json.decode(found[0].data, type=tuple[list[int], list[int]])
        fold.acked, fold.messages, fold.end_offset = set(acked), set(messages), found[0].offset
    assert fold.end_offset >= log.cleaned_offset, "entries were cleaned away that no snapshot covers"
    offset = Offset(max(fold.end_offset, log.start_offset))
    while offset < log.end_offset:
        part = await world.store.read(log.read(offset, bytes_max=1000, upto=log.end_offset))
        for batch in batches_of(part.data):
            if read_header(batch).base_offset >= fold.end_offset:
                fold.apply(batch)
        offset = part.next_offset
    fold.end_offset = log.end_offset
    return fold


def batches_of(data: bytes | bytearray | memoryview) -> Iterable[memoryview]:
    view = memoryview(data)
    while len(view):
        size = read_header(view).size
        yield view[:size]
        view = view[size:]


async def served(world: World, index: int = 0) -> dict[int, bytes]:
    """Every message that the log serves, by offset. Control entries are passed over, as clients do."""
    log = world.log(index)
    found: dict[int, bytes] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        part = await world.store.read(log.read(offset, bytes_max=700, upto=log.end_offset))
        assert len(part.data), f"nothing at {offset} below {log.end_offset}"
        for batch in batches_of(part.data):
            if not read_header(batch).is_control:
                found |= {record.offset: record.value or b"" for record in decode_batch(batch)}
        assert part.next_offset > offset
        offset = part.next_offset
    return {offset: value for offset, value in found.items() if offset >= log.start_offset}


async def clean_fully(world: World, index: int = 0) -> int:
    """Roll, checkpoint, and clean until nothing is worth it; returns how often."""
    log = world.log(index)
    await world.settle()
    if log.active.size:
        log.roll(now_ms=world.clock.wall_ms())
    await world.store.checkpoint(log)
    count = 0
    while await world.store.clean(log):
        count += 1
        assert count < 100
    return count


def config(**settings: int) -> LogConfig:
    return msgspec.structs.replace(EAGER, **settings)
