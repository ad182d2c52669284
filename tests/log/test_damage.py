"""One bit of a cleanly closed partition is wrong: an error that says where, or everything right (rows 17 and 19)."""

import asyncio
import random
from collections.abc import Iterator
from itertools import chain

import msgspec
import pytest

from headrace.log.config import LogConfig
from headrace.model.batch import BatchHeader, read_header
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Epoch, Offset
from headrace.model.topic import TopicConfig
from headrace.testing.disk import SimulatedDisk

from .world import DIRECTORY, World, check_promises, disk_of, partition_id, run, successor

CONFIG = LogConfig(journal_bytes=2048, journal_append_bytes_max=500, disk_reserve_bytes=0, open_files_max=8)
TOPIC_CONFIG = TopicConfig(segment_bytes_max=300, index_interval_bytes=90, retention_ms=-1)
BATCHES = 8


def world_on(disk: SimulatedDisk) -> World:
    return World(disk, {partition_id(0): TOPIC_CONFIG}, CONFIG)


class Image:
    """The files of a partition that was stopped cleanly, and what it served."""

    def __init__(self) -> None:
        async def make() -> None:
            world = world_on(SimulatedDisk())
            await world.start()
            for number in range(BATCHES):
                # Two epochs, and times that go up and down.
                if number == BATCHES // 2:
                    await world.restart()
                world.append(0, [b"value %d" % number] * (1 + number % 2), timestamp_ms=1000 * (number ^ 1))
                await world.settle()
            await world.store.stop()
            self.files = world.disk.files()
            await world.start()
            self.content = await world.read_bytes()
            self.times = [await first_at(world, time_ms) for time_ms in range(0, 9000, 500)]
            world.abandon()

        asyncio.run(make())
        self.directory = world_on(SimulatedDisk()).directory()
        self.logs = sorted(path for path in self.files if path.endswith(".log"))

    def flipped(self, path: str, bit: int) -> SimulatedDisk:
        data = bytearray(self.files[path])
        data[bit // 8] ^= 1 << bit % 8
        return disk_of({**self.files, path: bytes(data)})

    def headers(self, path: str) -> Iterator[tuple[int, BatchHeader]]:
        position = 0
        while position < len(self.files[path]):
            header = read_header(self.files[path], position)
            yield position, header
            position += header.size


async def first_at(world: World, time_ms: int) -> int | None:
    log = world.log()
    located = await world.store.read(log.find_time(time_ms, upto=log.end_offset))
    return located.header.base_offset if located else None


@pytest.fixture(scope="module")
def image() -> Image:
    return Image()


def test_the_image_has_every_kind_of_file(image: Image) -> None:
    assert len(image.logs) >= 3
    names = {path.rpartition("/")[2].rpartition(".")[2] for path in image.files}
    assert names == {"log", "index", "timeindex", "checkpoint", "journal", "journal-files", "clean-shutdown", "made"}


def test_a_flipped_bit_in_a_log_is_told_with_file_position_expected_and_found(image: Image) -> None:
    async def main() -> None:
        for path in image.logs:
            starts = list(image.headers(path))
            for bit in range(len(image.files[path]) * 8):
                position, header = max(pair for pair in starts if pair[0] <= bit // 8)
                world = world_on(image.flipped(path, bit))
                await world.start()
                assert world.store.refused == {}
                await check_reads_of_damaged(world, image, path, position, header)
                world.abandon()

    run(main())


async def check_reads_of_damaged(world: World, image: Image, path: str, position: int, header: BatchHeader) -> None:
    """Every read either gives what was written or names the damage; the damaged batch itself is never given."""
    log = world.log()
    damaged = Offset(header.base_offset)
    with pytest.raises(CorruptLogError) as caught:
        await world.store.read(log.read(damaged, bytes_max=1, upto=log.end_offset))
    error = caught.value
    assert error.file == path
    assert position <= error.position < position + header.size
    assert error.expected != error.found
    for offset in range(log.end_offset):
        try:
            part = await world.store.read(log.read(Offset(offset), bytes_max=150, upto=log.end_offset))
        except CorruptLogError:
            continue
        assert bytes(part.data) in image.content
        assert not offset <= damaged < part.next_offset
    for time_ms, expected in list(zip(range(0, 9000, 500), image.times, strict=True))[::5]:
        try:
            found_at = await first_at(world, time_ms)
        except CorruptLogError:
            continue
        # A header's time is checked with the batch when that is read, which whoever looks a time up does next.
        assert found_at in (expected, damaged) or damaged < (expected or 0) or header.max_timestamp_ms >= time_ms


def test_a_flipped_bit_in_any_other_file_costs_nothing(image: Image) -> None:
    async def main() -> None:
        for path in sorted(set(image.files) - set(image.logs)):
            bits: Iterator[int] | range = range(len(image.files[path]) * 8)
            if path.endswith(".journal"):
                # All of the header, and a sample of the records, which are void after a clean stop.
                bits = chain(range(24 * 8), range(512 * 8, len(image.files[path]) * 8, 101))
            for bit in bits:
                world = world_on(image.flipped(path, bit))
                await world.start()
                await check_whole(world, image, f"{path} bit {bit}")
                world.abandon()

    run(main())


async def check_whole(world: World, image: Image, what: str) -> None:
    assert world.store.refused == {}, what
    assert await world.read_bytes() == image.content, what
    assert [await first_at(world, time_ms) for time_ms in range(0, 9000, 500)] == image.times, what


@pytest.mark.parametrize(
    "suffix", [".index", ".timeindex", "checkpoint", ".journal", "journal-files", "clean-shutdown", "made"]
)
def test_a_file_that_can_be_made_anew_may_be_cut_anywhere_or_be_missing(image: Image, suffix: str) -> None:
    async def main() -> None:
        for path in [path for path in image.files if path.endswith(suffix)]:
            lost = dict(image.files)
            del lost[path]
            world = world_on(disk_of(lost))
            await world.start()
            await check_whole(world, image, f"{path} deleted")
            world.epoch = Epoch(9)
            world.append(0, [b"goes on"])
            await world.settle()
            await world.restart()
            assert (await world.read_bytes())[: len(image.content)] == image.content
            world.abandon()
            sizes = range(0, len(image.files[path]), 1 if suffix != ".journal" else 61)
            for size in sizes:
                world = world_on(disk_of({**image.files, path: image.files[path][:size]}))
                await world.start()
                await check_whole(world, image, f"{path} cut to {size}")
                world.abandon()

    run(main())


def test_all_caches_may_be_missing_at_once(image: Image) -> None:
    async def main() -> None:
        kept = {path: data for path, data in image.files.items() if path.endswith((".log", "checkpoint"))}
        world = world_on(disk_of(kept))
        await world.start()
        await check_whole(world, image, "only logs and checkpoint")
        world.abandon()
        world = world_on(disk_of({path: data for path, data in image.files.items() if path.endswith(".log")}))
        await world.start()
        await check_whole(world, image, "only logs")
        world.abandon()

    run(main())


def test_a_log_that_became_shorter_below_the_recovery_point_is_never_taken_for_a_shorter_log(image: Image) -> None:
    async def main() -> None:
        for path in image.logs:
            for size in range(len(image.files[path])):
                world = world_on(disk_of({**image.files, path: image.files[path][:size]}))
                await world.start()
                if path == image.logs[-1]:
                    (refused,) = world.store.refused.values()
                    assert isinstance(refused, CorruptLogError)
                    assert (refused.file, refused.expected) == (path, "bytes that were synced")
                else:
                    await check_nothing_is_passed_over(world, image, path)
                world.abandon()

    run(main())


@pytest.mark.parametrize("was_stopped", [True, False])
def test_a_log_that_is_missing_is_told_at_the_start(image: Image, was_stopped: bool) -> None:
    async def main() -> None:
        for path in image.logs:
            files = dict(image.files)
            del files[path]
            if not was_stopped:
                del files[f"{DIRECTORY}/clean-shutdown"]
            world = world_on(disk_of(files))
            await world.start()
            (refused,) = world.store.refused.values()
            assert isinstance(refused, CorruptLogError)
            assert (refused.file, refused.found) == (path, "no file")
            world.abandon()

    run(main())


async def killed(*, journalled: bool) -> World:
    """A partition of six segments that was killed before its first checkpoint. Its last messages are synced."""
    world = world_on(SimulatedDisk())
    await world.start()
    for number in range(6):
        world.append(0, [b"%d" % number * (400 if journalled else 600)])
        await world.settle()
    if journalled:
        await world.store.committer.flush(world.log())
    world.abandon()
    assert len(world.log().segments) == 6
    assert not world.log().saved.recovery_point
    return world


@pytest.mark.parametrize("journalled", [False, True])
@pytest.mark.parametrize("lost", range(6))
def test_a_log_without_a_checkpoint_of_its_own_misses_each_segment_that_was_synced(lost: int, journalled: bool) -> None:
    async def main() -> None:
        world = await killed(journalled=journalled)
        path = world.log().segments[lost].path
        for seed in range(4):
            disk = world.disk.copy()
            if seed:
                disk.crash(random.Random(seed))
            whole = successor(world, disk.copy())
            await whole.start()
            await check_promises(whole)
            whole.abandon()
            disk.remove(path)
            heir = successor(world, disk)
            await heir.start()
            (refused,) = heir.store.refused.values()
            assert isinstance(refused, CorruptLogError)
            assert (refused.file, refused.found) == (path, "no file")
            heir.abandon()

    run(main())


def test_a_segment_that_became_shorter_before_a_synced_one_is_damage_and_nothing_is_cut() -> None:
    async def main() -> None:
        world = await killed(journalled=False)
        for segment in world.log().segments[:-1]:
            for size in (0, 1, 100, len(world.disk.files()[segment.path]) - 1):
                disk = world.disk.copy()
                disk.overwrite(segment.path, disk.files()[segment.path][:size])
                before = {path: data for path, data in disk.files().items() if path.endswith(".log")}
                heir = successor(world, disk)
                await heir.start()
                (refused,) = heir.store.refused.values()
                assert isinstance(refused, CorruptLogError)
                assert refused.file == segment.path
                assert {path: data for path, data in disk.files().items() if path.endswith(".log")} == before
                heir.abandon()

    run(main())


def test_a_checkpoint_that_is_missing_is_told_where_it_alone_knows_what_retention_took() -> None:
    async def main() -> None:
        world = world_on(SimulatedDisk())
        world.configs = {partition_id(0): msgspec.structs.replace(TOPIC_CONFIG, retention_bytes=700)}
        await world.start()
        for number in range(8):
            world.append(0, [b"%d" % number * 400])
            await world.settle()
        await world.store.checkpoint(world.log())
        await world.store.maintain(world.log(), floor=world.log().durable_offset)
        assert world.log().start_offset > 0
        await world.store.stop()
        path = f"{world.directory()}/checkpoint"
        world.disk.remove(path)
        await world.start()
        (refused,) = world.store.refused.values()
        assert isinstance(refused, CorruptLogError)
        assert (refused.file, refused.found) == (path, "no file")
        assert "put an empty file in its place" in str(refused)
        world.abandon()
        world.disk.open(path, create=True)
        await world.start()
        assert world.store.refused == {}
        await check_promises(world)
        world.abandon()

    run(main())


async def check_nothing_is_passed_over(world: World, image: Image, path: str) -> None:
    with pytest.raises(CorruptLogError) as caught:
        await world.read_bytes()
    assert caught.value.file == path
    log = world.log()
    for offset in range(log.end_offset):
        try:
            part = await world.store.read(log.read(Offset(offset), bytes_max=150, upto=log.end_offset))
        except CorruptLogError:
            continue
        first, expected = read_header(part.data), read_header(image.content, image.content.find(part.data))
        assert first == expected
        assert first.base_offset <= offset, "the next batch was given for one that is gone"


def test_a_damaged_checkpoint_makes_the_whole_partition_be_read_and_damage_in_it_be_found(image: Image) -> None:
    async def main() -> None:
        first = image.logs[0]
        damaged = bytearray(image.files[first])
        damaged[70] ^= 1
        checkpoint = f"{image.directory}/checkpoint"
        world = world_on(disk_of({**image.files, first: bytes(damaged), checkpoint: b"garbage"}))
        await world.start()
        (refused,) = world.store.refused.values()
        assert isinstance(refused, CorruptLogError)
        assert (refused.file, refused.what) == (first, "CRC-32C")
        assert world.disk.files()[first] == bytes(damaged), "nothing was cut"
        world.abandon()

    run(main())


def test_a_refused_partition_leaves_the_others_alone() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        world = World(disk, {partition_id(0): TOPIC_CONFIG, partition_id(1): TOPIC_CONFIG}, CONFIG)
        await world.start()
        for index in (0, 1):
            for number in range(6):
                world.append(index, [b"%d" % number * 30])
                await world.settle()
        await world.store.stop()
        last = max(path for path in disk.files() if path.startswith(world.directory(0)) and path.endswith(".log"))
        disk.overwrite(last, b"")
        await world.start()
        assert set(world.store.refused) == {partition_id(0)}
        assert len(await world.read_all(1)) == 6
        world.append(1, [b"more"])
        await world.settle()
        await world.restart()
        assert set(world.store.refused) == {partition_id(0)}
        assert len(await world.read_all(1)) == 7
        assert f"{DIRECTORY}/clean-shutdown" not in disk.files(), "a node with a refused partition never stops cleanly"
        world.abandon()

    run(main())
