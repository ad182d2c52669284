"""Random appends, syncs, rolls, retention and crashes against a model, on a disk that keeps any unsynced sectors."""

import asyncio
import os
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.ids import Offset
from headrace.model.topic import Durability
from headrace.testing.disk import SimulatedDisk

from .world import World, check_promises, crash_and_check, partition_id, topic_config

PARTITIONS = 3

append = st.tuples(
    st.just("append"),
    st.integers(0, PARTITIONS - 1),
    st.integers(1, 4),
    st.sampled_from([0, 10, 200, 900, 2500]),
)
other = st.tuples(
    st.sampled_from(
        ["settle", "settle", "settle", "burst", "checkpoint", "maintain", "delete", "age", "write_back", "restart"]
    ),
    st.integers(0, PARTITIONS - 1),
    st.just(0),
    st.just(0),
)
steps = st.lists(st.one_of(append, append, other), min_size=1, max_size=40)


class Run:
    """Carries out steps, and keeps an image of the disk and of the promises from one chosen disk call."""

    def __init__(self, seed: int, crash_at_call: int) -> None:
        self.chooser = random.Random(seed)
        self.counter = 0
        configs = {
            partition_id(0): topic_config(),
            partition_id(1): topic_config(retention_ms=60_000),
            partition_id(2): topic_config(Durability.MEMORY),
        }
        self.world = World(SimulatedDisk(), configs)
        self.calls_left = crash_at_call
        self.image: tuple[SimulatedDisk, dict[Any, int]] | None = None

    def arm(self) -> None:
        self.world.disk.on_call = self.before_call

    def before_call(self, operation: str, path: str) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.world.disk.on_call = None
            self.image = (self.world.disk.copy(), dict(self.world.promised_end))

    async def step(self, kind: str, index: int, count: int, size: int) -> None:
        world = self.world
        log = world.log(index)
        match kind:
            case "append":
                self.counter += 1
                world.append(index, [b"%d-%d." % (self.counter, n) + b"x" * size for n in range(count)])
            case "settle":
                await world.settle()
            case "burst":
                # Enough for the journal to go round and be written over.
                for _ in range(20):
                    await self.step("append", index, 1, 900)
                    await world.settle()
            case "checkpoint":
                await world.store.checkpoint(log)
            case "maintain":
                await world.store.maintain(log, floor=log.durable_offset)
            case "delete":
                log.raise_start(Offset(self.chooser.randint(log.start_offset, log.durable_offset)))
                await world.store.checkpoint(log)
            case "age":
                world.clock.jump_wall(40_000)
            case "write_back":
                world.disk.write_back(self.chooser)
            case "restart":
                await world.settle()
                await world.store.stop()
                await world.start()


@settings(max_examples=20_000 if os.environ.get("HEADRACE_LONG") else 600, deadline=None)
@given(steps=steps, seed=st.integers(0, 2**32), crash_at_call=st.integers(1, 400))
def test_nothing_acknowledged_is_lost_and_nothing_torn_is_served_whenever_the_power_fails(
    steps: list[tuple[str, int, int, int]], seed: int, crash_at_call: int
) -> None:
    async def run() -> None:
        run = Run(seed, crash_at_call)
        await run.world.start()
        run.arm()
        for step in steps:
            await run.step(*step)
        await check_promises(run.world)
        if run.image is None:
            run.image = (run.world.disk.copy(), dict(run.world.promised_end))
        run.world.abandon()
        disk, run.world.promised_end = run.image
        # A second life on what was left, and a second crash at its end.
        run.world = await crash_and_check(run.world, disk, run.chooser)
        for step in steps[:10]:
            await run.step(*step)
        await check_promises(run.world)
        run.world.abandon()
        last = await crash_and_check(run.world, run.world.disk, run.chooser)
        last.abandon()

    asyncio.run(run())


def test_a_clean_stop_keeps_everything_that_was_written_and_reads_no_message_at_the_next_start() -> None:
    async def run() -> None:
        world = Run(1, 0).world
        await world.start()
        for number in range(50):
            world.append(number % PARTITIONS, [b"%d" % number * 40])
        await world.store.stop()
        reads: list[str] = []
        world.disk.on_call = lambda operation, path: (
            reads.append(path) if operation == "pread" and path.endswith(".log") else None
        )
        await world.start()
        assert reads == []
        world.disk.on_call = None
        assert [world.log(index).end_offset for index in range(PARTITIONS)] == [17, 17, 16]
        await check_promises(world)
        assert not any(log.was_torn for log in world.store.logs.values())
        world.abandon()

    asyncio.run(run())
