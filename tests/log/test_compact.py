"""Compaction: of each key the last message stays, at its offset, and tombstones go in time."""

import random

import msgspec
import pytest

from headrace.folds.transaction_index import Aborted
from headrace.log.snapshots import Snapshot
from headrace.model.batch import read_header
from headrace.model.ids import Epoch, Offset
from headrace.model.topic import COMPACT_AND_DELETE, Durability
from headrace.testing.disk import SimulatedDisk

from .cleaning import Fold
from .compacting import (
    ABORT,
    COMMIT,
    ONE_DAY_MS,
    Index,
    attach,
    close_segment,
    compact_config,
    compact_fully,
    mark,
    markers,
    put,
    read_table,
    reopened,
    started,
    stored,
    table,
)
from .world import SMALL, World, partition_id, run


async def filled(world: World, count: int, *, keys: int, per_batch: int = 1, codec: int = 0) -> dict[int, object]:
    """So many messages of so many keys; returns the offset of each key's last one."""
    last: dict[int, object] = {}
    for first in range(0, count, per_batch):
        numbers = range(first, first + per_batch)
        pairs = [(b"key %d" % (number % keys), b"%d." % number + b"x" * 200) for number in numbers]
        base = put(world, pairs, codec=codec)
        last |= {number % keys: base + at for at, number in enumerate(numbers)}
        await world.settle()
    return last


@pytest.mark.parametrize("codec", [0, 1, 3, 4])
@pytest.mark.parametrize("per_batch", [1, 4])
def test_of_each_key_the_last_message_stays_at_its_offset(per_batch: int, codec: int) -> None:
    async def main() -> None:
        world = await started()
        last = await filled(world, 120, keys=7, per_batch=per_batch, codec=codec)
        before, size = await stored(world), world.log().size_bytes
        assert await compact_fully(world) == 1
        expected = {offset: before[offset] for offset in sorted(last.values())}  # type: ignore[index,type-var]
        assert await stored(world) == expected
        assert world.log().size_bytes < size
        assert world.log().end_offset == 120
        assert not await world.store.clean(world.log()), "there is nothing left to do"
        await reopened(world)
        assert await stored(world) == expected
        assert not await world.store.clean(world.log()), "how far it is clean is known after a restart"
        world.abandon()

    run(main())


def test_what_came_before_is_superseded_by_what_comes_later_pass_after_pass() -> None:
    async def main() -> None:
        world = await started()
        model: dict[bytes, bytes] = {}
        chooser = random.Random(4)
        sizes = []
        for number in range(400):
            key, value = b"k%d" % chooser.randrange(10), b"%d" % number + b"y" * 150
            put(world, [(key, value)])
            model[key] = value
            await world.settle()
            if number % 50 == 49:
                await compact_fully(world)
                assert await read_table(world) == model
                sizes.append(world.log().size_bytes)
                assert len(await stored(world)) == len(model)
        assert max(sizes) < 3 * min(sizes), "what is left does not grow"
        assert len(world.log().segments) < 7, "small ones are merged"
        world.abandon()

    run(main())


def test_nothing_in_the_segment_that_is_written_to_is_touched() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 40, keys=1)
        active = world.log().active.base_offset
        await world.store.checkpoint(world.log())
        while await world.store.clean(world.log()):
            pass
        found = sorted(await stored(world))
        assert found[-(40 - active) :] == list(range(active, 40))
        assert len(found) == 40 - active + 1, "of the closed ones the last message is left, though it is superseded"
        world.abandon()

    run(main())


def test_nothing_at_or_above_the_last_stable_offset_is_touched() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 40, keys=1)
        world.log().transactions = Index(last_stable_offset=25)
        await compact_fully(world)
        found = sorted(await stored(world))
        assert set(range(25, 40)) <= set(found)
        assert len(found) < 40
        world.abandon()

    run(main())


def test_nothing_that_no_durable_snapshot_covers_is_touched() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 40, keys=1)
        log = world.log()
        log.take_snapshots = tuple
        assert await compact_fully(world) == 0
        assert len(await stored(world)) == 40
        attach(log)
        assert await compact_fully(world) == 1
        world.abandon()

    run(main())


