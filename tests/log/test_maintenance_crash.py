"""The process or the power ends at any disk call while cleaning, retention and compaction run together.

Each start afterwards opens every partition, has all that retention did not take, and leaves no file behind.
"""

import asyncio
import os
import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from headrace.model.topic import COMPACT_AND_DELETE
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .cleaning import EAGER, Fold, ack, send, served
from .compacting import attach, compact_config
from .world import World, make_batch, partition_id, run, successor, topic_config

AGE_MS = 60_000
LIVE = {3, 17, 18, 40}
QUEUE, TABLE, STREAM = range(3)
KEYS = 7
COUNT = 50


class Image(NamedTuple):
    """A disk as a crash finds it, and how far retention had come in memory."""

    disk: SimulatedDisk
    starts: tuple[int, ...]


async def filled(*, is_kept: bool = False) -> tuple[World, Sequence[HeldThreads]]:
    """A queue that is mostly acknowledged, a compacted topic with an age and a stream with an age, all of it old."""
    age_ms = -1 if is_kept else AGE_MS
    configs = {
        partition_id(QUEUE): topic_config(retention_ms=age_ms),
        partition_id(TABLE): compact_config(
            cleanup_policy=COMPACT_AND_DELETE, retention_ms=age_ms, segment_bytes_max=4096
        ),
        partition_id(STREAM): topic_config(retention_ms=age_ms),
    }
    world = World(SimulatedDisk(), configs, EAGER)
    await world.start()
    fold = Fold(world.log(QUEUE)).attach()
    attach(world.log(TABLE))
    for number in range(COUNT):
        send(world, fold, [b"%d." % number + b"x" * 300], QUEUE)
        put_key(world, number)
        world.append(STREAM, [b"%d." % number + b"x" * 300])
        await world.settle()
        world.clock.jump_wall(1000)
    ack(world, fold, fold.messages - LIVE, QUEUE)
    await world.settle()
    for log in world.store.logs.values():
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
    held = (HeldThreads(), HeldThreads())
    store = world.store
    store._sync_threads = store.cleaner._sync_threads = held[0]
    store._read_threads = store.cleaner._threads = store.cleaner._compactor._threads = held[1]
    return world, held


def put_key(world: World, number: int) -> None:
    log = world.log(TABLE)
    value = b"%d." % number + b"x" * 300
    batch = make_batch([value], timestamp_ms=world.clock.wall_ms(), key=b"k%d" % (number % KEYS))
    (base,) = log.append([batch], epoch=world.epoch, now_ms=world.clock.wall_ms())
    world.sent[log.id][base] = value
    world.store.committer.commit(log, base, [batch.data], len(batch.data))


async def maintained(world: World, held: Sequence[HeldThreads], chooser: random.Random) -> None:
    """Run retention beside cleaning and compaction, with time passing, in an order that a seed decides."""
    logs = list(world.store.logs.values())

    async def keep() -> None:
        for _ in range(12):
            world.clock.jump_wall(5000)
            for log in logs:
                await world.store.maintain(log, floor=log.durable_offset)

    async def clean() -> None:
        for _ in range(6):
            for log in logs:
                await world.store.clean(log)

    tasks = [asyncio.ensure_future(keep()), asyncio.ensure_future(clean())]
    while not all(task.done() for task in tasks):
        await world.settle()
        chooser.choice(held).release(1)
        world.clock.advance(1)
    for task in tasks:
        task.result()


async def checked(heir: World, starts: Sequence[int]) -> None:
    """Compare what a start found with what must still be there."""
    assert heir.store.refused == {}
    for index, most in enumerate(starts):
        log, sent = heir.log(index), heir.sent[partition_id(index)]
        assert log.start_offset <= most
        found = await served(heir, index)
        assert found.items() <= sent.items()
        kept = set(range(log.start_offset, COUNT))
        if index == QUEUE:
            kept &= LIVE
        if index == TABLE:
            kept &= set(range(COUNT - KEYS, COUNT))
        assert kept <= set(found), f"partition {index} has lost {sorted(kept - set(found))}"
        names = [name for name in heir.disk.list_directory(heir.directory(index)) if name.endswith(".log")]
        assert len(names) == len(log.segments), f"{names} are left"


@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("seed", range(40 if os.environ.get("HEADRACE_LONG") else 2))
def test_a_crash_at_any_disk_call_of_all_maintenance_together_opens_every_partition(seed: int, is_kept: bool) -> None:
    async def main() -> None:
        chooser = random.Random(seed)
        world, held = await filled(is_kept=is_kept)
        images: list[Image] = []

        def watch(operation: str, path: str) -> None:
            starts = tuple(log.start_offset for log in world.store.logs.values())
            images.append(Image(world.disk.copy(), starts))

        world.disk.on_call = watch
        await maintained(world, held, chooser)
        world.disk.on_call = None
        world.abandon()
        assert len(images) > 100
        stats = (world.store.cleaner.cleaning.passes, world.store.cleaner.compaction.passes)
        assert is_kept <= all(stats), "nothing was cleaned or compacted"
        assert is_kept or all(log.start_offset for log in world.store.logs.values())
        for number, image in enumerate(images):
            if chooser.random() < 0.5:
                image.disk.crash(random.Random(seed * 10_000 + number))
            heir = successor(world, image.disk)
            await heir.start()
            await checked(heir, image.starts)
            heir.abandon()

    run(main())
