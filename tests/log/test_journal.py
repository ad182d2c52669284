"""The node's journal: what was synced comes back, what was torn or is old does not."""

import asyncio
import os
import random
from itertools import product

import msgspec
import pytest

from headrace.host.disk import write_fully
from headrace.log.config import LogConfig
from headrace.log.journal import RECORD_HEADER_BYTES, Journal, JournalEntry, place_of
from headrace.model.errors import CorruptLogError
from headrace.model.ids import Offset, PartitionId
from headrace.testing.disk import SimulatedDisk
from headrace.testing.image import SECTOR_SIZE

from .world import DIRECTORY, World, check_promises, partition_id, run, successor, topic_config

FILE_BYTES = 16 * SECTOR_SIZE


def entry(partition: int, base_offset: int, data: bytes) -> JournalEntry:
    return JournalEntry(place_of(partition_id(partition)), Offset(base_offset), [data], len(data))


def opened(disk: SimulatedDisk) -> tuple[Journal, list[tuple[int, int, bytes]]]:
    journal = Journal(disk, "/journal", file_bytes=FILE_BYTES)
    records = journal.open()
    assert [record.sequence for record in records] == sorted({record.sequence for record in records})
    return journal, [(record.partition.partition, record.base_offset, record.batches) for record in records]


def begun(disk: SimulatedDisk, *, sequence_min: int = 0) -> Journal:
    journal, _ = opened(disk)
    journal.begin(sequence_min=sequence_min)
    return journal


def journal_files(disk: SimulatedDisk) -> list[str]:
    return sorted(path for path in disk.files() if path.endswith(".journal"))


def contents(disk: SimulatedDisk) -> list[tuple[int, int, bytes]]:
    return opened(disk.copy())[1]


def test_what_was_written_is_read_back_in_order() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.frame([entry(0, 5, b"a" * 100), entry(3, 0, b"b")]).write()
    journal.frame([entry(0, 6, b"c" * 900)]).write()
    assert contents(disk) == [(0, 5, b"a" * 100), (3, 0, b"b"), (0, 6, b"c" * 900)]
    assert opened(disk)[0].sequence == 3


def test_of_a_write_that_was_torn_in_any_way_only_a_beginning_comes_back() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    whole = [(0, 0, b"first" * 30)]
    journal.frame([entry(*whole[0])]).write()
    (path,) = [path for path, data in disk.files().items() if b"first" in data]
    before = disk.files()[path]
    torn = [(1, 0, b"x" * 700), (2, 0, b"y" * 900), (3, 0, b"z" * 400)]
    journal.frame([entry(*one) for one in torn]).write()
    after = disk.files()[path]
    sectors = [at for at in range(0, FILE_BYTES, SECTOR_SIZE) if before[at:][:SECTOR_SIZE] != after[at:][:SECTOR_SIZE]]
    assert len(sectors) >= 5
    for kept in product([False, True], repeat=len(sectors)):
        image = bytearray(before)
        for at, keep in zip(sectors, kept, strict=True):
            if keep:
                image[at : at + SECTOR_SIZE] = after[at : at + SECTOR_SIZE]
        twin = disk.copy()
        twin.overwrite(path, bytes(image))
        assert opened(twin.copy())[0].find_damage() is None, "what was torn is no damage"
        found = contents(twin)
        assert found[: len(whole)] == whole, "what was synced before is there"
        assert found == (whole + torn)[: len(found)]
        assert len(found) == 4 or not all(kept)


def test_a_record_cut_at_any_byte_or_with_any_bit_wrong_does_not_come_back() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.frame([entry(0, 0, b"first")]).write()
    journal.frame([entry(0, 1, b"second")]).write()
    (path,) = [path for path, data in disk.files().items() if b"first" in data]
    data = disk.files()[path]
    start = data.index(b"second") - RECORD_HEADER_BYTES
    for bit in range(start * 8, (start + RECORD_HEADER_BYTES + 6) * 8):
        twin = disk.copy()
        twin.flip_bit(path, bit)
        assert contents(twin) == [(0, 0, b"first")]
    for size in range(start, start + RECORD_HEADER_BYTES + 6):
        twin = disk.copy()
        twin.overwrite(path, data[:size])
        assert contents(twin) == [(0, 0, b"first")]


