"""The offsets of a log keep their order, and whatever is removed lies below the committed one."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.log.progress import NO_SNAPSHOT, Progress
from headrace.model.ids import Offset
from headrace.model.topic import Durability
from headrace.replication.committed import alone
from headrace.testing.disk import SimulatedDisk

from .cleaning import EAGER, Fold, ack, clean_fully, send
from .world import World, partition_id, run, topic_config

AGE_MS = 60_000


def opened(*, start: int = 0, cleaned: int = 0, end: int = 0) -> Progress:
    return Progress(start=Offset(start), cleaned=Offset(cleaned), end=Offset(end))


def test_an_entry_is_committed_on_a_lone_node_when_it_is_as_safe_as_its_topic_asks_for() -> None:
    assert alone(Durability.FSYNC, Offset(3), Offset(7)) == 3
    assert alone(Durability.REPLICATED, Offset(3), Offset(7)) == 7
    assert alone(Durability.MEMORY, Offset(3), Offset(7)) == 7


def test_the_committed_offset_never_goes_back_by_a_rule() -> None:
    progress = opened(end=9)
    assert progress.commit(Offset(5))
    assert not progress.commit(Offset(4))
    assert not progress.commit(Offset(5))
    assert progress.committed == 5


def test_moves_that_would_break_the_order_are_refused() -> None:
    progress = opened(end=9)
    progress.commit(Offset(5))
    for move in (
        lambda: progress.append(Offset(8)),
        lambda: progress.sync(Offset(10)),
        lambda: progress.commit(Offset(10)),
        lambda: opened(end=9).raise_start(Offset(1)),
        lambda: opened(end=9).publish(Offset(1)),
        lambda: opened(end=9).checkpoint(Offset(10)),
    ):
        with pytest.raises(AssertionError):
            move()


def test_a_cut_lowers_all_that_stood_above_it() -> None:
    progress = opened(end=20)
    progress.commit(Offset(20))
    progress.checkpoint(Offset(20))
    progress.publish(Offset(15))
    progress.clean(Offset(12))
    progress.truncate(Offset(17))
    assert (progress.committed, progress.durable, progress.recovery, progress.end) == (17, 17, 17, 17)
    assert (progress.cleaned, progress.older) == (12, 15)
    progress.truncate(Offset(13))
    assert (progress.cleaned, progress.older) == (12, 12), "what is left of the snapshots covers what was cleaned"


def test_a_checkpoint_from_before_there_were_two_snapshots_is_taken_over() -> None:
    progress = opened(start=3, cleaned=10, end=20)
    progress.resume(older=Offset(12), committed=Offset(-1), recovery=Offset(15))
    assert (progress.older, progress.committed, progress.recovery) == (12, 12, 15)
    progress = opened(start=3, cleaned=10, end=20)
    progress.resume(older=Offset(0), committed=Offset(99), recovery=Offset(15))
    assert (progress.older, progress.committed) == (10, 20)
    progress = opened(start=3, cleaned=10, end=20)
    progress.resume(older=NO_SNAPSHOT, committed=Offset(-1), recovery=Offset(0))
    assert (progress.older, progress.committed) == (NO_SNAPSHOT, 3)


def test_a_log_whose_end_was_given_up_is_opened_with_what_is_left() -> None:
    progress = opened(cleaned=5, end=20)
    progress.resume(older=Offset(30), committed=Offset(40), recovery=Offset(40))
    assert (progress.older, progress.committed, progress.recovery) == (5, 20, 20)


moves = st.lists(
    st.tuples(
        st.sampled_from(["append", "sync", "commit", "raise_start", "clean", "publish", "checkpoint", "truncate"]),
        st.integers(0, 10),
    ),
    max_size=60,
)


@settings(max_examples=300, deadline=None)
@given(moves=moves)
def test_any_moves_that_their_owners_may_make_keep_the_order(moves: list[tuple[str, int]]) -> None:
    """Each move is bounded as its owner bounds it; Progress asserts the rest by itself."""
    progress = opened()
    progress.publish(Offset(0))
    for move, step in moves:
        match move:
            case "append":
                progress.append(Offset(progress.end + step))
            case "sync":
                progress.sync(Offset(min(progress.durable + step, progress.end)))
            case "commit":
                progress.commit(Offset(min(progress.committed + step, progress.end)))
            case "raise_start":
                progress.raise_start(Offset(min(progress.start + step, progress.committed)))
            case "clean":
                progress.clean(Offset(min(progress.cleaned + step, progress.older)))
            case "publish":
                progress.publish(Offset(min(progress.older + step, progress.committed)))
            case "checkpoint":
                progress.checkpoint(Offset(min(progress.recovery + step, progress.durable)))
            case "truncate":
                progress.truncate(Offset(max(progress.end - step, 0)))
        assert progress.start <= progress.committed <= progress.end
        assert progress.cleaned <= progress.older <= progress.committed
        assert progress.recovery <= progress.durable <= progress.end


def hold_back(world: World, at: int) -> None:
    log = world.log()
    log.listener = lambda: (log.progress.commit(Offset(min(at, log.durable_offset))), None)[1]


@pytest.mark.parametrize("held_at", [0, 5, 31])
def test_retention_takes_nothing_that_is_not_committed(held_at: int) -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config(retention_ms=AGE_MS)})
        await world.start()
        hold_back(world, held_at)
        for number in range(60):
            world.append(0, [b"%d." % number + b"x" * 400])
            await world.settle()
        log = world.log()
        world.clock.jump_wall(10 * AGE_MS)
        for _ in range(3):
            await world.store.maintain(log, floor=log.end_offset)
        assert log.durable_offset == 60
        assert held_at - 20 < log.start_offset <= held_at
        assert (await world.read_all(0)).keys() >= set(range(held_at, 60))
        world.abandon()

    run(main())


def test_cleaning_takes_nothing_that_is_not_committed() -> None:
    async def main() -> None:
        world = World(SimulatedDisk(), {partition_id(0): topic_config()}, EAGER)
        await world.start()
        hold_back(world, 31)
        fold = Fold(world.log()).attach()
        log = world.log()
        for number in range(40):
            base = send(world, fold, [b"%d " % number + b"x" * 400])
            ack(world, fold, [base])
            await world.settle()
            if number in (8, 14):
                await world.store.checkpoint(log)
        size_bytes = log.size_bytes
        await clean_fully(world)
        assert 0 < log.cleaned_offset <= log.progress.older <= 31
        assert 0 < log.size_bytes < size_bytes
        world.abandon()

    run(main())
