"""The table of epochs after a crash: it speaks of the same start and end as the checkpoint that was left."""

import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from headrace.log import checkpoint as checkpoint_file
from headrace.model.ids import Epoch, Offset
from headrace.testing.disk import SimulatedDisk

from .world import World, disk_of, partition_id, run, successor, topic_config

EPOCHS = 4
BATCHES_EACH = 3


async def world_of_epochs() -> World:
    """Twelve batches of one message, three in each of four epochs, all checkpointed."""
    world = World(SimulatedDisk(), {partition_id(0): topic_config()})
    await world.start()
    for epoch in range(1, EPOCHS + 1):
        world.epoch = Epoch(epoch)
        for number in range(BATCHES_EACH):
            world.append(0, [b"%d-%d" % (epoch, number) + b"x" * 500])
            await world.settle()
    await world.store.checkpoint(world.log())
    return world


def true_epoch(offset: int) -> int:
    return 1 + offset // BATCHES_EACH


async def check_epochs(world: World) -> None:
    log = world.log()
    await world.read_all(0)
    for offset in range(log.start_offset, log.end_offset):
        assert log.epochs.epoch_at(Offset(offset)) == true_epoch(offset)


async def crash_at_every_call(change: Callable[[World], Awaitable[None]]) -> int:
    """Lose power before each disk call of a change in turn, and check what comes back."""
    call = 0
    while True:
        world = await world_of_epochs()
        disk, images = world.disk, list[SimulatedDisk]()
        left = [call]

        def before_call(
            operation: str,
            path: str,
            disk: SimulatedDisk = disk,
            images: list[SimulatedDisk] = images,
            left: list[int] = left,
        ) -> None:
            if left[0] == 0:
                images.append(disk.copy())
            left[0] -= 1

        disk.on_call = before_call
        await change(world)
        disk.on_call = None
        world.abandon()
        if not images:
            return call
        for seed in range(4):
            image = images[0].copy()
            image.crash(random.Random(seed))
            heir = successor(world, image)
            await heir.start()
            assert heir.store.refused == {}, f"call {call}"
            await check_epochs(heir)
            heir.abandon()
        call += 1


async def raise_start(world: World) -> None:
    world.log().raise_start(Offset(7))
    await world.store.checkpoint(world.log())


async def truncate(world: World) -> None:
    await world.store.truncate(world.log(), Offset(4))


@pytest.mark.parametrize("change", [raise_start, truncate])
def test_epochs_are_right_whenever_the_power_fails_while_a_log_loses_its_start_or_its_end(
    change: Callable[[World], Awaitable[None]],
) -> None:
    async def main() -> None:
        assert await crash_at_every_call(change) > 4

    run(main())


def test_a_checkpoint_that_says_nothing_of_epochs_has_them_read_from_the_batches() -> None:
    async def main() -> None:
        world = await world_of_epochs()
        await world.store.stop()
        path = f"{world.directory()}/{checkpoint_file.NAME}"
        files = world.disk.files()
        point = checkpoint_file.decode(files[path], path)
        assert point.epochs == [(1, 0), (2, 3), (3, 6), (4, 9)]
        silent = checkpoint_file.encode(msgspec.structs.replace(point, epochs=None))
        heir = successor(world, disk_of({**files, path: silent}))
        await heir.start()
        assert heir.log().epochs.entries == [(1, 0), (2, 3), (3, 6), (4, 9)]
        await check_epochs(heir)
        heir.abandon()

    run(main())