def test_what_came_after_the_last_durable_snapshot_is_not_touched() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 60, keys=1)
        log = world.log()
        log.take_snapshots = lambda: (Snapshot("fold", 30, b"none"),)
        await compact_fully(world)
        found = sorted(await stored(world))
        assert set(range(30, 60)) <= set(found)
        assert len(found) < 60
        world.abandon()

    run(main())


def test_the_segment_from_which_a_recovery_begins_is_not_touched() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 10, keys=1)
        log = world.log()
        await world.store.checkpoint(log)
        log.roll(now_ms=world.clock.wall_ms())
        assert not await world.store.clean(log)
        world.abandon()
        world.disk.crash(random.Random(1))
        await world.start()
        assert world.store.refused == {}
        assert len(await stored(world)) == 10
        world.abandon()

    run(main())


def test_messages_without_a_key_go_since_they_are_nobodys_last() -> None:
    async def main() -> None:
        world = await started()
        put(world, [(None, b"x"), (b"", b"empty key"), (b"k", b"v"), (None, None)])
        await compact_fully(world)
        assert await stored(world) == {1: (b"", b"empty key"), 2: (b"k", b"v")}
        world.abandon()

    run(main())


def test_a_topic_that_is_not_compacted_or_has_a_retainer_is_left_alone() -> None:
    async def main() -> None:
        world = await started(compact_config(cleanup_policy="delete"))
        await filled(world, 40, keys=1)
        assert await compact_fully(world) == 0
        log = world.log()
        log.config = compact_config()
        fold = Fold(log).attach()
        fold.messages = set(range(40))
        fold.end_offset = 40
        await compact_fully(world)
        assert len(await stored(world)) == 40
        world.abandon()

    run(main())


# Tombstones.


def test_a_tombstone_takes_its_key_away_and_goes_itself_when_its_time_is_over() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=10_000))
        for value in (b"1", b"2", None):
            put(world, [(b"gone", value), (b"kept", b"v")])
            await world.settle()
        await compact_fully(world)
        assert await stored(world) == {4: (b"gone", None), 5: (b"kept", b"v")}
        world.clock.jump_wall(9_999)
        assert await compact_fully(world) == 0
        await reopened(world)
        world.clock.jump_wall(2_000)
        assert await compact_fully(world) == 1, "an expired tombstone is a reason of its own"
        assert await stored(world) == {5: (b"kept", b"v")}
        assert await compact_fully(world) == 0
        world.abandon()

    run(main())


def test_a_tombstone_stays_while_the_clock_is_not_believed_and_its_whole_time_after() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=10_000))
        world.clock.jump_wall(3_600_000, is_believed=False)
        for value in (b"1", None):
            put(world, [(b"gone", value), (b"kept", b"v")])
            await world.settle()
        await compact_fully(world)
        world.clock.jump_wall(20_000, is_believed=False)
        assert await compact_fully(world) == 0
        world.clock.jump_wall(-20_000)  # an operator confirms the first jump
        assert await compact_fully(world) == 0
        world.clock.jump_wall(12_000)
        assert await compact_fully(world) == 1
        assert await stored(world) == {3: (b"kept", b"v")}
        world.abandon()

    run(main())


def test_tombstones_go_in_time_however_often_the_log_is_compacted() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=16_000))
        put(world, [(b"gone", None)])
        await compact_fully(world)
        for number in range(18):
            put(world, [(b"busy", b"%d" % number), (b"gone %d" % number, None)])
            await compact_fully(world)
            assert ((b"gone", None) in (await stored(world)).values()) or number >= 15
            world.clock.jump_wall(1_000)
        put(world, [(b"busy", b"end")])
        await compact_fully(world)
        found = await stored(world)
        assert (b"gone", None) not in found.values()
        assert (b"gone 17", None) in found.values()
        assert world.log().compacted is not None
        assert len(world.log().compacted.passes) <= 18  # type: ignore[union-attr]
        world.abandon()

    run(main())


