"""One bit of a cleaned partition is wrong, or a file of it shorter or gone: it is told, or everything is right."""

import asyncio

import pytest

from headrace.log.cleaned import NAME as CLEANED_NAME
from headrace.log.config import LogConfig
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.model.topic import TopicConfig
from headrace.testing.disk import SimulatedDisk

from .cleaning import Fold, ack, clean_fully, config, send, served
from .world import World, disk_of, partition_id, run

CONFIG: LogConfig = config(journal_bytes=2048, journal_append_bytes_max=500, open_files_max=8, clean_merge_bytes=100)
TOPIC_CONFIG = TopicConfig(segment_bytes_max=500, index_interval_bytes=90, retention_ms=-1)
LIVE = {1, 6, 7, 11, 18}


def world_on(disk: SimulatedDisk) -> World:
    return World(disk, {partition_id(0): TOPIC_CONFIG}, CONFIG)


class Image:
    """The files of a cleaned partition that was stopped cleanly, and what it served."""

    def __init__(self) -> None:
        async def make() -> None:
            world = world_on(SimulatedDisk())
            await world.start()
            fold = Fold(world.log()).attach()
            for number in range(24):
                if number == 12:
                    await world.restart()
                    fold.log = world.log()
                    fold.attach()
                send(world, fold, [b"value %d" % number] * (1 + number % 2))
                await world.settle()
            ack(world, fold, fold.messages - LIVE)
            await clean_fully(world)
            send(world, fold, [b"last"])
            await world.store.stop()
            self.files = world.disk.files()
            await world.start()
            self.content = await served(world)
            self.bytes = await world.read_bytes()
            world.abandon()

        asyncio.run(make())
        directory = world_on(SimulatedDisk()).directory()
        names = sorted(path for path in self.files if path.startswith(directory) and path.endswith(".log"))
        self.cleaned = [path for path in names if path.rpartition("/")[2].count(".") == 2]
        self.list = f"{directory}/{CLEANED_NAME}"

    def flipped(self, path: str, bit: int) -> SimulatedDisk:
        data = bytearray(self.files[path])
        data[bit // 8] ^= 1 << bit % 8
        return disk_of({**self.files, path: bytes(data)})


@pytest.fixture(scope="module")
def image() -> Image:
    return Image()


def test_the_image_is_a_cleaned_one(image: Image) -> None:
    assert set(image.content) == {*LIVE, max(image.content)}
    assert image.cleaned
    assert sum(len(image.files[path]) for path in image.cleaned) > 300


async def reads(world: World, content: bytes) -> list[int]:
    """Read from every offset; what is given is what was there. Returns the offsets that named damage."""
    log = world.log()
    damaged = []
    for offset in range(log.start_offset, log.end_offset):
        try:
            part = await world.store.read(log.read(Offset(offset), bytes_max=150, upto=log.end_offset))
        except CorruptLogError:
            damaged.append(offset)
            continue
        assert len(part.data)
        assert bytes(part.data) in content
    return damaged


def test_a_flipped_bit_in_a_cleaned_segment_is_told(image: Image) -> None:
    async def main() -> None:
        for path in image.cleaned:
            for bit in range(0, len(image.files[path]) * 8, 7):
                world = world_on(image.flipped(path, bit))
                await world.start()
                assert world.store.refused == {}
                assert await reads(world, image.bytes), f"bit {bit} of {path} was not noticed"
                world.abandon()

    run(main())


def test_a_flipped_bit_in_the_list_of_cleaned_segments_costs_nothing(image: Image) -> None:
    async def main() -> None:
        for bit in range(0, len(image.files[image.list]) * 8, 5):
            world = world_on(image.flipped(image.list, bit))
            await world.start()
            assert world.store.refused == {}
            assert await served(world) == image.content, bit
            world.abandon()

    run(main())


def test_a_list_that_is_damaged_twice_or_gone_is_told_and_no_file_is_touched(image: Image) -> None:
    async def main() -> None:
        data = image.files[image.list]
        half = len(data) // 2
        damaged = [data[:half], b"", data[: half - 3] + b"xxx" + data[half:-3] + b"xxx"]
        disks = [disk_of({**image.files, image.list: one}) for one in damaged]
        disks.append(disk_of({path: data for path, data in image.files.items() if path != image.list}))
        for disk in disks:
            before = {path: data for path, data in disk.files().items() if "/partitions/" in path}
            world = world_on(disk)
            await world.start()
            assert isinstance(world.store.refused[partition_id(0)], CorruptLogError)
            after = {path: data for path, data in disk.files().items() if "/partitions/" in path}
            assert before == after
            world.abandon()

    run(main())


def test_a_cleaned_segment_that_became_shorter_or_is_gone_is_told(image: Image) -> None:
    async def main() -> None:
        for path in image.cleaned:
            for size in range(0, len(image.files[path]), 7):
                world = world_on(disk_of({**image.files, path: image.files[path][:size]}))
                await world.start()
                assert isinstance(world.store.refused[partition_id(0)], CorruptLogError)
                world.abandon()
        for path in image.cleaned[1:]:
            world = world_on(disk_of({name: data for name, data in image.files.items() if name != path}))
            await world.start()
            assert isinstance(world.store.refused[partition_id(0)], CorruptLogError)
            world.abandon()

    run(main())


def test_without_its_checkpoint_a_cleaned_partition_is_read_again_and_never_cut(image: Image) -> None:
    async def main() -> None:
        directory = image.list.rpartition("/")[0]
        files = {**image.files, f"{directory}/checkpoint": b"rotten"}
        world = world_on(disk_of(files))
        await world.start()
        assert world.store.refused == {}
        assert await served(world) == image.content
        world.abandon()
        path = image.cleaned[0]
        for bit in range(0, len(image.files[path]) * 8, 19):
            data = bytearray(files[path])
            data[bit // 8] ^= 1 << bit % 8
            for checkpoint in (b"rotten", None):
                kept = {name: one for name, one in files.items() if checkpoint or not name.endswith("/checkpoint")}
                world = world_on(disk_of({**kept, path: bytes(data)}))
                await world.start()
                assert isinstance(world.store.refused[partition_id(0)], CorruptLogError), bit
                world.abandon()

    run(main())


def test_damage_is_not_cleaned_into_something_that_looks_right() -> None:
    async def main() -> None:
        world = world_on(SimulatedDisk())
        await world.start()
        fold = Fold(world.log()).attach()
        for number in range(12):
            send(world, fold, [b"value %d" % number])
            await world.settle()
        ack(world, fold, fold.messages - {6})
        log = world.log()
        await world.settle()
        log.roll(now_ms=0)
        await world.store.checkpoint(log)
        segment = next(segment for segment in log.segments if segment.base_offset <= 6 < segment.next_offset)
        at = world.disk.files()[segment.path].index(b"value 6")
        world.disk.flip_bit(segment.path, at * 8)
        before = world.disk.files()[segment.path]
        with pytest.raises(CorruptLogError):
            await clean_fully(world)
        assert world.disk.files()[segment.path] == before
        assert log.broken is None
        world.abandon()

    run(main())
