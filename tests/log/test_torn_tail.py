"""What a crash left at the end of a log is cut, and only there (row 16)."""

import pytest

from headrace.model.batch import HEADER_SIZE
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset
from headrace.model.topic import TopicConfig
from headrace.testing.disk import SimulatedDisk

from .world import SMALL, World, disk_of, partition_id, run

CONFIGS = {partition_id(0): TopicConfig(segment_bytes_max=700, index_interval_bytes=100, retention_ms=-1)}


class Crashed:
    """Files of a node that was killed: some batches below the recovery point, some above, the last one last."""

    def __init__(self, *, after_checkpoint: int = 2) -> None:
        self.after_checkpoint = after_checkpoint

    async def make(self) -> None:
        world = World(SimulatedDisk(), CONFIGS)
        await world.start()
        for number in range(3):
            world.append(0, [b"below %d" % number] * 2)
            await world.settle()
        await world.store.checkpoint(world.log())
        self.recovery_point = world.log().end_offset
        for number in range(self.after_checkpoint):
            self.path, self.last_position = world.log().active.path, world.log().active.size
            self.last_offset = world.append(0, [b"above %d" % number, b"more"])
            await world.settle()
        self.end_offset = world.log().end_offset
        self.content = await world.read_bytes()
        self.files = world.disk.files()
        self.world = world
        world.abandon()

    def without_journal(self) -> dict[str, bytes]:
        """As an operator leaves it who gives up what was in the journal."""
        return {path + ".lost" if path.endswith(".journal") else path: data for path, data in self.files.items()}

    async def opened(self, files: dict[str, bytes]) -> World:
        world = World(disk_of(files), CONFIGS)
        world.epoch = self.world.epoch
        await world.start()
        return world


async def check_ends_before_last(crashed: Crashed, world: World) -> None:
    """All but the last batch is served, nothing of the last, and the log goes on."""
    log = world.log()
    whole = crashed.content[: len(crashed.content) - (len(crashed.files[crashed.path]) - crashed.last_position)]
    assert (log.end_offset, log.durable_offset) == (crashed.last_offset, crashed.last_offset)
    assert await world.read_bytes() == whole
    assert len(world.disk.files()[log.active.path]) == log.active.size, "the torn bytes are gone from the file"
    assert world.append(0, [b"goes on"]) == crashed.last_offset
    await world.settle()
    await world.restart()
    assert world.log().end_offset == crashed.last_offset + 1
    assert (await world.read_bytes())[: len(whole)] == whole
    world.abandon()


def test_a_last_batch_cut_at_any_byte_is_as_if_it_had_never_been_sent() -> None:
    async def main() -> None:
        crashed = Crashed()
        await crashed.make()
        data = crashed.files[crashed.path]
        for size in range(crashed.last_position, len(data)):
            world = await crashed.opened({**crashed.without_journal(), crashed.path: data[:size]})
            assert world.log().was_torn == (size > crashed.last_position)
            assert not world.log().was_clean
            await check_ends_before_last(crashed, world)

    run(main())


def test_a_last_batch_with_any_byte_lost_to_zeros_is_cut() -> None:
    async def main() -> None:
        crashed = Crashed()
        await crashed.make()
        data = crashed.files[crashed.path]
        for position in range(crashed.last_position, len(data)):
            torn = data[:position] + bytes(len(data) - position)
            if torn == data:
                continue
            # Zeros may also stand after the end: a file's size can reach the device before its bytes.
            world = await crashed.opened({**crashed.without_journal(), crashed.path: torn + bytes(position % 3 * 50)})
            assert world.log().was_torn
            await check_ends_before_last(crashed, world)

    run(main())


def test_a_flipped_bit_above_the_recovery_point_is_a_torn_tail() -> None:
    async def main() -> None:
        crashed = Crashed()
        await crashed.make()
        data = crashed.files[crashed.path]
        checked = [*range(12), *range(16, len(data) - crashed.last_position)]  # all but the leader epoch
        for position in checked:
            torn = bytearray(data)
            torn[crashed.last_position + position] ^= 1 << position % 8
            world = await crashed.opened({**crashed.without_journal(), crashed.path: bytes(torn)})
            await check_ends_before_last(crashed, world)

    run(main())


