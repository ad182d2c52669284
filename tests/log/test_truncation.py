"""Cutting a log back: what is cut never comes back, what is below is never lost, whenever the power fails."""

import asyncio
import errno
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.snapshots import Snapshot
from headrace.model.errors import PartitionOfflineError
from headrace.model.ids import Epoch, Offset
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .world import World, check_promises, partition_id, run, successor, topic_config


async def filled(*, batches: int = 20, size: int = 400, records: int = 2) -> World:
    world = World(SimulatedDisk(), {partition_id(0): topic_config()})
    await world.start()
    for number in range(batches):
        world.append(0, [b"%d.%d" % (number, at) + b"x" * size for at in range(records)])
        await world.settle()
    return world


def note_cut(world: World, end: int) -> None:
    """What was cut is promised no longer and must not be served."""
    id = partition_id(0)
    world.promised_end[id] = min(world.promised_end[id], end)
    world.sent[id] = {offset: value for offset, value in world.sent[id].items() if offset < end}


async def cut(world: World, offset: int) -> None:
    await world.store.truncate(world.log(), Offset(offset))
    note_cut(world, world.log().end_offset)


def test_a_log_is_cut_at_the_start_of_the_batch_that_holds_an_offset() -> None:
    async def main() -> None:
        for offset in range(41):
            world = await filled()
            assert len(world.log().segments) > 3
            await cut(world, offset)
            log = world.log()
            assert (log.end_offset, log.durable_offset) == (offset - offset % 2, offset - offset % 2)
            await check_promises(world)
            assert world.append(0, [b"after", b"the cut"]) == log.end_offset - 2
            await world.settle()
            await check_promises(world)
            await world.restart()
            await check_promises(world)
            assert not world.log().was_torn
            world.abandon()

    run(main())


def test_epochs_and_snapshots_of_what_was_cut_go_with_it() -> None:
    async def main() -> None:
        world = await filled(batches=3)
        world.epoch = Epoch(8)
        world.append(0, [b"of epoch 8"])
        await world.settle()
        log = world.log()
        log.take_snapshots = lambda: (Snapshot("fold", log.end_offset, b"state"),)
        await world.store.checkpoint(log)
        assert log.epochs.latest == 8
        assert any(path.endswith(".snapshot") for path in world.disk.files())
        await cut(world, 4)
        assert log.epochs.latest == 1
        assert not any(path.endswith(".snapshot") for path in world.disk.files())
        world.abandon()
        world.disk.crash(random.Random(1))
        heir = successor(world, world.disk)
        await heir.start()
        assert heir.log().epochs.entries == [(1, 0)]
        heir.abandon()

    run(main())


@pytest.mark.parametrize("offset", [0, 3, 18, 30, 39])
def test_whenever_power_fails_during_a_cut_nothing_below_it_is_lost(offset: int) -> None:
    async def main() -> None:
        call = 0
        while True:
            call += 1
            world = await filled()
            images: list[SimulatedDisk] = []
            left = [call]

            def count(operation: str, path: str, world: World = world, left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] == 0:
                    images.append(world.disk.copy())  # noqa: B023

            world.disk.on_call = count
            before = dict(world.sent[partition_id(0)])
            await cut(world, offset)
            world.disk.on_call = None
            world.abandon()
            if not images:
                break
            images[0].crash(random.Random(call))
            heir = successor(world, images[0])
            heir.sent[partition_id(0)] = before  # it may or may not have been cut
            await heir.start()
            assert heir.store.refused == {}
            await check_promises(heir)
            heir.abandon()
        assert call > 10

    run(main())


actions = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([0, 30, 200, 700, 1600])),
        st.tuples(st.just("append"), st.integers(1, 3), st.sampled_from([0, 30, 200, 700, 1600])),
        st.tuples(st.just("cut"), st.integers(0, 60), st.just(0)),
        st.tuples(st.sampled_from(["settle", "checkpoint", "write_back", "restart", "crash"]), st.just(0), st.just(0)),
    ),
    min_size=4,
    max_size=40,
)