def test_a_flipped_bit_in_what_a_later_write_has_proved_durable_is_told_as_damage() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.frame([entry(0, 0, b"first"), entry(1, 0, b"beside")]).write()
    journal.frame([entry(0, 1, b"second")]).write()
    journal.frame([entry(0, 2, b"last")]).write()
    (path,) = [path for path, data in disk.files().items() if b"first" in data]
    data = disk.files()[path]
    last = data.index(b"last") - RECORD_HEADER_BYTES
    assert opened(disk.copy())[0].find_damage() is None
    for bit in (*range(24 * 8), *range(SECTOR_SIZE * 8, (last + RECORD_HEADER_BYTES + 4) * 8)):
        twin = disk.copy()
        twin.flip_bit(path, bit)
        damage = opened(twin)[0].find_damage()
        # Of the last write nobody can tell whether it was torn.
        assert (damage is None) == (bit // 8 >= last), bit
        if damage is not None:
            assert damage.file == path
            assert damage.position <= bit // 8
            assert damage.expected != damage.found


def test_records_of_an_earlier_use_of_a_file_never_come_back() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    for number in range(5):
        journal.frame([entry(0, number, b"%d" % number * 100)]).write()
    journal = begun(disk)
    assert contents(disk) == []
    # Of the same size and at the same place as the old ones: those behind it look as if they followed.
    journal.frame([entry(0, 5, b"5" * 100)]).write()
    assert contents(disk) == [(0, 5, b"5" * 100)]
    assert opened(disk.copy())[0].find_damage() is None
    journal.clear()
    assert contents(disk) == []


def test_the_files_are_used_in_turn_and_only_a_released_one_is_written_over() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    size = RECORD_HEADER_BYTES + 2000
    expected: list[tuple[int, int, bytes]] = []

    def fill(first: int) -> None:
        number = first
        while journal.has_room(size):
            expected.append((0, number, bytes([number]) * 2000))
            journal.frame([entry(*expected[-1])]).write()
            number += 1

    fill(0)
    assert journal.can_switch()
    full = journal.switch()
    fill(50)
    assert contents(disk) == expected, "both files, the older first"
    assert not journal.can_switch()
    journal.release(full)
    assert journal.can_switch()
    journal.switch()
    expected = [one for one in expected if one[1] >= 50]
    assert contents(disk) == expected


def test_a_retired_file_is_kept_and_another_takes_its_turn() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.frame([entry(0, 0, b"needed")]).write()
    kept = journal.switch()
    journal.retire(kept)
    for number in range(1, 8):
        assert journal.can_switch()
        journal.frame([entry(0, number, b"later")]).write()
        journal.release(journal.switch())
    assert contents(disk)[0] == (0, 0, b"needed")
    assert len([path for path in disk.files() if path.endswith(".journal")]) == 3
    begun(disk)
    assert len([path for path in disk.files() if path.endswith(".journal")]) == 2
    assert contents(disk) == []


def test_sequences_never_begin_again() -> None:
    disk = SimulatedDisk()
    journal = begun(disk)
    journal.frame([entry(0, number, b"x") for number in range(3)]).write()
    journal = begun(disk)
    assert journal.sequence == 3
    journal.frame([entry(0, 0, b"x")]).write()
    journal = begun(disk, sequence_min=70)
    journal.frame([entry(0, 0, b"x")]).write()
    assert journal.sequence == 71
    empty = begun(SimulatedDisk(), sequence_min=70)
    empty.frame([entry(0, 0, b"x")]).write()
    assert empty.sequence == 71


def test_a_file_of_another_size_is_brought_to_the_configured_one() -> None:
    disk = SimulatedDisk()
    begun(disk)
    (first, second) = journal_files(disk)
    disk.overwrite(first, disk.files()[first][:1000])
    file = disk.open(second)
    write_fully(file, [bytes(5000)], FILE_BYTES)
    begun(disk)
    assert {len(disk.files()[path]) for path in journal_files(disk)} == {FILE_BYTES}


def test_more_partitions_than_fit_one_write_are_several_writes() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(60)})
        await world.start()
        for index in range(60):
            world.append(index, [b"x" * 400])
        await world.settle()
        assert set(world.promised_end.values()) == {1}
        assert world.store.committer.stats.journal_syncs > 4, "and the journal went round"
        world.abandon()
        world.disk.crash(random.Random(1))
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_with_both_files_full_appends_wait_and_none_is_lost() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config(), partition_id(1): topic_config()})
        await world.start()
        lock = world.store.committer.lock(world.log(0))
        await lock.acquire()  # so that nothing of this partition can be synced behind
        for _ in range(100):
            world.append(0, [b"x" * 400])
            world.append(1, [b"x" * 400])
            await world.settle()
        stuck = dict(world.promised_end)
        assert stuck[partition_id(1)] < 100, "the journal is full"
        assert world.log(1).end_offset == 100
        lock.release()
        for _ in range(20):
            await world.settle()
        assert set(world.promised_end.values()) == {100}
        world.abandon()
        world.disk.crash(random.Random(2))
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_the_journal_is_kept_for_a_partition_that_refused_to_open_until_it_is_repaired() -> None:
    async def main() -> None:
        for seed in range(6):
            world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in (0, 1)})
            await world.start()
            for index in (0, 1):
                world.append(index, [b"below the recovery point"])
            await world.settle()
            await world.store.checkpoint(world.log(0))
            for number in range(5):
                world.append(0, [b"in the journal %d" % number])
                world.append(1, [b"in the journal %d" % number])
                await world.settle()
            path = world.log(0).active.path
            world.abandon()
            world.disk.crash(random.Random(seed))
            good = world.disk.files()[path]
            world.disk.overwrite(path, b"")
            refusing = successor(world, world.disk)
            await refusing.start()
            assert isinstance(refusing.store.refused[partition_id(0)], CorruptLogError)
            for _ in range(40):  # enough for the journal to go round twice
                refusing.append(1, [b"x" * 900])
                await refusing.settle()
            refusing.abandon()
            world.disk.crash(random.Random(seed))
            await refusing.start()  # once more, still damaged
            assert set(refusing.store.refused) == {partition_id(0)}
            refusing.abandon()
            world.disk.overwrite(path, good)
            repaired = successor(refusing, world.disk)
            await repaired.start()
            await check_promises(repaired)
            assert repaired.log(0).end_offset == 6
            repaired.abandon()

    run(main())