def test_the_journal_puts_back_what_a_crash_tore_off() -> None:
    async def main() -> None:
        crashed = Crashed()
        await crashed.make()
        data = crashed.files[crashed.path]
        for size in range(crashed.last_position, len(data), 3):
            world = await crashed.opened({**crashed.files, crashed.path: data[:size]})
            assert world.log().end_offset == crashed.end_offset
            assert await world.read_bytes() == crashed.content
            world.abandon()

    run(main())


def test_segments_after_a_torn_one_are_moved_away() -> None:
    async def main() -> None:
        crashed = Crashed(after_checkpoint=20)
        await crashed.make()
        logs = sorted(path for path in crashed.files if path.endswith(".log"))
        assert len(logs) >= 3
        torn = logs[1]
        files = {**crashed.without_journal(), torn: crashed.files[torn][:-1]}
        world = await crashed.opened(files)
        assert sorted(path for path in world.disk.files() if path in logs) == logs[:2]
        assert world.log().was_torn
        content = await world.read_bytes()
        assert crashed.content.startswith(content)
        assert world.log().end_offset < int(logs[2].rpartition("/")[2].removesuffix(".log"))
        world.append(0, [b"goes on"] * 5)
        await world.settle()
        await world.restart()
        assert (await world.read_bytes()).startswith(content)
        world.abandon()

    run(main())


def test_damage_below_the_recovery_point_is_never_cut_after_a_crash_either() -> None:
    async def main() -> None:
        crashed = Crashed()
        await crashed.make()
        data = bytearray(crashed.files[crashed.path])
        data[HEADER_SIZE + 3] ^= 1
        world = await crashed.opened({**crashed.files, crashed.path: bytes(data)})
        assert world.log().end_offset == crashed.end_offset
        with pytest.raises(CorruptLogError) as caught:
            await world.store.read(world.log().read(Offset(0), bytes_max=100, upto=Offset(1)))
        assert (caught.value.file, caught.value.position, caught.value.what) == (crashed.path, 0, "CRC-32C")
        above = await world.store.read(
            world.log().read(crashed.recovery_point, bytes_max=1000, upto=crashed.end_offset)
        )
        assert bytes(above.data) in crashed.content
        assert above.next_offset == crashed.end_offset
        world.abandon()

    run(main())


def test_bytes_that_were_synced_and_are_missing_make_the_partition_refuse() -> None:
    async def main() -> None:
        crashed = Crashed(after_checkpoint=0)
        crashed.after_checkpoint = 1
        await crashed.make()
        world = await crashed.opened({**crashed.without_journal(), crashed.path: crashed.files[crashed.path][:100]})
        (error,) = world.store.refused.values()
        assert isinstance(error, CorruptLogError)
        assert (error.expected, error.found) == ("bytes that were synced", "a file of 100 bytes")
        assert world.disk.files()[crashed.path] == crashed.files[crashed.path][:100], "it is left as it is"
        world.abandon()

    run(main())


def test_a_log_that_ends_before_its_records_in_the_journal_begin_is_damaged_and_stays_as_it_is() -> None:
    configs = {partition_id(0): TopicConfig(retention_ms=-1)}

    async def opened(files: dict[str, bytes]) -> World:
        world = World(disk_of(files), configs)
        await world.start()
        return world

    async def main() -> None:
        world = await opened({})
        world.append(0, [b"first"])
        await world.settle()
        path, cut_at, cut_offset = world.log().active.path, world.log().active.size, world.log().end_offset
        # The journal lacks this one, which is too large for it, and has the next.
        world.append(0, [b"l" * SMALL.journal_append_bytes_max])
        await world.settle()
        kept_offset = world.append(0, [b"last"])
        await world.settle()
        whole = world.disk.files()
        world.abandon()
        harmed = whole[path][: cut_at + 1]
        damaged = await opened({**whole, path: harmed})
        refused = damaged.store.refused[partition_id(0)]
        assert isinstance(refused, CorruptLogError)
        assert (refused.file, refused.position) == (path, cut_at)
        assert f"offset {kept_offset}" in str(refused)
        assert damaged.disk.files()[path] == harmed, "what is left can be mended"
        damaged.abandon()
        mended = await opened({**damaged.disk.files(), path: whole[path]})
        assert await mended.read_all(0) == world.sent[partition_id(0)]
        mended.abandon()
        given_up = await opened({**damaged.disk.files(), path + ".lost": b""})
        assert given_up.log().end_offset == cut_offset
        assert path + ".lost" not in given_up.disk.files(), "it is given up once"
        given_up.abandon()

    run(main())