def test_a_tombstone_that_was_never_compacted_stays_whatever_its_age() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=0))
        put(world, [(b"gone", b"v")], timestamp_ms=1000)
        put(world, [(b"gone", None)], timestamp_ms=1000)
        await close_segment(world)
        assert await world.store.clean(world.log())
        assert await stored(world) == {1: (b"gone", None)}
        world.abandon()

    run(main())


def test_a_log_of_which_nothing_is_left_is_read_to_its_end() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=0))
        put(world, [(b"a", b"v"), (b"b", b"v")])
        put(world, [(b"a", None), (b"b", None)])
        await compact_fully(world)
        await compact_fully(world)
        assert await stored(world) == {}
        assert world.log().end_offset == 4
        await reopened(world)
        assert await stored(world) == {}
        put(world, [(b"c", b"v")])
        await world.settle()
        await compact_fully(world)
        assert await stored(world) == {4: (b"c", b"v")}
        world.abandon()

    run(main())


def test_a_key_that_comes_back_after_its_tombstone_is_there() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=0))
        for value in (b"1", None, b"2"):
            put(world, [(b"k", value)])
        await compact_fully(world)
        await compact_fully(world)
        assert await stored(world) == {2: (b"k", b"2")}
        world.abandon()

    run(main())


# When.


def test_a_log_is_compacted_when_enough_of_it_is_dirty() -> None:
    async def main() -> None:
        world = await started(compact_config(dirty_ratio_min=0.5))
        await filled(world, 60, keys=60)
        assert await compact_fully(world) == 1, "nothing was ever compacted"
        await filled(world, 40, keys=40)
        assert await compact_fully(world) == 0
        await filled(world, 40, keys=40)
        assert await compact_fully(world) == 1
        assert len(await stored(world)) == 60
        world.abandon()

    run(main())


def test_messages_younger_than_the_smallest_lag_stay() -> None:
    async def main() -> None:
        world = await started(compact_config(compaction_lag_ms_min=5_000))
        await filled(world, 20, keys=2)
        await close_segment(world)
        assert await compact_fully(world) == 0
        world.clock.jump_wall(5_001)
        await filled(world, 20, keys=2)
        await reopened(world)
        assert await compact_fully(world) == 1
        assert len(await stored(world)) == 22
        world.abandon()

    run(main())


def test_messages_older_than_the_largest_lag_are_compacted_however_few_they_are() -> None:
    async def main() -> None:
        world = await started(compact_config(dirty_ratio_min=0.9, compaction_lag_ms_max=5_000))
        await filled(world, 60, keys=60)
        assert await compact_fully(world) == 1
        put(world, [(b"key 1", b"new")])
        await world.settle()
        log = world.log()
        await world.store.maintain(log, floor=log.durable_offset)
        assert not await world.store.clean(log)
        world.clock.jump_wall(5_001)
        await world.store.maintain(log, floor=log.durable_offset)
        assert log.active.base_offset == 61, "the segment is closed for it"
        assert await world.store.clean(log)
        assert len(await stored(world)) == 60
        world.abandon()

    run(main())


# A table that is too small for all keys.


def test_more_keys_than_the_map_holds_take_several_passes() -> None:
    async def main() -> None:
        world = await started(log_config=msgspec.structs.replace(SMALL, compact_map_bytes=24 * 40))
        last = await filled(world, 300, keys=100, per_batch=3)
        assert await compact_fully(world) > 3
        assert sorted(await stored(world)) == sorted(last.values())  # type: ignore[type-var]
        world.abandon()

    run(main())


def test_one_batch_with_more_keys_than_the_map_holds_is_compacted_all_the_same() -> None:
    async def main() -> None:
        world = await started(log_config=msgspec.structs.replace(SMALL, compact_map_bytes=24 * 20))
        for _ in range(2):
            put(world, [(b"key %d" % number, b"v") for number in range(100)])
        await compact_fully(world)
        assert sorted(await stored(world)) == list(range(100, 200))
        world.abandon()

    run(main())