def test_replaying_twice_is_replaying_once() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config()})
        await world.start()
        for number in range(8):
            world.append(0, [b"%d" % number * 100])
            await world.settle()
        world.abandon()
        world.disk.crash(random.Random(3))
        files: list[bytes] = []
        for _ in range(2):
            # A crash at the very end of the replay, before the journal is void.
            world.disk.fail("fdatasync", path_part=".journal", times=-1)
            heir = successor(world, world.disk)
            start = asyncio.gather(heir.start(), return_exceptions=True)
            assert isinstance((await start)[0], OSError)
            world.disk.heal()
            files.append(world.disk.files()[f"{heir.directory()}/{0:020d}.log"])
        assert files[0] == files[1]
        heir = successor(world, world.disk)
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())


def test_a_partition_that_is_not_in_the_metadata_keeps_what_was_acknowledged_to_it() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in (0, 1)})
        await world.start()
        for _ in range(3):
            world.append(0, [b"precious"])
            await world.settle()
        world.abandon()
        world.disk.crash(random.Random(5))
        forgetful = World(world.disk, {partition_id(1): topic_config()}, LogConfig(disk_reserve_bytes=0))
        await forgetful.start()
        forgetful.append(1, [b"voids the old journal"])
        await forgetful.settle()
        await forgetful.restart()
        forgetful.abandon()
        world.disk.crash(random.Random(5))
        heir = successor(world, world.disk)
        await heir.start()
        assert list((await heir.read_all(0)).values()) == [b"precious"] * 3
        heir.abandon()

    run(main())


def test_a_node_does_not_start_without_what_a_damaged_journal_held() -> None:
    async def main() -> None:
        disk = SimulatedDisk()
        world = World(disk, {partition_id(0): topic_config()})
        await world.start()
        for number in range(5):
            world.append(0, [b"value %d" % number])
            await world.settle()
        assert world.promised_end[partition_id(0)] == 5
        world.abandon()
        (path,) = [path for path, data in disk.files().items() if path.endswith(".journal") and b"value 1" in data]
        place = disk.files()[path].index(b"value 1")
        disk.flip_bit(path, place * 8)
        heir = successor(world, disk)
        with pytest.raises(CorruptLogError, match=r"rename it to /data/journal/.*lost to start without them") as caught:
            await heir.start()
        assert caught.value.file == path
        assert caught.value.position <= place
        # Repaired, it has everything that was promised.
        disk.flip_bit(path, place * 8)
        heir = successor(world, disk)
        await heir.start()
        await check_promises(heir)
        # After a clean stop nothing of the journal counts, and damage in it costs nothing.
        await heir.store.stop()
        disk.flip_bit(path, place * 8)
        last = successor(heir, disk)
        await last.start()
        await check_promises(last)
        last.abandon()

    run(main())


def test_the_journal_stays_as_small_as_it_was_made_however_much_goes_through_it() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in (0, 1)})
        await world.start()

        def sizes() -> list[int]:
            return [len(data) for path, data in sorted(world.disk.files().items()) if path.endswith(".journal")]

        before = sizes()
        for _ in range(200):
            world.append(0, [b"x" * 900])
            await world.settle()
        assert world.store.committer.stats.journal_bytes > 5 * sum(before)
        assert sizes() == before
        world.abandon()

    run(main())


def _zeros(data: bytes) -> bytes:
    return bytes(len(data))


