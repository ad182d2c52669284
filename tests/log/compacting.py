"""A compacted log and, beside it, what every key was last set to."""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from headrace.folds.transaction_index import Aborted
from headrace.log.config import LogConfig
from headrace.log.partition_log import Incoming, PartitionLog
from headrace.log.snapshots import Snapshot
from headrace.model.batch import read_header
from headrace.model.ids import Offset
from headrace.model.topic import COMPACT, TopicConfig
from headrace.testing.disk import SimulatedDisk
from headrace.wire.kafka.records import Record, decode_batch, encode_batch, encode_control_batch

from .cleaning import batches_of
from .world import SMALL, World, partition_id, topic_config

ABORT, COMMIT = 0, 1
ONE_DAY_MS = 24 * 60 * 60 * 1000

Pair = tuple[bytes | None, bytes | None]


def compact_config(**settings: object) -> TopicConfig:
    config = msgspec.structs.replace(topic_config(), cleanup_policy=COMPACT, dirty_ratio_min=0.0)
    return msgspec.structs.replace(config, **settings)


def attach(log: PartitionLog) -> None:
    """Give a log a fold whose state is nothing, so that its snapshot covers everything."""
    log.take_snapshots = lambda: (Snapshot("fold", log.end_offset, b"none"),)


async def started(config: TopicConfig | None = None, log_config: LogConfig = SMALL) -> World:
    world = World(SimulatedDisk(), {partition_id(0): config or compact_config()}, log_config)
    await world.start()
    attach(world.log())
    return world


async def reopened(world: World) -> None:
    await world.restart()
    attach(world.log())


def put(
    world: World, pairs: Sequence[Pair], *, producer_id: int = -1, codec: int = 0, timestamp_ms: int | None = None
) -> Offset:
    """Append one batch, of a transaction where there is a producer. Committed when the loop has turned."""
    stamp = world.clock.wall_ms() if timestamp_ms is None else timestamp_ms
    data = encode_batch(
        [Record(stamp, key, value) for key, value in pairs],
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        is_transactional=producer_id >= 0,
    )
    return append(world, memoryview(data))


def mark(world: World, producer_id: int, kind: int) -> Offset:
    """End a producer's transaction."""
    data = encode_control_batch(
        kind,
        b"\x00\x00\x00\x00\x00\x00",
        timestamp_ms=world.clock.wall_ms(),
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
    )
    return append(world, memoryview(data))


def append(world: World, data: memoryview) -> Offset:
    log = world.log()
    (base,) = log.append([Incoming(read_header(data), data)], epoch=world.epoch, now_ms=world.clock.wall_ms())
    world.store.committer.commit(log, base, [data], len(data))
    return base


async def stored(world: World) -> dict[int, Pair]:
    """Every message that the log serves, by offset."""
    log = world.log()
    found: dict[int, Pair] = {}
    offset = log.start_offset
    while offset < log.end_offset:
        part = await world.store.read(log.read(offset, bytes_max=700, upto=log.end_offset))
        assert len(part.data), f"nothing at {offset} below {log.end_offset}"
        assert part.next_offset > offset
        for batch in batches_of(part.data):
            if not read_header(batch).is_control:
                found |= {record.offset: (record.key, record.value) for record in decode_batch(batch)}
        offset = part.next_offset
    return found


async def markers(world: World) -> list[int]:
    """The offsets of the markers that are there."""
    found = [read_header(batch) for batch in batches_of(await world.read_bytes())]
    return [header.base_offset for header in found if header.is_control]


def table(pairs: Iterable[Pair]) -> dict[bytes, bytes]:
    """What a reader from the beginning makes of messages in order."""
    rebuilt: dict[bytes, bytes] = {}
    for key, value in pairs:
        if key is None:
            continue
        if value is None:
            rebuilt.pop(key, None)
        else:
            rebuilt[key] = value
    return rebuilt


async def read_table(world: World) -> dict[bytes, bytes]:
    return table((await stored(world)).values())


async def close_segment(world: World) -> None:
    """Let everything that was written so far be compacted."""
    log = world.log()
    await world.settle()
    if log.active.size:
        log.roll(now_ms=world.clock.wall_ms())
    await world.store.checkpoint(log)


async def compact_fully(world: World) -> int:
    """Compact until nothing is due; returns the number of passes."""
    await close_segment(world)
    count = 0
    while await world.store.clean(world.log()):
        count += 1
        assert count < 100
    return count


class Index:
    """Which transactions were aborted, and how far all are decided."""

    def __init__(self, aborted: Sequence[Aborted] = (), *, last_stable_offset: int = 2**62) -> None:
        self.entries = list(aborted)
        self.last_stable_offset = Offset(last_stable_offset)

    def aborted(self, start: Offset, end: Offset) -> Sequence[Aborted]:
        return [one for one in self.entries if one.last_offset >= start and one.first_offset < end]

    def forget_aborted(self, marker_offsets: Collection[int]) -> None:
        self.entries = [one for one in self.entries if one.last_offset not in marker_offsets]
