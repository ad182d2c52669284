"""A partition whose files are lost is told from one that never had any: the first is refused, the second is made."""

import errno
import random

import pytest

from headrace.model.errors import CorruptLogError, DiskFullError, PartitionOfflineError
from headrace.testing.disk import SimulatedDisk

from .world import DIRECTORY, World, check_promises, partition_id, run, successor, topic_config

ROOT = f"{DIRECTORY}/partitions"


async def filled(*, count: int = 2) -> World:
    world = World(SimulatedDisk(), {partition_id(index): topic_config() for index in range(count)})
    await world.start()
    for index in range(count):
        world.append(index, [b"precious"])
    await world.settle()
    return world


@pytest.mark.parametrize("was_stopped", [True, False])
def test_a_partition_whose_files_are_lost_is_refused_and_served_again_when_they_are_back(was_stopped: bool) -> None:
    async def main() -> None:
        world = await filled()
        if was_stopped:
            await world.store.stop()
        else:
            world.abandon()
        world.disk.rename(world.directory(0), "/elsewhere")
        for _ in range(2):
            await world.start()
            (refused,) = world.store.refused.items()
            assert refused[0] == partition_id(0)
            assert isinstance(refused[1], PartitionOfflineError)
            assert f"{world.directory(0)} is missing" in str(refused[1])
            assert not world.disk.exists(world.directory(0)), "nothing is made in its place"
            assert set((await world.read_all(1)).values()) == {b"precious"}
            await world.store.stop()
        world.disk.rename("/elsewhere", world.directory(0))
        await world.start()
        assert world.store.refused == {}
        assert await world.read_all(0) == {0: b"precious"}
        world.abandon()

    run(main())


def test_a_lost_folder_of_all_partitions_is_not_made_anew() -> None:
    async def main() -> None:
        world = await filled()
        await world.store.stop()
        world.disk.rename(ROOT, "/elsewhere")
        await world.start()
        assert set(world.store.refused) == {partition_id(0), partition_id(1)}
        assert not world.disk.exists(ROOT), "whoever puts it back must not find another in its place"
        await world.store.create({partition_id(2): topic_config()})
        world.abandon()
        world.disk.crash(random.Random(1))
        assert world.disk.exists(world.directory(2)), "a new partition is durable all the same"

    run(main())


def test_a_partition_whose_folder_is_left_empty_is_refused() -> None:
    async def main() -> None:
        world = await filled()
        world.abandon()
        for path in world.disk.files():
            if path.startswith(world.directory(0)):
                world.disk.remove(path)
        await world.start()
        assert isinstance(world.store.refused[partition_id(0)], CorruptLogError)
        world.abandon()

    run(main())


def test_a_lost_partition_can_be_deleted() -> None:
    async def main() -> None:
        world = await filled()
        await world.store.stop()
        world.disk.remove_tree(world.directory(0))
        await world.start()
        await world.store.delete(partition_id(0))
        assert world.store.refused == {}
        del world.configs[partition_id(0)]
        await world.restart()
        assert world.store.refused == {}
        world.abandon()

    run(main())


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_at_any_call_of_the_making_leaves_a_partition_that_is_completed(seed: int) -> None:
    async def main() -> None:
        world = await filled()
        images: list[SimulatedDisk] = []
        world.disk.on_call = lambda operation, path: images.append(world.disk.copy())
        await world.store.create({partition_id(2): topic_config()})
        world.disk.on_call = None
        world.abandon()
        world.configs[partition_id(2)] = topic_config()
        world.sent[partition_id(2)], world.promised_end[partition_id(2)] = {}, 0
        assert len(images) > 5
        for number, image in enumerate([*images, world.disk]):
            image.crash(random.Random(seed * 1000 + number))
            heir = successor(world, image)
            await heir.start()
            assert heir.store.refused == {}
            await check_promises(heir)
            heir.abandon()
            image.crash(random.Random(seed))
            image.remove_tree(heir.directory(2))
            await heir.start()
            assert set(heir.store.refused) == {partition_id(2)}, "from then on it was made"
            heir.abandon()

    run(main())


@pytest.mark.parametrize("operation", ["pwritev", "fdatasync"])
def test_a_partition_that_a_full_disk_kept_from_being_made_is_made_later(operation: str) -> None:
    async def main() -> None:
        world = await filled()
        world.disk.fail(operation, error=errno.ENOSPC, path_part="/made")  # type: ignore[arg-type]
        with pytest.raises(DiskFullError, match="Free disk space"):
            await world.store.create({partition_id(2): topic_config()})
        world.disk.heal()
        for index in (2, 3):
            await world.store.create({partition_id(index): topic_config()})
            world.configs[partition_id(index)] = topic_config()
        world.abandon()
        world.disk.crash(random.Random(1))
        for index in range(4):
            world.disk.remove_tree(world.directory(index))
        await world.start()
        assert set(world.store.refused) == {partition_id(index) for index in range(4)}
        world.abandon()

    run(main())


def test_partitions_of_an_older_node_are_written_down_at_its_next_start() -> None:
    async def main() -> None:
        world = await filled()
        await world.store.stop()
        world.disk.remove(f"{DIRECTORY}/made")
        await world.start()
        await world.store.stop()
        world.disk.remove_tree(world.directory(0))
        await world.start()
        assert set(world.store.refused) == {partition_id(0)}
        world.abandon()

    run(main())


@pytest.mark.parametrize("was_stopped", [True, False])
def test_without_the_list_a_partition_that_is_missing_is_refused_and_not_made_anew(was_stopped: bool) -> None:
    async def main() -> None:
        world = await filled()
        if was_stopped:
            await world.store.stop()
        else:
            world.abandon()
        world.disk.remove(f"{DIRECTORY}/made")
        world.disk.rename(world.directory(0), "/elsewhere")
        for _ in range(2):
            await world.start()
            assert set(world.store.refused) == {partition_id(0)}
            assert set((await world.read_all(1)).values()) == {b"precious"}
            await world.store.create({partition_id(2): topic_config()})
            assert world.log(2).end_offset == 0, "what is new now is made"
            await world.store.delete(partition_id(2))
            world.abandon()
        world.disk.rename("/elsewhere", world.directory(0))
        await world.start()
        assert world.store.refused == {}
        world.abandon()

    run(main())