# With retention.


def test_a_compacted_topic_keeps_what_is_old_unless_it_deletes_too() -> None:
    async def main() -> None:
        for policy, count in (("compact", 30), (COMPACT_AND_DELETE, 0)):
            world = await started(compact_config(cleanup_policy=policy, retention_ms=ONE_DAY_MS, retention_bytes=1))
            await filled(world, 30, keys=30)
            await compact_fully(world)
            world.clock.jump_wall(2 * ONE_DAY_MS)
            log = world.log()
            for _ in range(2):
                await world.store.maintain(log, floor=log.durable_offset)
            assert len(await stored(world)) == count
            world.abandon()

    run(main())


def test_a_segment_in_which_nothing_is_left_keeps_no_later_one_from_going() -> None:
    async def main() -> None:
        world = await started(compact_config(cleanup_policy=COMPACT_AND_DELETE, retention_ms=ONE_DAY_MS))
        await filled(world, 60, keys=2)
        assert await compact_fully(world) == 1
        assert world.log().segments[0].size == 0
        assert len(world.log().segments) > 2
        world.clock.jump_wall(2 * ONE_DAY_MS)
        log = world.log()
        await world.store.maintain(log, floor=log.durable_offset)
        assert await stored(world) == {}
        assert log.start_offset == 60
        world.abandon()

    run(main())


def test_compaction_moves_the_logs_start_under_no_policy() -> None:
    async def main() -> None:
        for policy in ("compact", COMPACT_AND_DELETE):
            for retention in ({"retention_ms": -1}, {"retention_ms": ONE_DAY_MS}, {"retention_bytes": 1 << 20}):
                world = await started(compact_config(cleanup_policy=policy, **retention))
                last = await filled(world, 60, keys=2)
                assert await compact_fully(world) == 1
                log = world.log()
                assert log.segments[0].size == 0
                for _ in range(2):
                    await world.store.maintain(log, floor=log.durable_offset)
                    assert log.start_offset == 0, "a reader at any offset reads on"
                    assert sorted(await stored(world)) == sorted(last.values())  # type: ignore[type-var]
                    await reopened(world)
                    log = world.log()
                world.abandon()

    run(main())


def test_age_is_learnt_behind_a_segment_in_which_nothing_is_left() -> None:
    async def main() -> None:
        world = await started(compact_config(cleanup_policy=COMPACT_AND_DELETE, retention_ms=ONE_DAY_MS))
        await filled(world, 60, keys=2)
        assert await compact_fully(world) == 1
        await reopened(world)
        log = world.log()
        assert [segment.max_timestamp_ms for segment in log.segments[:2]] == [None, None]
        assert log.segments[0].size == 0
        world.clock.jump_wall(2 * ONE_DAY_MS)
        await world.store.maintain(log, floor=log.durable_offset)
        assert log.start_offset == 60
        world.abandon()

    run(main())


# Transactions.


def test_what_was_aborted_goes_and_makes_nothing_else_go() -> None:
    async def main() -> None:
        world = await started()
        put(world, [(b"k", b"committed")], producer_id=1)
        mark(world, 1, COMMIT)
        put(world, [(b"k", b"aborted"), (b"new", b"aborted")], producer_id=1)
        put(world, [(b"other", b"of another producer")], producer_id=2)
        mark(world, 1, ABORT)
        mark(world, 2, COMMIT)
        put(world, [(b"last", b"x")])
        world.log().transactions = Index([Aborted(1, Offset(2), Offset(5))])
        await compact_fully(world)
        assert await stored(world) == {
            0: (b"k", b"committed"),
            4: (b"other", b"of another producer"),
            7: (b"last", b"x"),
        }
        assert await markers(world) == [1, 5, 6]
        world.abandon()

    run(main())


