"""Cleaning: closed segments are rewritten with only what is live, and every reader lives with the gaps."""

import asyncio
import random

import pytest

from headrace.log.clean import CleanFacts, choose
from headrace.log.config import LogConfig
from headrace.log.replay import replay_headers
from headrace.model.errors import OffsetOutOfRangeError
from headrace.model.ids import Epoch, Offset
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

from .cleaning import Fold, ack, clean_fully, config, restored, send, served
from .world import World, partition_id, run, topic_config


async def started(**settings: int) -> tuple[World, Fold]:
    world = World(SimulatedDisk(), {partition_id(0): topic_config()}, config(**settings))
    await world.start()
    return world, Fold(world.log()).attach()


async def filled(count: int, *, live: set[int], per_batch: int = 1, size: int = 300) -> tuple[World, Fold]:
    """A log of so many messages, of which all but some were acknowledged."""
    world, fold = await started()
    for first in range(0, count, per_batch):
        send(world, fold, [b"%d." % number + b"x" * size for number in range(first, first + per_batch)])
        await world.settle()
    ack(world, fold, fold.messages - live)
    await world.settle()
    return world, fold


def expected(world: World, live: set[int]) -> dict[int, bytes]:
    return {offset: value for offset, value in world.sent[partition_id(0)].items() if offset in live}


def files(world: World, suffix: str = ".log") -> list[str]:
    return [path for path in world.disk.files() if path.startswith(world.directory()) and path.endswith(suffix)]


@pytest.mark.parametrize("per_batch", [1, 4])
def test_what_is_live_stays_at_its_offset_and_the_rest_is_gone(per_batch: int) -> None:
    async def main() -> None:
        live = {5, 6, 30, 71}
        world, _ = await filled(80, live=live, per_batch=per_batch)
        log = world.log()
        end, before = log.end_offset, log.size_bytes
        assert await clean_fully(world) >= 1
        assert log.end_offset == end
        assert log.size_bytes < before / 8
        assert await served(world) == expected(world, live)
        await world.restart()
        assert await served(world) == expected(world, live)
        assert world.store.refused == {}
        world.abandon()

    run(main())


def test_every_offset_is_read_as_the_next_batch_that_is_there() -> None:
    async def main() -> None:
        live = {5, 6, 30, 71}
        world, _ = await filled(80, live=live, per_batch=2)
        await clean_fully(world)
        for _ in range(2):
            log = world.log()
            for offset in random.Random(1).sample(range(log.start_offset, log.end_offset), 60):
                part = await world.store.read(log.read(Offset(offset), bytes_max=1, upto=log.end_offset))
                assert len(part.data), offset
                assert part.next_offset > offset
            headers = list(replay_headers(log, Offset(0)))
            bases = [header.base_offset for header in headers]
            assert bases == sorted(set(bases))
            assert [header.record_count for header in headers if not header.is_control] == [1, 1, 1, 1]
            await world.restart()
        log = world.log()
        with pytest.raises(OffsetOutOfRangeError):
            await world.store.read(log.read(Offset(log.end_offset + 1), bytes_max=1, upto=log.end_offset))
        world.abandon()

    run(main())


def test_what_is_left_of_many_segments_is_one_file_and_its_index() -> None:
    async def main() -> None:
        world, _ = await filled(200, live={50, 150})
        assert len(files(world)) > 15
        await clean_fully(world)
        assert len(files(world)) == 2, "what was cleaned, and the one that is written to"
        await world.store.checkpoint(world.log())
        assert len(files(world, ".index")) <= 2
        assert not [path for path in world.disk.files() if "/trash/" in path]
        world.abandon()

    run(main())


def test_segments_in_which_nothing_is_live_are_dropped_from_the_start() -> None:
    async def main() -> None:
        world, _ = await filled(100, live={90})
        log = world.log()
        await clean_fully(world)
        await world.store.maintain(log, floor=log.durable_offset)
        first = log.start_offset
        ack(world, log.retainer, {90})  # type: ignore[arg-type]
        await clean_fully(world)
        await world.store.maintain(log, floor=log.durable_offset)
        assert log.start_offset > first
        assert log.start_offset == log.end_offset
        assert len(files(world)) == 1
        world.abandon()

    run(main())


def test_the_segment_that_is_written_to_is_closed_once_most_of_it_is_dead() -> None:
    async def main() -> None:
        world, fold = await started()
        send(world, fold, [b"x" * 600] * 5)
        await world.settle()
        log = world.log()
        await world.store.maintain(log, floor=log.durable_offset)
        assert len(log.segments) == 1, "all of it is live"
        ack(world, fold, {0, 1, 2, 4})
        await world.settle()
        await world.store.maintain(log, floor=log.durable_offset)
        assert len(log.segments) == 2
        assert await world.store.clean(log)
        assert await served(world) == expected(world, {3})
        world.abandon()

    run(main())


