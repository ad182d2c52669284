"""Reading by offset: every offset, every limit, warm and cold, whatever happened to the log meanwhile."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.epochs import EpochTable
from headrace.log.index import SparseIndex
from headrace.log.reader import Reads, Slice
from headrace.log.segment import Segment
from headrace.model.batch import read_header
from headrace.model.errors import CorruptLogError, OffsetOutOfRangeError, PartitionOfflineError
from headrace.model.ids import NO_EPOCH, Epoch, Offset
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads, InlineThreads

from .world import World, partition_id, run, topic_config

SIZES = [(1, 10), (3, 200), (1, 1300), (2, 90), (5, 20), (1, 700), (4, 300), (1, 0), (2, 1100), (1, 5)]


class Model:
    """The log as a list of batches."""

    def __init__(self, content: bytes) -> None:
        self.batches: list[tuple[int, int, bytes]] = []  # first offset, offset after the last, bytes
        position = 0
        while position < len(content):
            header = read_header(content, position)
            whole = content[position : position + header.size]
            self.batches.append((header.base_offset, header.next_offset, whole))
            position += header.size

    def from_offset(self, offset: int) -> list[tuple[int, int, bytes]]:
        return [batch for batch in self.batches if batch[1] > offset]


async def filled(rounds: int = 3) -> tuple[World, Model]:
    world = World(SimulatedDisk(), {partition_id(0): topic_config()})
    await world.start()
    for number in range(rounds):
        for count, size in SIZES:
            world.append(0, [b"%d" % number + b"x" * size] * count)
            await world.settle()
    return world, Model(await world.read_bytes())


def check_slice(
    model: Model, data: bytes, next_offset: int, offset: int, limit: int, upto: int, *, whole: bool
) -> None:
    batches = [batch for batch in model.from_offset(offset) if batch[0] < upto]
    if not batches or offset >= upto:
        assert (data, next_offset) == (b"", offset)
        return
    if len(batches[0][2]) > limit:
        expected = batches[:1] if whole else []
        assert data == b"".join(batch[2] for batch in expected)
        return
    assert len(data) <= limit
    taken = [batch for batch in batches if batch[1] <= next_offset]
    assert data == b"".join(batch[2] for batch in taken)
    assert taken, "what fits is given"
    left = batches[len(taken) :]
    same_segment = left and left[0][0] not in SEGMENT_STARTS
    if same_segment:
        assert len(data) + len(left[0][2]) > limit, "as much as fits of one segment is given"


SEGMENT_STARTS: set[int] = set()


@pytest.mark.parametrize("state", ["warm", "cold", "clean restart", "killed"])
def test_every_offset_with_every_limit_gives_whole_batches_from_the_one_that_holds_it(state: str) -> None:
    async def main() -> None:
        world, model = await filled()
        if state == "clean restart":
            await world.restart()
        elif state == "killed":
            world.abandon()
            await world.start()
        world.disk.all_cold = state == "cold"
        log = world.log()
        SEGMENT_STARTS.clear()
        SEGMENT_STARTS.update(segment.base_offset for segment in log.segments)
        assert len(SEGMENT_STARTS) > 4
        for offset in range(log.end_offset + 1):
            for limit in (0, 1, 75, 400, 1500, 100_000):
                for whole in (True, False):
                    for upto in (log.end_offset, Offset(max(offset - 1, 0)), Offset(min(offset + 3, log.end_offset))):
                        reads = log.read(Offset(offset), bytes_max=limit, upto=upto, whole_first=whole)
                        part = await world.store.read(reads)
                        check_slice(model, bytes(part.data), part.next_offset, offset, limit, upto, whole=whole)
        for outside in (-1, log.end_offset + 1):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                await world.store.read(log.read(Offset(outside), bytes_max=1, upto=log.end_offset))
            assert (caught.value.start, caught.value.end) == (0, log.end_offset)
        world.abandon()

    run(main())


def test_readers_at_the_end_see_what_is_appended_and_rolled() -> None:
    async def main() -> None:
        world, _ = await filled(rounds=1)
        log = world.log()
        offset = log.end_offset
        seen = b""
        for number in range(40):
            world.append(0, [b"%d" % number * 50] * 2)
            part = await world.store.read(log.read(offset, bytes_max=1 << 20, upto=log.end_offset))
            seen += bytes(part.data)
            offset = part.next_offset
        while offset < log.end_offset:
            part = await world.store.read(log.read(offset, bytes_max=1 << 20, upto=log.end_offset))
            seen += bytes(part.data)
            offset = part.next_offset
        content = await world.read_bytes()
        assert content.endswith(seen)
        assert len(Model(seen).batches) == 40
        world.abandon()

    run(main())


def test_many_cold_readers_of_different_segments_do_not_take_the_index_from_each_other() -> None:
    async def main() -> None:
        world, model = await filled(rounds=6)
        await world.restart()
        held = HeldThreads()
        world.store._read_threads = held
        world.disk.all_cold = True
        log = world.log()
        assert len(log.segments) > 8
        bases = [segment.base_offset for segment in log.segments]

        def begin(offset: Offset, limit: int = 1500) -> "asyncio.Task[Slice]":
            return asyncio.ensure_future(world.store.read(log.read(offset, bytes_max=limit, upto=log.end_offset)))

        for held_back in range(5):
            # One that has come some way and then waits long for the device ...
            slow = begin(bases[0])
            for _ in range(held_back):
                await world.settle()
                held.release(1)
            await world.settle()
            world.store._read_threads = InlineThreads()
            # ... while others come by all the other segments.
            for offset in bases[1:]:
                assert bytes((await begin(offset)).data).startswith(model.from_offset(offset)[0][2])
            world.store._read_threads = held
            while not slow.done():
                await world.settle()
                held.release()
            assert bytes((await slow).data).startswith(model.from_offset(0)[0][2])
        world.abandon()

    run(main())


def test_a_cold_read_does_not_take_what_was_deferred_meanwhile_for_damage() -> None:
    async def main() -> None:
        for steps in range(6):
            for kind in ("offset", "time", "newest"):
                world, _ = await filled(rounds=1)
                log = world.log()
                log.raise_start(Offset(log.active.base_offset + 1))
                held = HeldThreads()
                world.store._read_threads = held
                world.disk.all_cold = True
                log.active._hints.clear()
                reads: dict[str, Reads[Any]] = {
                    "offset": log.read(log.start_offset, bytes_max=1 << 20, upto=log.end_offset),
                    "time": log.find_time(world.clock.wall_ms() + 1, upto=log.end_offset),
                    "newest": log.max_timestamp_ms(upto=Offset(log.end_offset - 1)),
                }
                reading = asyncio.ensure_future(world.store.read(reads[kind]))
                for _ in range(steps):
                    await world.settle()
                    held.release(1)
                # While the read waits for the device, something small is made durable by the journal alone.
                await world.settle()
                world.append(0, [b"deferred"])
                await world.settle()
                while not reading.done():
                    held.release()
                    await world.settle()
                assert reading.exception() is None, (kind, steps)
                world.abandon()

    run(main())


def test_a_cold_read_of_a_log_that_its_disk_fails_meanwhile_says_so_and_not_damage() -> None:
    async def main() -> None:
        world, _ = await filled(rounds=1)
        log = world.log()
        held = HeldThreads()
        world.store._read_threads = held
        world.disk.all_cold = True
        log.active._hints.clear()
        start = Offset(log.active.base_offset + 1)
        reading = asyncio.ensure_future(
            world.store.read(log.read(start, bytes_max=1 << 20, upto=log.end_offset)),
        )
        await world.settle()
        world.append(0, [b"deferred"])
        log.fail(OSError("gone"))
        while not reading.done():
            held.release()
            await world.settle()
        assert isinstance(reading.exception(), PartitionOfflineError)
        world.abandon()

    run(main())


def test_bytes_are_checked_once_and_then_believed() -> None:
    async def main() -> None:
        world, _ = await filled(rounds=1)
        await world.restart()
        log = world.log()
        path = log.segments[0].path
        await world.read_bytes()
        world.disk.flip_bit(path, 70 * 8)
        await world.store.read(log.read(Offset(0), bytes_max=100, upto=log.end_offset))
        await world.restart()
        with pytest.raises(CorruptLogError):
            await world.store.read(world.log().read(Offset(0), bytes_max=100, upto=log.end_offset))
        world.abandon()

    run(main())


@given(ranges=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=12), cut=st.integers(0, 60))
def test_ranges_that_were_checked_are_joined_and_cut(ranges: list[tuple[int, int]], cut: int) -> None:
    segment = Segment("/d", Offset(0), index=None, created_ms=0)
    known: set[int] = set()
    for start, size in ranges:
        segment.mark_verified(start, start + size)
        known.update(range(start, start + size))
    for _ in range(2):
        for start in range(0, 61, 3):
            for end in range(start + 1, 62, 4):
                assert segment.is_verified(start, end) == (set(range(start, end)) <= known)
        segment.truncate_to(cut, Offset(0))
        known = {at for at in known if at < cut}
    segment.mark_verified(cut, cut + 5)
    assert segment.is_verified(cut, cut + 5)


BATCHES = st.lists(st.tuples(st.integers(1, 5), st.integers(10, 400), st.integers(0, 50)), max_size=40)


@given(batches=BATCHES, parts=st.lists(st.integers(0, 40), max_size=4), cut=st.integers(0, 8000))
def test_an_index_never_leads_too_far_and_reads_back_as_it_was(
    batches: list[tuple[int, int, int]], parts: list[int], cut: int
) -> None:
    index = SparseIndex(300)
    files = [bytearray(), bytearray()]
    model: list[tuple[int, int, int]] = []
    offset = position = 0

    def save(sealed_at: Offset | None = None) -> None:
        blocks = index.take_unsaved(sealed_at=sealed_at)
        for file, at, data in zip(files, blocks.positions, (blocks.by_offset, blocks.by_time), strict=True):
            file[at:] = data

    for number, (count, size, time_ms) in enumerate(batches):
        index.add(Offset(offset), position, time_ms)
        model.append((offset, position, time_ms))
        offset, position = offset + count, position + size
        if number in parts:
            save()
    save(sealed_at=Offset(offset))
    loaded = SparseIndex.load(bytes(files[0]), bytes(files[1]), interval_bytes=300, position_max=position)
    assert (len(loaded), loaded.sealed_at, loaded.max_timestamp_ms) == (len(index), offset, index.max_timestamp_ms)
    for one in (index, loaded):
        for wanted in range(offset):
            entry = one.floor(Offset(wanted))
            assert entry is not None
            assert (entry.offset, entry.position) in [(o, p) for o, p, _ in model]
            assert entry.offset <= wanted
        for time_ms in range(51):
            entry = one.before_time(time_ms)
            if entry is not None:
                assert all(t < time_ms for _, p, t in model if p < entry.position)
    index.truncate_to(cut)
    assert all(p < cut for _, p, _ in [index.last or (0, -1, 0)])
    true_max = max((t for _, p, t in model if p < cut), default=-1)
    assert index.max_timestamp_ms >= true_max


@given(
    entries=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9)), max_size=12),
    cut=st.integers(0, 60),
    start=st.integers(0, 60),
)
def test_epochs_answer_like_the_list_of_entries_does(entries: list[tuple[int, int]], cut: int, start: int) -> None:
    table = EpochTable()
    model: list[int] = []  # epoch of each offset
    epoch = 0
    for rise, count in entries:
        epoch += rise
        table.assign(Epoch(epoch), Offset(len(model)))
        model += [epoch] * count
    model = model[:cut]
    table.truncate_to(Offset(cut))
    end = Offset(len(model))
    table = EpochTable(table.entries)
    assert table.latest == (model[-1] if model else NO_EPOCH)
    for wanted in range(-1, epoch + 2):
        known, known_end = table.end_of(Epoch(wanted), end)
        if not model or wanted > model[-1]:
            assert (known, known_end) == (NO_EPOCH, -1)
        elif wanted < model[0]:
            assert (known, known_end) == (wanted, 0)
        else:
            assert known == max(e for e in model if e <= wanted)
            assert known_end == sum(e <= wanted for e in model)
    table.trim_to(Offset(start))
    for offset in range(start, len(model)):
        assert table.epoch_at(Offset(offset)) == model[offset]


def test_an_epoch_never_falls() -> None:
    table = EpochTable([(Epoch(3), Offset(0))])
    with pytest.raises(AssertionError):
        table.assign(Epoch(2), Offset(5))


TIMES = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=3), min_size=1, max_size=40)


@settings(max_examples=60, deadline=None)
@given(sends=TIMES, ending=st.sampled_from(["", "stop", "kill"]), start=st.integers(0, 30))
def test_a_time_leads_to_the_first_batch_with_a_message_at_or_after_it(
    sends: list[list[int]], ending: str, start: int
) -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config()})
        await world.start()
        for times_ms in sends:
            # One batch, whose largest time is what counts.
            world.append(0, [b"x" * 200] * len(times_ms), timestamp_ms=max(times_ms))
            await world.settle()
        if ending == "stop":
            await world.restart()
        elif ending == "kill":
            world.abandon()
            await world.start()
        log = world.log()
        log.raise_start(Offset(min(start, log.end_offset)))
        model = []
        offset = 0
        for times_ms in sends:
            model.append((offset, offset + len(times_ms), max(times_ms)))
            offset += len(times_ms)
        for wanted_ms in range(62):
            located = await world.store.read(log.find_time(wanted_ms, upto=log.end_offset))
            later = [first for first, end, time_ms in model if time_ms >= wanted_ms and end > log.start_offset]
            assert (located.header.base_offset if located else None) == (later[0] if later else None)
        newest = await world.store.read(log.max_timestamp_ms(upto=log.end_offset))
        assert newest == max((time_ms for _, end, time_ms in model if end > log.start_offset), default=-1)
        world.abandon()

    asyncio.run(main())
