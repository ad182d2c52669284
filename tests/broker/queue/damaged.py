"""Queues of which a partition is offline: its file is damaged, or its disk failed."""

from typing import Any
from zlib import crc32

import pytest
from tests.broker.node import Node
from tests.broker.queue.world import NAME, QueueWorld

from headrace.model.errors import HeadraceError, PartitionOfflineError
from headrace.model.message import Message

COUNT = 3
LOST = 1


def key_of(partition: int) -> bytes:
    """A key that lives in this partition."""
    return next(key for key in (b"k%d" % number for number in range(100)) if crc32(key) % COUNT == partition)


def files_of(world: QueueWorld, partition: int) -> dict[str, bytes]:
    directory = f"{world.node.broker.topic(NAME).id}-{partition}/"
    found = {path: data for path, data in world.node.disk.files().items() if directory in path}
    assert found
    return found


async def fill(world: QueueWorld) -> None:
    """One message in each partition."""
    for index in range(COUNT):
        await world.send(b"old %d" % index, key=key_of(index))


async def damage(world: QueueWorld, *partitions: int, is_found_at_start: bool = True) -> dict[str, bytes]:
    """Flip a bit in these partitions' segments while the node is down; returns the files of the first.

    Without snapshots the node reads everything when it starts, and else what it is asked for.
    """
    paths = [world.node.broker.partition(NAME, index).log.active.path for index in partitions]
    await world.node.queues.stop()
    await world.node.logs.stop()
    world.node.abandon()
    for path in [path for path in world.node.disk.files() if path.endswith(".snapshot")]:
        if is_found_at_start and any(path.startswith(damaged.rpartition("/")[0]) for damaged in paths):
            world.node.disk.remove(path)
    for path in paths:
        world.node.disk.flip_bit(path, 16 * 8)
    files = files_of(world, partitions[0])
    await world.node.start()
    return files


async def damaged_queue(**config: Any) -> QueueWorld:
    """One message in each partition, one of which does not open."""
    world = await QueueWorld(Node()).start(partitions=COUNT, **config)
    await fill(world)
    await damage(world, LOST)
    return world


async def broken_queue(**config: Any) -> QueueWorld:
    """The same with a disk that fails while the node runs."""
    world = await QueueWorld(Node()).start(partitions=COUNT, **config)
    await fill(world)
    await break_partition(world, LOST)
    return world


async def break_partition(world: QueueWorld, index: int) -> None:
    world.node.disk.fail("fdatasync")
    (outcome,) = await world.queues.send(NAME, [Message(b"doubtful", key=key_of(index))])
    assert isinstance(outcome, PartitionOfflineError)
    world.node.disk.heal()


def check_says_all(error: HeadraceError | None) -> None:
    """Which partition, why, and what to do."""
    assert isinstance(error, PartitionOfflineError)
    assert f"partition {LOST} of queue {NAME} is offline" in str(error)
    assert "magic expected" in str(error) or "disk failed" in str(error)
    assert "restore the file" in str(error) or "check the disk and restart" in str(error)


async def refusal(call: Any) -> HeadraceError:
    with pytest.raises(PartitionOfflineError) as caught:
        await call
    return caught.value