def test_cleaning_happens_by_itself() -> None:
    async def main() -> None:
        world, _ = await filled(80, live={5, 70})
        before = world.log().size_bytes
        await world.clock.elapse(3 * world.config.maintenance_interval_ms)
        await world.settle()
        assert world.log().size_bytes < before / 4
        assert set(expected(world, {5, 70}).items()) <= set((await served(world)).items())
        await world.store.stop()

    run(main())


def test_nothing_at_or_above_the_limit_is_touched() -> None:
    async def main() -> None:
        world, fold = await filled(80, live=set())
        fold.limit_offset = 40
        await clean_fully(world)
        await world.store.maintain(world.log(), floor=world.log().durable_offset)
        found = await served(world)
        assert set(range(40, 80)) <= set(found)
        assert len(found) < 60
        world.abandon()

    run(main())


def test_nothing_that_no_durable_snapshot_covers_is_dropped() -> None:
    async def main() -> None:
        world, fold = await filled(80, live={3})
        log = world.log()
        state = (set(fold.acked), set(fold.messages))
        taken = fold.snapshot()[0]._replace(offset=20)
        log.take_snapshots = lambda: (taken,)
        await clean_fully(world)
        await world.store.maintain(log, floor=log.durable_offset)
        assert log.snapshot_offset == 20
        assert set(range(20, 80)) <= set(await served(world))
        log.take_snapshots = fold.snapshot
        world.disk.fail("rename", times=-1, path_part="snapshot")
        assert not await world.store.checkpoint(log)
        assert not await world.store.clean(log)
        assert set(range(20, 80)) <= set(await served(world))
        world.disk.heal()
        assert await clean_fully(world)
        assert await served(world) == expected(world, {3})
        await world.restart()
        again = await restored(world)
        assert (again.acked, again.messages) == state
        world.abandon()

    run(main())


def test_segments_that_no_durable_snapshot_covers_are_not_dropped_though_all_is_dead() -> None:
    async def main() -> None:
        world, fold = await filled(80, live=set())
        log = world.log()
        taken = fold.snapshot()[0]._replace(offset=20)
        log.take_snapshots = lambda: (taken,)
        await clean_fully(world)
        for _ in range(2):
            await world.store.maintain(log, floor=log.durable_offset)
            assert 0 < log.start_offset <= 20
            assert set(range(20, 80)) <= set(await served(world))
            await world.restart()
            log = world.log()
            fold.log, log.retainer = log, fold
            log.take_snapshots = lambda: (taken,)
        world.abandon()

    run(main())


def test_a_stop_gives_up_a_cleaning_and_nothing_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.log.rewrite._SLICE_BYTES", 1000)

    async def main() -> None:
        world, _ = await filled(40, live={5, 30})
        log = world.log()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        held = HeldThreads()
        world.store.cleaner._threads = held
        cleaning = asyncio.ensure_future(world.store.clean(log))
        await world.settle()
        held.release()
        await world.settle()
        assert not cleaning.done()
        world.store.cleaner.end()
        while not cleaning.done():
            held.release()
            await world.settle()
        assert not cleaning.result()
        assert len(files(world)) == len(log.segments)
        assert len(await served(world)) == 40
        await world.restart()
        assert len(await served(world)) == 40
        world.abandon()

    run(main())


def test_cleaning_is_given_up_when_the_log_is_cut_meanwhile() -> None:
    async def main() -> None:
        world, _ = await filled(40, live={5, 30})
        log = world.log()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        held = HeldThreads()
        world.store.cleaner._threads = held
        cleaning = asyncio.ensure_future(world.store.clean(log))
        await world.settle()
        await world.store.truncate(log, Offset(35))
        while not cleaning.done():
            held.release()
            await world.settle()
        assert not cleaning.result()
        assert sorted(await served(world)) == list(range(35))
        await world.restart()
        assert sorted(await served(world)) == list(range(35))
        world.abandon()

    run(main())


def test_a_reader_in_a_gap_waits_for_what_comes_after_it() -> None:
    async def main() -> None:
        world, fold = await filled(80, live={5})
        log = world.log()
        await clean_fully(world)
        assert log.bytes_from(Offset(50)) > 0, "the last batch stands for the log's end"
        send(world, fold, [b"new"])
        await world.settle()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        send(world, fold, [b"newer"])
        await world.settle()
        ack(world, fold, {81})
        await world.settle()
        while await world.store.clean(log):
            pass
        assert log.bytes_from(Offset(5)) > log.active.size
        assert log.bytes_from(Offset(50)) == log.active.size
        assert set(await served(world)) == {5, 82}
        world.abandon()

    run(main())


