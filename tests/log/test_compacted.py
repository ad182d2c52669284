"""How far a log was compacted, and when what has to go may go."""

from headrace.log.compacted import Compacted, Pass, lower_compacted, read_compacted, save_compacted
from headrace.model.ids import Offset
from headrace.testing.disk import SimulatedDisk

HOUR_MS = 3_600_000
RETENTION_MS = 16 * HOUR_MS


def after(state: Compacted, upto: int, counts: list[int], now_ms: int) -> Compacted:
    return state.after(Offset(upto), counts, delete_retention_ms=RETENTION_MS, now_ms=now_ms)


def test_a_pass_that_leaves_nothing_to_be_removed_is_not_remembered() -> None:
    state = after(Compacted(), 10, [0], HOUR_MS)
    assert state == Compacted(upto=10)


def test_passes_of_one_granule_are_one_at_its_end() -> None:
    state = after(Compacted(), 10, [3], HOUR_MS + 1)
    assert state.passes == (Pass(10, 2 * HOUR_MS, 3),)
    state = after(state, 20, [2, 1], HOUR_MS + 5)
    assert state.passes == (Pass(20, 2 * HOUR_MS, 3),)
    state = after(state, 30, [3, 1], 2 * HOUR_MS + 1)
    assert state.passes == (Pass(20, 2 * HOUR_MS, 3), Pass(30, 3 * HOUR_MS, 1))


def test_the_list_stays_short_however_often_a_log_is_compacted() -> None:
    state = Compacted()
    for number in range(1, 2000):
        now_ms = number * HOUR_MS // 10
        expired = state.expired_upto(delete_retention_ms=RETENTION_MS, now_ms=now_ms)
        counts = [0 if one.upto <= expired else 1 for one in state.passes]
        state = after(state, number, [*counts, 1], now_ms)
        assert len(state.passes) <= 18
    assert state.passes[0].upto > 1800


def test_what_is_old_enough_may_go() -> None:
    state = Compacted(upto=30, passes=(Pass(10, 1000, 1), Pass(20, 2000, 0), Pass(30, 3000, 1)))
    for now_ms, upto, has_any in ((1499, 0, False), (1500, 10, True), (2500, 20, True), (3500, 30, True)):
        assert state.expired_upto(delete_retention_ms=500, now_ms=now_ms) == upto
        assert state.has_expired(delete_retention_ms=500, now_ms=now_ms) == has_any


def test_a_clock_that_was_set_back_keeps_times_in_order() -> None:
    state = after(Compacted(), 10, [1], 100 * HOUR_MS)
    state = after(state, 20, [1, 1], HOUR_MS)
    assert state.passes == (Pass(20, 100 * HOUR_MS, 2),)


def test_a_cut_lowers_what_was_saved() -> None:
    disk = SimulatedDisk()
    disk.make_directory("/p")
    lower_compacted(disk, "/p", Offset(5))
    assert read_compacted(disk, "/p") == Compacted()
    save_compacted(disk, "/p", Compacted(upto=30, passes=(Pass(10, 1000, 1), Pass(30, 3000, 1))))
    lower_compacted(disk, "/p", Offset(20))
    assert read_compacted(disk, "/p") == Compacted(upto=20, passes=(Pass(10, 1000, 1), Pass(20, 3000, 1)))
