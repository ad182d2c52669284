"""Snapshots are written once they are committed, two are kept, and nothing is cleaned above the older one."""

import random

from headrace.log import snapshots
from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.log.snapshots import Snapshot, SnapshotFile
from headrace.model.ids import Offset
from headrace.testing.disk import SimulatedDisk

from .cleaning import EAGER, Fold, ack, clean_fully, restored, send
from .world import World, partition_id, run, successor, topic_config


def held_back(world: World) -> list[int]:
    """Have the owner of a world's log commit no further than a bound, which the test moves."""
    bound = [0]
    log = world.log()
    log.listener = lambda: (log.progress.commit(Offset(min(bound[0], log.durable_offset))), None)[1]
    return bound


def published(world: World) -> list[SnapshotFile]:
    """Newest first, as the next process finds them."""
    log = world.log()
    found = snapshots.load(log.disk, f"{log.directory}/{FOLDS_DIRECTORY}", "fold", upto=log.end_offset)
    return [loaded.kept[0] for loaded in found]


async def started() -> tuple[World, Fold]:
    world = World(SimulatedDisk(), {partition_id(0): topic_config()}, EAGER)
    await world.start()
    return world, Fold(world.log()).attach()


async def sent(world: World, fold: Fold, count: int, *, is_acked: bool = True) -> None:
    for number in range(count):
        base = send(world, fold, [b"%d " % number + b"x" * 400])
        if is_acked:
            ack(world, fold, [base])
        await world.settle()


def test_a_snapshot_is_written_when_its_own_offset_is_committed_and_not_before() -> None:
    async def main() -> None:
        world, fold = await started()
        bound = held_back(world)
        log = world.log()
        await sent(world, fold, 3)
        assert await world.store.checkpoint(log)
        assert published(world) == []
        await sent(world, fold, 3)
        # The next checkpoint does not put a newer one in its place: that might never be committed either.
        assert await world.store.checkpoint(log)
        bound[0] = 5
        log.listener()
        await world.store.maintain(log, floor=log.end_offset)
        assert published(world) == []
        bound[0] = 6
        log.listener()
        await world.store.maintain(log, floor=log.end_offset)
        assert published(world) == [(6, 0)]
        assert log.progress.older == 0
        world.abandon()

    run(main())


def test_two_are_kept_and_the_older_one_is_the_floor_of_cleaning() -> None:
    async def main() -> None:
        world, fold = await started()
        log = world.log()
        seen = []
        for _ in range(4):
            await sent(world, fold, 5)
            await world.store.checkpoint(log)
            seen.append((published(world), log.progress.older))
        assert seen == [
            ([(10, 0)], 0),
            ([(20, 0), (10, 0)], 10),
            ([(30, 0), (20, 0)], 20),
            ([(40, 0), (30, 0)], 30),
        ]
        await world.restart()
        log = world.log()
        assert (log.progress.older, log.progress.committed) == (40, 40)  # the stop has published a copy
        fold = (await restored(world)).attach()
        assert log.progress.older == log.progress.cleaned
        await sent(world, fold, 1)
        await world.store.checkpoint(log)
        assert published(world) == [(42, 0), (40, 1)]
        assert log.progress.older == 40
        world.abandon()

    run(main())


def test_a_fold_that_is_still_being_restored_holds_the_floor_though_another_publishes_without_it() -> None:
    async def main() -> None:
        world, fold = await started()
        for _ in range(2):
            await sent(world, fold, 5)
            await world.store.checkpoint(world.log())
        world.abandon()
        heir = successor(world, world.disk)
        await heir.start()
        log = heir.log()
        log.take_snapshots = lambda: (Snapshot("producer", log.end_offset, b"another"),)
        for _ in range(3):
            heir.append(0, [b"more"])
            await heir.settle()
            await heir.store.checkpoint(log)
        assert log.published["producer"] == [(23, 0), (22, 0)]
        assert log.published["fold"] == [(20, 0), (10, 0)]
        assert log.progress.older == 10
        heir.abandon()

    run(main())


