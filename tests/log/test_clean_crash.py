"""The power fails at any call of a cleaning, twice: nothing live is missing, nothing is torn, no fold forgets."""

import asyncio
import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.cleaned import NAME as CLEANED_NAME
from headrace.model.ids import Offset
from headrace.testing.disk import SimulatedDisk

from .cleaning import EAGER, Fold, ack, restored, send, served
from .world import World, partition_id, run, successor, topic_config

step = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 4), st.sampled_from([10, 300, 900, 2500])),
    st.tuples(st.just("send"), st.integers(1, 4), st.sampled_from([10, 300, 900, 2500])),
    st.tuples(st.just("ack"), st.integers(1, 10), st.just(0)),
    st.tuples(st.just("ack"), st.integers(5, 10), st.just(0)),
    st.tuples(
        st.sampled_from(["checkpoint", "maintain", "clean", "clean", "clean", "lag", "write_back", "restart", "roll"]),
        st.just(0),
        st.just(0),
    ),
)
steps = st.lists(step, min_size=4, max_size=40)


class Run:
    def __init__(self, seed: int, crash_at_call: int) -> None:
        self.chooser = random.Random(seed)
        self.world = World(SimulatedDisk(), {partition_id(0): topic_config()}, EAGER)
        self.calls_left = crash_at_call
        self.image: tuple[SimulatedDisk, int] | None = None
        # Every acknowledgement ever written, by the offset of its entry.
        self.entries: dict[int, set[int]] = {}
        self.lags = False

    async def start(self) -> None:
        await self.world.start()
        self.take_over(await restored(self.world))

    def take_over(self, fold: Fold) -> None:
        self.fold = fold
        log = fold.log
        log.retainer = fold
        snapshot = fold.snapshot()
        offset = fold.end_offset

        def take() -> object:
            # A fold that only takes what is committed lies behind the log's end.
            nonlocal snapshot, offset
            if not self.lags:
                snapshot, offset = fold.snapshot(), fold.end_offset
            return snapshot

        log.take_snapshots = take  # type: ignore[assignment]

    def promised(self) -> int:
        """All below this offset is durable."""
        return self.world.promised_end[partition_id(0)]

    def before_call(self, operation: str, path: str) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.world.disk.on_call = None
            self.image = (self.world.disk.copy(), self.promised())

    async def step(self, kind: str, count: int, size: int) -> None:
        world, log = self.world, self.world.log()
        match kind:
            case "send":
                number = len(world.sent[partition_id(0)])
                send(world, self.fold, [b"%d-%d." % (number, n) + b"x" * size for n in range(count)])
            case "ack":
                live = sorted(o for o in self.fold.messages - self.fold.acked if o < log.durable_offset)
                chosen = set(self.chooser.sample(live, len(live) * count // 10))
                if chosen:
                    await world.settle()
                    self.entries[log.end_offset] = chosen
                    ack(world, self.fold, chosen)
            case "checkpoint":
                await world.store.checkpoint(log)
            case "maintain":
                await world.store.maintain(log, floor=log.durable_offset)
            case "clean":
                await world.settle()
                await world.store.maintain(log, floor=log.durable_offset)
                await world.store.clean(log)
            case "roll":
                await world.settle()
                if log.active.size:
                    log.roll(now_ms=world.clock.wall_ms())
                await world.store.checkpoint(log)
                await world.store.clean(log)
            case "lag":
                self.lags = not self.lags
            case "write_back":
                world.disk.write_back(self.chooser)
            case "restart":
                await world.settle()
                self.lags = False
                await world.store.stop()
                await self.start()
        await world.settle()

    async def check(self, promised: int) -> dict[int, bytes]:
        world, log = self.world, self.world.log()
        assert world.store.refused == {}
        assert log.end_offset >= promised
        found = await served(world)
        sent = world.sent[partition_id(0)]
        for offset, value in found.items():
            assert sent.get(offset) == value, f"{offset} serves what was never sent there"
        fold = await restored(world)
        # The fold is what its entries make it, up to the log's end, whether or not the entries are still there.
        acked = {offset for entry, offsets in self.entries.items() if entry < log.end_offset for offset in offsets}
        assert fold.acked == acked
        missing = {offset for offset in sent if offset < log.end_offset} - acked - set(found)
        assert not missing, f"live messages are gone: {sorted(missing)}"
        names = [name for name in world.disk.list_directory(world.directory()) if name.endswith(".log")]
        assert len(names) == len(log.segments), f"{names} are left"
        return found

    async def crash(self, disk: SimulatedDisk, promised: int) -> None:
        """Crash, recover twice, and go on with the second process."""
        if self.chooser.random() < 0.7:
            disk.crash(self.chooser)
        self.world.promised_end[partition_id(0)] = promised
        contents = []
        for _ in range(2):
            self.world = successor(self.world, disk)
            await self.world.start()
            contents.append((self.world.log().start_offset, await self.check(promised)))
            end = self.world.log().end_offset
            self.world.abandon()
            disk.crash(self.chooser)
        assert contents[0] == contents[1], "recovery twice is not once"
        self.world = successor(self.world, disk)
        id = partition_id(0)
        self.world.sent[id] = {offset: value for offset, value in self.world.sent[id].items() if offset < end}
        self.entries = {entry: offsets for entry, offsets in self.entries.items() if entry < end}
        self.lags = False
        await self.start()


@settings(max_examples=10_000 if os.environ.get("HEADRACE_LONG") else 400, deadline=None)
@given(steps=steps, seed=st.integers(0, 2**32), crash_at_call=st.integers(1, 700))
def test_nothing_live_is_lost_and_no_fold_forgets_whenever_the_power_fails(
    steps: list[tuple[str, int, int]], seed: int, crash_at_call: int
) -> None:
    async def main() -> None:
        run = Run(seed, crash_at_call)
        await run.start()
        run.world.disk.on_call = run.before_call
        for one in steps:
            await run.step(*one)
        run.world.disk.on_call = None
        await run.check(run.promised())
        image = run.image or (run.world.disk.copy(), run.promised())
        run.world.abandon()
        await run.crash(*image)
        for one in steps[:10]:
            await run.step(*one)
        await run.check(run.promised())
        run.world.abandon()
        await run.crash(run.world.disk, run.promised())
        run.world.abandon()

    asyncio.run(main())


LIVE = {3, 17, 18, 40}


# With these, the first segment is not worth it and stays as it is.
LIVE_FIRST = {*range(12), 17, 18, 40}


async def prepared(live: set[int] = LIVE) -> tuple[World, Fold]:
    world = World(SimulatedDisk(), {partition_id(0): topic_config()}, EAGER)
    await world.start()
    fold = Fold(world.log()).attach()
    for number in range(50):
        send(world, fold, [b"%d." % number + b"x" * 300])
        await world.settle()
    ack(world, fold, fold.messages - live)
    await world.settle()
    world.log().roll(now_ms=0)
    await world.store.checkpoint(world.log())
    return world, fold


@pytest.mark.parametrize("seed", range(4))
def test_a_crash_at_each_call_of_one_cleaning_leaves_the_old_segments_or_the_new_one(seed: int) -> None:
    async def main() -> None:
        world, _ = await prepared()
        images: list[SimulatedDisk] = []
        world.disk.on_call = lambda operation, path: images.append(world.disk.copy())
        assert await world.store.clean(world.log())
        world.disk.on_call = None
        world.abandon()
        assert len(images) > 30
        expected = {offset: value for offset, value in world.sent[partition_id(0)].items() if offset in LIVE}
        sizes = set()
        for number, image in enumerate([*images, world.disk]):
            chooser = random.Random(seed * 1000 + number)
            image.crash(chooser)
            heir = successor(world, image)
            await heir.start()
            assert heir.store.refused == {}
            found = await served(heir)
            assert set(expected.items()) <= set(found.items())
            assert len(found) in (len(expected), 50), "neither the old ones nor the new one"
            sizes.add(len(found))
            directory = [path for path in image.files() if path.startswith(heir.directory())]
            assert len([path for path in directory if path.endswith(".log")]) == len(heir.log().segments)
            heir.abandon()
        assert sizes == {len(expected), 50}

    run(main())


@pytest.mark.parametrize("seed", range(60))
def test_a_crash_while_the_list_is_replaced_finds_every_file_that_the_list_speaks_of(seed: int) -> None:
    async def main() -> None:
        world, _ = await prepared(LIVE_FIRST)
        images: list[SimulatedDisk] = []
        listed = [False]

        def watch(operation: str, path: str) -> None:
            listed[0] = listed[0] or (operation == "rename" and CLEANED_NAME in path)
            if listed[0] and operation == "sync_directory":
                images.append(world.disk.copy())

        world.disk.on_call = watch
        assert await world.store.clean(world.log())
        world.disk.on_call = None
        world.abandon()
        assert [segment.cleaned is None for segment in world.log().segments] == [True, False, True]
        image = images[0]
        image.crash(random.Random(seed))
        heir = successor(world, image)
        await heir.start()
        assert heir.store.refused == {}
        assert set(await served(heir)) in (LIVE_FIRST, set(range(50)))
        heir.abandon()

    run(main())


@pytest.mark.parametrize("operation", ["open", "pwritev", "fdatasync", "truncate", "rename", "sync_directory", "pread"])
def test_a_disk_that_fails_during_a_cleaning_loses_nothing(operation: str) -> None:
    async def main() -> None:
        failed = 0
        for nth in range(1, 30):
            world, _ = await prepared()
            log = world.log()
            world.disk.fail(operation, nth=nth)  # type: ignore[arg-type]
            try:
                await world.store.clean(log)
            except OSError:
                failed += 1
                assert log.broken is None
            world.disk.heal()
            expected = {offset: value for offset, value in world.sent[partition_id(0)].items() if offset in LIVE}
            if log.broken is None:
                assert set(expected.items()) <= set((await served(world)).items())
                send(world, log.retainer, [b"after"])  # type: ignore[arg-type]
                await world.settle()
                while await world.store.clean(log):
                    pass
            world.abandon()
            world.disk.crash(random.Random(nth))
            heir = successor(world, world.disk)
            await heir.start()
            assert heir.store.refused == {}
            assert set(expected.items()) <= set((await served(heir)).items())
            heir.abandon()
        assert failed

    run(main())


@pytest.mark.parametrize("seed", range(10))
def test_a_cleaning_whose_list_may_or_may_not_be_durable_takes_the_partition_offline(seed: int) -> None:
    async def main() -> None:
        world, _ = await prepared()
        log = world.log()
        seen: list[str] = []

        def fail_after_rename(operation: str, path: str) -> None:
            if operation == "rename" and CLEANED_NAME in path:
                world.disk.fail("sync_directory")
            seen.append(operation)

        world.disk.on_call = fail_after_rename
        assert not await world.store.clean(log)
        world.disk.on_call = None
        assert log.broken is not None
        world.abandon()
        world.disk.crash(random.Random(seed))
        heir = successor(world, world.disk)
        await heir.start()
        assert heir.store.refused == {}
        found = await served(heir)
        assert set(found) in (LIVE, set(range(50)))
        assert heir.log().end_offset == Offset(51)
        heir.abandon()

    run(main())