def test_the_newest_time_is_that_of_a_message_that_is_there() -> None:
    async def main() -> None:
        world, _ = await started()
        log = world.log()
        for time_ms in (1000, 9000, 3000, 2000):
            world.append(0, [b"x", b"y"], timestamp_ms=time_ms)
            await world.settle()
        for start, newest in ((0, 9000), (3, 9000), (4, 3000), (5, 3000), (6, 2000), (8, -1)):
            log.raise_start(Offset(start))
            assert await world.store.read(log.max_timestamp_ms(upto=log.end_offset)) == newest
        world.abandon()

    run(main())


def test_without_a_retainer_or_a_snapshot_nothing_is_cleaned() -> None:
    async def main() -> None:
        world, fold = await filled(80, live={3})
        log = world.log()
        log.take_snapshots = tuple
        log.retainer = fold
        assert await clean_fully(world) == 0
        log.take_snapshots = fold.snapshot
        log.retainer = None
        assert await clean_fully(world) == 0
        assert len(await served(world)) == 80
        world.abandon()

    run(main())


def test_snapshots_from_before_there_was_a_retainer_do_not_count() -> None:
    async def main() -> None:
        world, fold = await filled(80, live={3})
        log = world.log()
        log.roll(now_ms=world.clock.wall_ms())
        # Another fold's snapshot alone, as of a moment at which this one was not there yet.
        log.retainer = None
        log.take_snapshots = lambda: (fold.snapshot()[0]._replace(name="other"),)
        held = HeldThreads()
        world.store._sync_threads, threads = held, world.store._sync_threads
        checkpoint = asyncio.ensure_future(world.store.checkpoint(log))
        await world.settle()
        log.retainer = fold
        while not checkpoint.done():
            held.release()
            await world.settle()
        world.store._sync_threads = threads
        log.take_snapshots = tuple
        assert log.snapshot_offset == 0
        assert not await world.store.clean(log)
        await world.store.maintain(log, floor=log.durable_offset)
        assert len(await served(world)) == 80
        log.take_snapshots = fold.snapshot
        assert await world.store.clean(log)
        world.abandon()

    run(main())


def test_a_snapshot_is_taken_where_only_that_is_missing() -> None:
    async def main() -> None:
        world, _ = await filled(80, live={3})
        log = world.log()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        log.snapshot_offset = Offset(0)
        assert await world.store.clean(log)
        assert log.snapshot_offset == log.end_offset
        world.abandon()

    run(main())


def test_a_cleaned_segment_is_cleaned_again_when_half_of_it_has_died() -> None:
    async def main() -> None:
        world, fold = await filled(80, live=set(range(0, 80, 4)))
        log = world.log()
        await clean_fully(world)
        sizes = [log.size_bytes]
        assert not await world.store.clean(log), "what was just cleaned is not worth it"
        ack(world, fold, set(range(0, 80, 8)))
        assert await clean_fully(world) >= 1
        sizes.append(log.size_bytes)
        ack(world, fold, set(range(4, 76, 8)))
        assert await clean_fully(world) >= 1
        sizes.append(log.size_bytes)
        assert sizes[0] > sizes[1] > sizes[2]
        assert await served(world) == expected(world, {76})
        await world.restart()
        assert await served(world) == expected(world, {76})
        world.abandon()

    run(main())


def test_times_and_epochs_are_found_across_gaps() -> None:
    async def main() -> None:
        world, fold = await started()
        for number in range(60):
            if number % 20 == 10:
                await world.restart()
                fold.log = world.log()
                fold.attach()
            world.clock.jump_wall(1000)
            send(world, fold, [b"%d." % number + b"x" * 300])
            await world.settle()
        world.log().write_tail()
        times = {
            offset: header.max_timestamp_ms for offset, header in enumerate(replay_headers(world.log(), Offset(0)))
        }
        epochs = [world.log().epochs.end_of(Epoch(epoch), world.log().end_offset) for epoch in range(6)]
        ack(world, fold, fold.messages - {7, 33, 51})
        await clean_fully(world)
        for _ in range(2):
            log = world.log()
            for offset, later in ((0, 7), (7, 7), (8, 33), (33, 33), (34, 51)):
                located = await world.store.read(log.find_time(times[offset], upto=log.end_offset))
                assert located is not None
                assert located.header.base_offset == later
            assert [log.epochs.end_of(Epoch(epoch), Offset(60)) for epoch in range(6)] == epochs
            await world.restart()
        world.abandon()

    run(main())