async def killed_with_promises() -> World:
    """A node whose journal alone holds what it promised last."""
    world = World(SimulatedDisk(), {partition_id(0): topic_config()})
    await world.start()
    for number in range(5):
        world.append(0, [b"value %d" % number])
        await world.settle()
    assert world.promised_end[partition_id(0)] == 5
    world.abandon()
    world.disk.crash(random.Random(1))
    return world


@pytest.mark.parametrize(
    "loss", ["one file", "all files", "the folder", "the folder and the list", "half a file", "all in it", "its bytes"]
)
def test_a_node_does_not_start_without_a_journal_file_that_it_had(loss: str) -> None:
    async def main() -> None:
        world = await killed_with_promises()
        disk = world.disk
        paths = [path for path in journal_files(disk) if b"value 1" in disk.files()[path]]
        harms = {"half a file": lambda data: data[: 8 * 1024], "all in it": lambda _: b"", "its bytes": _zeros}
        if loss in harms:
            disk.overwrite(paths[0], harms[loss](disk.files()[paths[0]]))
        elif loss == "one file":
            disk.rename(paths[0], "/elsewhere")
        else:
            paths = journal_files(disk)
            for path in paths:
                disk.remove(path)
            if loss != "all files":
                disk.remove_tree(f"{DIRECTORY}/journal")
            if loss == "the folder and the list":
                disk.remove(f"{DIRECTORY}/journal-files")
        for _ in range(2):
            heir = successor(world, disk)
            with pytest.raises(CorruptLogError, match="lost to start without them") as caught:
                await heir.start()
            assert caught.value.file == paths[0]
            found = {"half a file": "8192 bytes", "all in it": "0 bytes", "its bytes": "00" * 24}
            assert caught.value.found == found.get(loss, "no file")
        if loss == "one file":
            disk.rename("/elsewhere", paths[0])
            heir = successor(world, disk)
            await heir.start()
            await check_promises(heir)
        else:
            for path in paths:
                if disk.exists(path):
                    disk.rename(path, path + ".lost")
                else:
                    disk.make_directory(f"{DIRECTORY}/journal")
                    disk.open(path + ".lost", create=True)
            heir = successor(world, disk)
            await heir.start()
            assert heir.log().end_offset == 0, "this is what was given up"
            assert not any(path.endswith(".lost") for path in disk.files()), "it is given up once"
        await heir.restart()
        heir.abandon()

    run(main())


def test_after_a_clean_stop_a_journal_may_be_missing_also_where_the_next_start_is_cut_short() -> None:
    async def main() -> None:
        world = await killed_with_promises()
        await world.start()
        await world.store.stop()
        for path in journal_files(world.disk):
            world.disk.remove(path)
        images: list[SimulatedDisk] = []
        world.disk.on_call = lambda operation, path: images.append(world.disk.copy())
        await world.start()
        await check_promises(world)
        world.abandon()
        for number, image in enumerate(images):
            image.crash(random.Random(number))
            heir = successor(world, image)
            await heir.start()
            await check_promises(heir)
            heir.abandon()

    run(main())


@pytest.mark.parametrize("seed", range(40 if os.environ.get("HEADRACE_LONG") else 3))
def test_no_crash_makes_a_start_miss_a_journal_file(seed: int) -> None:
    """Over starts with other sizes of the journal, a partition that is refused meanwhile, and kills at any call."""

    async def main() -> None:
        chooser = random.Random(seed)
        world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in (0, 1)})
        images: list[tuple[SimulatedDisk, dict[PartitionId, int]]] = []

        def watch(operation: str, path: str) -> None:
            images.append((world.disk.copy(), dict(world.promised_end)))

        damaged: dict[str, bytes] = {}
        for turn in range(4):
            size = chooser.choice([8, 16, 24]) * 1024
            world.config = msgspec.structs.replace(world.config, journal_bytes=size)
            world.disk.on_call = watch
            await world.start()
            for _ in range(20):
                for index in (0, 1):
                    if partition_id(index) in world.store.logs:
                        world.append(index, [b"x" * chooser.randint(1, 900)])
                await world.settle()
            world.disk.on_call = None
            world.abandon()
            for path, data in damaged.items():
                world.disk.overwrite(path, data)
            damaged = {}
            if turn == 1:  # its journal files are kept at the next start, beside new ones
                path = world.log(1).active.path
                damaged = {path: world.disk.files()[path]}
                world.disk.overwrite(path, b"")
        for image, promised in chooser.sample(images, 150):
            if chooser.random() < 0.5:
                image.crash(chooser)
            heir = successor(world, image)
            heir.promised_end = promised
            await heir.start()
            heir.abandon()

    run(main())