def test_nothing_is_written_where_both_are_of_the_log_s_end() -> None:
    async def main() -> None:
        world, fold = await started()
        log = world.log()
        await sent(world, fold, 3)
        for _ in range(2):
            await world.store.checkpoint(log)
        assert published(world) == [(6, 1), (6, 0)]
        log.take_snapshots = lambda: (fold.snapshot()[0]._replace(data=b"another"),)
        await world.store.checkpoint(log)
        assert published(world) == [(6, 1), (6, 0)]
        assert log.progress.older == 6
        assert not any(b"another" in data for data in world.disk.files().values())
        world.abandon()

    run(main())


def test_a_cut_takes_the_frozen_snapshot_and_the_published_ones_above_it() -> None:
    async def main() -> None:
        world, fold = await started()
        log = world.log()
        for _ in range(2):
            await sent(world, fold, 5)
            await world.store.checkpoint(log)
        bound = held_back(world)
        bound[0] = 20
        await sent(world, fold, 5)
        await world.store.checkpoint(log)
        assert len(log.frozen) == 1
        await world.store.truncate(log, Offset(15))
        assert (published(world), list(log.frozen), log.progress.older) == ([(10, 0)], [], 10)
        assert log.progress.committed == log.end_offset == 15
        world.sent[log.id] = {offset: value for offset, value in world.sent[log.id].items() if offset < 15}
        world.promised_end[log.id] = 15
        fold = (await restored(world)).attach()
        await sent(world, fold, 3)
        bound[0] = 100
        log.listener()
        await world.store.checkpoint(log)
        assert (published(world), log.progress.older) == ([(21, 0), (10, 0)], 10)
        world.abandon()

    run(main())


def test_whenever_a_publication_is_cut_short_one_sound_snapshot_is_left_that_the_log_goes_on_from() -> None:
    async def main() -> None:
        world, fold = await started()
        images: list[SimulatedDisk] = []
        await sent(world, fold, 10)
        await clean_fully(world)
        world.disk.on_call = lambda *_: images.append(world.disk.copy())
        for _ in range(3):
            await sent(world, fold, 5)
            await clean_fully(world)
        world.disk.on_call = None
        world.abandon()
        assert len(images) > 100
        for number, image in enumerate(images):
            image.crash(random.Random(number))
            heir = successor(world, image)
            heir.sent[partition_id(0)] = dict(world.sent[partition_id(0)])
            heir.promised_end[partition_id(0)] = 0
            await heir.start()
            found = await restored(heir)
            newest, *_ = published(heir)
            assert found.acked == {offset for offset in fold.acked if offset + 1 < heir.log().end_offset}
            # The same from the older one, where there are two, though the newest is damaged.
            older = heir.log().progress.older
            assert older <= newest.offset
            if older > 0:
                heir.disk.remove(path_of(heir, newest))
                assert (await restored(heir)).acked == found.acked
            heir.abandon()

    run(main())


def path_of(world: World, file: SnapshotFile) -> str:
    copy = f".{file.copy}" if file.copy else ""
    return f"{world.directory()}/{FOLDS_DIRECTORY}/fold-{file.offset:020d}{copy}.snapshot"


def test_a_directory_of_an_older_version_with_one_snapshot_goes_on_with_it() -> None:
    async def main() -> None:
        world, fold = await started()
        await sent(world, fold, 10)
        await clean_fully(world)
        assert world.log().cleaned_offset > 0
        for file in published(world)[1:]:
            world.disk.remove(path_of(world, file))
        world.abandon()
        heir = successor(world, world.disk)
        await heir.start()
        again = (await restored(heir)).attach()
        assert again.acked == fold.acked
        (newest,) = heir.log().published["fold"]
        await sent(heir, again, 5)
        await heir.store.checkpoint(heir.log())
        assert heir.log().published["fold"] == [SnapshotFile(heir.log().end_offset), newest]
        assert heir.log().progress.older == newest.offset
        heir.abandon()

    run(main())
