"""A pass of compaction that something comes between: a stop, a truncation, retention, another reader."""

import asyncio

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.model.ids import Offset
from headrace.model.topic import COMPACT_AND_DELETE
from headrace.testing.threads import HeldThreads

from .compacting import close_segment, compact_config, compact_fully, put, read_table, reopened, started, stored, table
from .world import World, run


async def begun(config: object = None) -> tuple[World, HeldThreads, asyncio.Future[bool]]:
    """A pass over sixty messages, held before its first blocking step."""
    world = await started(config)  # type: ignore[arg-type]
    for number in range(60):
        put(world, [(b"k%d" % (number % 7), b"%d." % number + b"x" * 200)])
        await world.settle()
    await close_segment(world)
    held = HeldThreads()
    world.store.cleaner._threads = held
    world.store.cleaner._compactor._threads = held
    cleaning = asyncio.ensure_future(world.store.clean(world.log()))
    await world.settle()
    return world, held, cleaning


async def let_go(world: World, held: HeldThreads, cleaning: asyncio.Future[bool], *, steps: int = 10_000) -> None:
    while steps and not cleaning.done():
        held.release()
        await world.settle()
        steps -= 1


def names(world: World) -> list[str]:
    return [name for name in world.disk.list_directory(world.directory()) if name.endswith(".log")]


@pytest.mark.parametrize("steps", range(10))
def test_a_stop_gives_up_a_pass_and_the_next_process_does_it(steps: int) -> None:
    async def main() -> None:
        world, held, cleaning = await begun()
        expected = await read_table(world)
        await let_go(world, held, cleaning, steps=steps)
        world.store.cleaner.end()
        await let_go(world, held, cleaning)
        assert len(names(world)) == len(world.log().segments)
        await reopened(world)
        assert await read_table(world) == expected
        await compact_fully(world)
        assert len(await stored(world)) == 7
        assert await read_table(world) == expected
        world.abandon()

    run(main())


@pytest.mark.parametrize("steps", range(10))
def test_a_pass_is_given_up_when_the_log_is_cut_meanwhile(steps: int) -> None:
    async def main() -> None:
        world, held, cleaning = await begun()
        before = await stored(world)
        await let_go(world, held, cleaning, steps=steps)
        if cleaning.done():
            return
        log: PartitionLog = world.log()
        await world.store.truncate(log, Offset(55))
        for number in range(55, 58):
            put(world, [(b"k1", b"again %d" % number)])
        await let_go(world, held, cleaning)
        assert not cleaning.result()
        pairs = [pair for offset, pair in before.items() if offset < 55]
        found = await read_table(world)
        # Keys whose last message was cut had been seen by the pass; nothing else may be missing.
        expected = table([*pairs, (b"k1", b"again 57")])
        lost = {before[offset][0] for offset in range(55, 60)}
        assert {k: v for k, v in expected.items() if k not in lost} == {k: v for k, v in found.items() if k not in lost}
        world.store.cleaner._threads = world.store.cleaner._compactor._threads = world.read_threads
        await compact_fully(world)
        assert (await read_table(world))[b"k1"] == b"again 57"
        assert len(await stored(world)) <= 7
        world.abandon()

    run(main())


def test_a_pass_does_not_call_clean_what_is_written_after_a_cut() -> None:
    async def main() -> None:
        world = await started()
        for number in range(10):
            put(world, [(b"k%d" % (number % 2), b"%d" % number)])
            await world.settle()
        await close_segment(world)
        log = world.log()
        # All is replaced, and the pass waits with its last step.
        await world.store._trash_lock.acquire()
        cleaning = asyncio.ensure_future(world.store.clean(log))
        await world.settle()
        assert len(await stored(world)) == 2
        await world.store.truncate(log, Offset(8))
        world.store._trash_lock.release()
        assert not await cleaning
        for number in range(10):
            put(world, [(b"k%d" % (number % 2), b"again %d" % number)])
        await compact_fully(world)
        assert await stored(world) == {16: (b"k0", b"again 8"), 17: (b"k1", b"again 9")}
        world.abandon()

    run(main())


@pytest.mark.parametrize("steps", range(6))
def test_a_pass_is_given_up_when_retention_wants_what_it_works_on(steps: int) -> None:
    async def main() -> None:
        world, held, cleaning = await begun(compact_config(cleanup_policy=COMPACT_AND_DELETE, retention_ms=1000))
        await let_go(world, held, cleaning, steps=steps)
        if cleaning.done():
            return
        world.clock.jump_wall(5000)
        log = world.log()
        for _ in range(2):
            await world.store.maintain(log, floor=log.durable_offset)
        await let_go(world, held, cleaning)
        assert not cleaning.result()
        await world.store.maintain(log, floor=log.durable_offset)
        assert log.start_offset == 60
        assert len(names(world)) == len(log.segments)
        await reopened(world)
        assert world.store.refused == {}
        world.abandon()

    run(main())