@settings(max_examples=300, deadline=None)
@given(actions=actions, seed=st.integers(0, 2**32))
def test_logs_that_are_cut_and_written_again_keep_every_promise(actions: list[tuple[str, int, int]], seed: int) -> None:
    async def main() -> None:
        chooser = random.Random(seed)
        world = World(SimulatedDisk(), {partition_id(0): topic_config()})
        await world.start()
        number = 0
        for kind, first, second in [*actions, ("crash", 0, 0)]:
            match kind:
                case "append":
                    number += 1
                    # Of a new leader, as after every cut: entries tell whose they are.
                    world.append(0, [b"%d.%d" % (number, at) + b"x" * second for at in range(first)])
                case "cut":
                    await cut(world, first)
                    world.epoch = Epoch(world.epoch + 1)
                case "settle":
                    await world.settle()
                case "checkpoint":
                    await world.store.checkpoint(world.log())
                case "write_back":
                    world.disk.write_back(chooser)
                case "restart":
                    await world.settle()
                    await world.restart()
                case "crash":
                    await world.settle()
                    world.abandon()
                    world.disk.crash(chooser)
                    world = successor(world, world.disk)
                    await world.start()
                    assert world.store.refused == {}
                    await check_promises(world)
                    note_cut(world, world.log().end_offset)
        world.abandon()

    asyncio.run(main())


class Keep:
    """The kernel has written everything by itself."""

    def random(self) -> float:
        return 0.9

    def randint(self, a: int, b: int, /) -> int:
        return 1 if (a, b) == (0, 3) else b


class Lose:
    """Nothing that was not synced is left."""

    def random(self) -> float:
        return 0.0

    def randint(self, a: int, b: int, /) -> int:
        return a


def test_an_index_from_before_a_cut_is_not_brought_back_by_a_crash() -> None:
    # Indexes are written without a sync, so what the kernel wrote by itself before the cut may be all that is left.
    async def main() -> None:
        for offset in range(0, 24, 2):
            world = await filled(batches=12, size=120)
            await world.store.checkpoint(world.log())
            world.disk.write_back(Keep())
            world.disk.sync_directory(world.directory())
            await cut(world, offset)
            world.epoch = Epoch(world.epoch + 1)
            for number in range(30):
                world.append(0, [b"%d" % number + b"y" * 77])
                await world.settle()
            await world.store.checkpoint(world.log())
            world.append(0, [b"above the checkpoint"])
            await world.settle()
            world.abandon()
            world.disk.crash(Lose())
            heir = successor(world, world.disk)
            await heir.start()
            assert heir.store.refused == {}
            await check_promises(heir)
            for number in range(heir.log().end_offset):
                await heir.store.read(heir.log().read(Offset(number), bytes_max=1, upto=heir.log().end_offset))
            heir.abandon()

    run(main())


def test_records_of_cut_data_that_were_on_their_way_to_the_journal_are_never_replayed() -> None:
    async def main() -> None:
        for releases in range(6):
            world = await filled(batches=2, size=10)
            await world.store.checkpoint(world.log())
            held = HeldThreads()
            world.store._sync_threads = held
            world.store.committer._threads = held
            world.append(0, [b"to be cut"])
            if releases % 2:
                await world.settle()
            cutting = asyncio.ensure_future(cut(world, 4))
            for _ in range(releases):
                await world.settle()
                held.release(1)
            while not cutting.done():
                await world.settle()
                held.release()
            await cutting
            await world.settle()
            held.release()
            await world.settle()
            log = world.log()
            assert (log.end_offset, log.durable_offset, log.covered_offset) == (4, 4, 4)
            world.abandon()
            world.disk.crash(random.Random(releases))
            heir = successor(world, world.disk)
            note_cut(heir, 4)
            await heir.start()
            await check_promises(heir)
            assert heir.log().end_offset == 4
            heir.abandon()

    run(main())


@pytest.mark.parametrize("operation", ["fdatasync", "rename", "truncate", "sync_directory"])
def test_a_cut_that_the_disk_fails_breaks_the_log(operation: str) -> None:
    async def main() -> None:
        world = await filled()
        await world.store.committer.flush(world.log())
        world.disk.fail(operation, error=errno.EIO, path_part=world.directory())  # type: ignore[arg-type]
        before = dict(world.sent[partition_id(0)])
        with pytest.raises(PartitionOfflineError):
            await world.store.truncate(world.log(), Offset(6))
        with pytest.raises(PartitionOfflineError):
            world.append(0, [b"behind the cut"])
        world.abandon()
        heir = successor(world, world.disk)
        heir.sent[partition_id(0)] = before
        heir.promised_end[partition_id(0)] = 6
        await heir.start()
        await check_promises(heir)
        heir.abandon()

    run(main())