def test_a_log_is_truncated_inside_what_was_cleaned_and_written_on() -> None:
    async def main() -> None:
        for cut in range(0, 82, 3):
            live = {5, 6, 30, 71}
            world, fold = await filled(80, live=live, per_batch=2)
            await clean_fully(world)
            log = world.log()
            await world.store.truncate(log, Offset(cut))
            assert log.end_offset <= cut
            kept = {offset: value for offset, value in expected(world, live).items() if offset < log.end_offset}
            assert set(live) - set(kept) <= set(range(cut - 1, 80))
            world.sent[partition_id(0)] = dict(kept)
            log.retainer = None
            log.take_snapshots = tuple
            for number in range(20):
                world.append(0, [b"again %d" % number + b"y" * 300])
                await world.settle()
            everything = world.sent[partition_id(0)]
            assert await served(world) == everything, cut
            await world.restart()
            assert await served(world) == everything, cut
            world.abandon()
            world.disk.crash(random.Random(cut))
            await world.start()
            assert world.store.refused == {}
            assert await served(world) == everything, cut
            fold = await restored_without_fold(world, everything)
            fold.messages = set(list(everything)[::4])
            await clean_fully(world)
            assert await served(world) == {o: v for o, v in everything.items() if o in fold.messages}, cut
            world.abandon()

    run(main())


async def restored_without_fold(world: World, everything: dict[int, bytes]) -> Fold:
    fold = Fold(world.log())
    fold.messages = set(everything)
    fold.end_offset = world.log().end_offset
    return fold.attach()


def test_a_reader_that_waits_while_a_segment_is_replaced_reads_the_old_one_or_is_told_to_come_again() -> None:
    async def main() -> None:
        world, _ = await filled(40, live={5, 30})
        log = world.log()
        await world.settle()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        held = HeldThreads()
        world.disk.all_cold = True
        cold = world.store.try_read(log.read(Offset(3), bytes_max=2000, upto=log.end_offset))
        world.store._read_threads, threads = held, world.store._read_threads
        waiting = asyncio.ensure_future(world.store.finish(cold))  # type: ignore[arg-type]
        await world.settle()
        assert len(held) == 1
        assert await world.store.clean(log)
        while not waiting.done():
            held.release()
            await world.settle()
        world.store._read_threads = threads
        if waiting.exception() is None:
            assert len(waiting.result().data)
        else:
            assert isinstance(waiting.exception(), FileNotFoundError)
        world.abandon()

    run(main())


def test_retention_waits_until_the_cleaner_has_let_go_of_the_segments_that_it_wants() -> None:
    async def main() -> None:
        world, _ = await filled(40, live={5, 30})
        log = world.log()
        log.roll(now_ms=world.clock.wall_ms())
        await world.store.checkpoint(log)
        held = HeldThreads()
        world.store.cleaner._threads = held
        cleaning = asyncio.ensure_future(world.store.clean(log))
        await world.settle()
        assert len(held) == 1
        log.raise_start(log.end_offset)
        claimed, before = log.claim, list(log.segments)
        assert claimed is not None
        await world.store.maintain(log, floor=log.end_offset)
        assert log.segments == [*before[before.index(next(one for one in before if one in claimed)) :]]
        while not cleaning.done():
            held.release()
            await world.settle()
        await world.store.maintain(log, floor=log.end_offset)
        assert len(log.segments) == 1
        assert len(files(world)) == 1
        await world.restart()
        assert world.store.refused == {}
        world.abandon()

    run(main())


def facts(*pairs: tuple[int, int]) -> list[CleanFacts]:
    return [CleanFacts(size, live) for size, live in pairs]


SETTINGS = LogConfig(clean_gain_bytes_min=10, clean_merge_bytes=50)


@pytest.mark.parametrize(
    ("segments", "chosen"),
    [
        ([], None),
        ([(1000, 900)], None),
        ([(1000, 499)], range(1)),
        ([(1000, 501)], None),
        ([(15, 6)], None),
        ([(1000, 900), (1000, 100), (1000, 900)], range(1, 2)),
        ([(1000, 10), (1000, 10), (1000, 0)], range(3)),
        ([(20, 20), (20, 20)], range(2)),
        ([(20, 20), (60, 60)], None),
        ([(300, 300), (1000, 400)], range(2)),
        ([(500, 500), (1000, 400)], range(1, 2)),
        ([(1000, 400), (1000, 400), (1000, 400)], range(2)),
    ],
)
def test_neighbours_are_chosen_that_gain_and_are_no_larger_than_what_they_join(
    segments: list[tuple[int, int]], chosen: range | None
) -> None:
    assert choose(facts(*segments), SETTINGS, segment_bytes_max=1000) == chosen


def test_a_single_small_segment_has_nobody_to_be_merged_with() -> None:
    assert choose(facts((20, 20)), SETTINGS, segment_bytes_max=30) is None
    assert choose(facts((20, 20), (20, 20)), SETTINGS, segment_bytes_max=30) is None