def test_markers_stay_until_their_transaction_and_their_time_are_gone() -> None:
    async def main() -> None:
        world = await started(compact_config(delete_retention_ms=10_000))
        index = Index()
        put(world, [(b"k", b"1")], producer_id=1)
        mark(world, 1, COMMIT)
        put(world, [(b"k", b"2")], producer_id=1)
        mark(world, 1, ABORT)
        index.entries = [Aborted(1, Offset(2), Offset(3))]
        world.log().transactions = index
        await compact_fully(world)
        assert await markers(world) == [1, 3]
        world.clock.jump_wall(11_000)
        put(world, [(b"other", b"x")])
        await compact_fully(world)
        assert await markers(world) == [1, 3], "the second was seen without its transaction only now"
        world.clock.jump_wall(11_000)
        put(world, [(b"k", b"3")])
        await compact_fully(world)
        assert await markers(world) == [1]
        assert index.entries == [], "who keeps the index is told"
        for number in range(2):
            world.clock.jump_wall(11_000)
            put(world, [(b"other", b"%d" % number)])
            await compact_fully(world)
        assert await markers(world) == []
        assert await read_table(world) == {b"k": b"3", b"other": b"1"}
        world.abandon()

    run(main())


# Readers.


def test_every_offset_is_read_as_the_next_message_and_times_and_epochs_are_found() -> None:
    async def main() -> None:
        world = await started()
        times = {}
        for number in range(60):
            if number % 20 == 10:
                await reopened(world)
            world.clock.jump_wall(1000)
            times[number] = world.clock.wall_ms()
            put(world, [(b"k%d" % (number % 3 if number < 40 else number), b"z" * 200)])
            await world.settle()
        epochs = [world.log().epochs.end_of(Epoch(epoch), Offset(60)) for epoch in range(6)]
        await compact_fully(world)
        left = sorted(await stored(world))
        assert left == list(range(37, 60))
        for _ in range(2):
            log = world.log()
            for offset in range(60):
                part = await world.store.read(log.read(Offset(offset), bytes_max=1, upto=log.end_offset))
                assert read_header(part.data).base_offset == max(offset, 37)
                located = await world.store.read(log.find_time(times[offset], upto=log.end_offset))
                assert located is not None
                assert located.header.base_offset == max(offset, 37)
            assert [log.epochs.end_of(Epoch(epoch), Offset(60)) for epoch in range(6)] == epochs
            await reopened(world)
        world.abandon()

    run(main())


def test_what_is_written_after_a_truncation_is_dirty_again() -> None:
    async def main() -> None:
        for cut in range(0, 60, 7):
            world = await started(compact_config(delete_retention_ms=0))
            await filled(world, 60, keys=9)
            await compact_fully(world)
            before = await stored(world)
            log = world.log()
            await world.store.truncate(log, Offset(cut))
            model = table(pair for offset, pair in before.items() if offset < log.end_offset)
            for number in range(30):
                key, value = b"key %d" % (number % 5), b"again %d" % number
                put(world, [(key, value)])
                model[key] = value
                await world.settle()
            put(world, [(b"key 0", None)])
            del model[b"key 0"]
            if cut % 2:
                await reopened(world)
            assert await compact_fully(world) >= 1
            assert await read_table(world) == model, cut
            found = await stored(world)
            assert len({key for key, _ in found.values()}) == len(found), "no key is there twice"
            world.abandon()

    run(main())


def test_a_log_in_memory_is_compacted_too() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): compact_config(durability=Durability.MEMORY)})
        await world.start()
        attach(world.log())
        await filled(world, 40, keys=3)
        assert await compact_fully(world) == 1
        assert len(await stored(world)) == 3
        world.abandon()

    run(main())


def test_a_damaged_state_of_compaction_only_costs_another_pass() -> None:
    async def main() -> None:
        world = await started()
        await filled(world, 40, keys=3)
        await compact_fully(world)
        before = await stored(world)
        await world.store.stop()
        path = f"{world.directory()}/compacted"
        world.disk.overwrite(path, b"00000000\n" + world.disk.files()[path][9:])
        await world.start()
        attach(world.log())
        assert await compact_fully(world) == 1
        assert await stored(world) == before
        world.abandon()

    run(main())
