"""What comes next: in order whatever was put off, called back or taken away, and without many entries for it."""

import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.folds.queue import agenda
from headrace.folds.queue import deadlines as module
from headrace.folds.queue.deadlines import Deadlines

SHIFT = 8

offsets = st.integers(0, 30)
moments = st.one_of(st.integers(0, 50), st.sampled_from([-(2**70), -1, 2**63 - 1, 2**63, 2**70]))
steps = st.one_of(
    st.tuples(st.just("put"), offsets, moments),
    st.tuples(st.just("put_all"), st.lists(offsets, max_size=8), moments),
    st.tuples(st.just("move_all"), st.lists(offsets, max_size=8), moments),
    st.tuples(st.just("pop"), offsets, st.just(0)),
    st.tuples(st.just("pop_due"), st.integers(1, 10), moments),
    st.tuples(st.just("pop_below"), offsets, st.just(0)),
    st.tuples(st.just("load"), st.just(0), st.just(0)),
)


def entry_count(deadlines: Deadlines) -> int:
    return deadlines._agenda.count


@pytest.mark.parametrize("outdated_count", [0, 1, 1024])
def test_the_earliest_comes_first_whatever_happened_before(
    outdated_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_OUTDATED_COUNT", outdated_count)
    monkeypatch.setattr(module, "_LOOKED_COUNT", 8 * outdated_count + 1)
    monkeypatch.setattr(agenda, "_STRETCH_COUNT", 3 if outdated_count < 1024 else 4096)

    @given(st.lists(steps, max_size=60))
    def run(script: list[tuple[str, object, int]]) -> None:
        deadlines = Deadlines(shift=SHIFT)
        known: dict[int, int] = {}
        for name, what, moment_ms in script:
            obey(deadlines, known, name, what, moment_ms)
            assert {offset: value >> SHIFT for offset, value in deadlines.values.items()} == known
            first_ms = deadlines.next_ms()
            assert first_ms == min(known.values(), default=None)
            assert entry_count(deadlines) == len(list(entries(deadlines)))
        assert due(deadlines, 2**75, 1000) == sorted((moment, offset) for offset, moment in known.items())

    run()


def obey(deadlines: Deadlines, known: dict[int, int], name: str, what: object, moment_ms: int) -> None:
    """Do the same to both."""
    if name == "put":
        assert isinstance(what, int)
        deadlines.put(what, moment_ms << SHIFT | what)
        known[what] = moment_ms
    elif name == "put_all":
        assert isinstance(what, list)
        fresh = [offset for offset in dict.fromkeys(what) if offset not in known]
        deadlines.put_all(fresh, moment_ms << SHIFT)
        known.update(dict.fromkeys(fresh, moment_ms))
    elif name == "move_all":
        assert isinstance(what, list)
        moved = [offset for offset in what if offset in known]
        deadlines.move_all({offset: moment_ms << SHIFT | offset for offset in moved})
        known.update(dict.fromkeys(moved, moment_ms))
    elif name == "pop":
        assert isinstance(what, int)
        found = deadlines.pop(what)
        assert (None if found is None else found >> SHIFT) == known.pop(what, None)
    elif name == "pop_due":
        assert isinstance(what, int)
        expected = sorted((at_ms, offset) for offset, at_ms in known.items() if at_ms <= moment_ms)
        found_due = due(deadlines, moment_ms, what)
        assert found_due == expected[: len(found_due)]
        assert len(found_due) == len(expected) or deadlines.is_due(moment_ms)
        for _, offset in found_due:
            del known[offset]
    elif name == "pop_below":
        assert isinstance(what, int)
        deadlines.pop_below(what)
        for offset in [offset for offset in known if offset < what]:
            del known[offset]
    else:
        deadlines.load(dict(deadlines.values))


def due(deadlines: Deadlines, now_ms: int, count_max: int) -> list[tuple[int, int]]:
    return [(value >> SHIFT, offset) for offset, value in deadlines.pop_due(now_ms, count_max)]


def entries(deadlines: Deadlines) -> list[int]:
    found = list(deadlines._agenda._heap)
    for line in deadlines._agenda._lines:
        in_line = [offset for _, offsets in line.stretches for offset in offsets]
        found += in_line[line.start :]
    return found


def allocated_each(deadlines: Deadlines) -> float:
    """Bytes of each entry, whatever its number takes."""
    kept = deadlines._agenda
    lines = sum(sys.getsizeof(column) for line in kept._lines for stretch in line.stretches for column in stretch)
    heap = sys.getsizeof(kept._heap) + sum(-(-sys.getsizeof(entry) // 16) * 16 for entry in kept._heap)
    return (lines + heap) / len(deadlines)


@pytest.mark.parametrize("lengths_ms", [(30_000,), (30_000, 43_200_000), (5_000, 30_000, 60_000, 43_200_000)])
def test_leases_of_a_few_lengths_cost_two_numbers_each(lengths_ms: tuple[int, ...]) -> None:
    rand = Random(1)
    deadlines = Deadlines(shift=SHIFT)
    for offset in range(100_000):
        deadlines.put(offset, offset // 10 + rand.choice(lengths_ms) << SHIFT)
    assert allocated_each(deadlines) < 20
    deadlines.load(dict(deadlines.values))
    assert allocated_each(deadlines) < 20


@pytest.mark.parametrize("order", ["first", "last", "any"])
def test_what_is_done_leaves_few_entries_in_whatever_order_it_is_done(order: str) -> None:
    deadlines = Deadlines(shift=SHIFT)
    for offset in range(50_000):
        deadlines.put(offset, offset << SHIFT)
    done = list(range(50_000))
    if order == "last":
        done.reverse()
    elif order == "any":
        Random(1).shuffle(done)
    for offset in done:
        deadlines.pop(offset)
        assert entry_count(deadlines) <= 2 * len(deadlines) + 4096
    assert entry_count(deadlines) <= 1024 + 1.5 * 1025  # as many as were left alone at the last look


def test_what_is_put_off_and_called_back_again_and_again_leaves_few_entries() -> None:
    deadlines = Deadlines(shift=SHIFT)
    for offset in range(100):
        deadlines.put(offset, 1000 << SHIFT)
    for number in range(20_000):
        deadlines.put(number % 100, 2000 << SHIFT)
        deadlines.put(number % 100, 1500 - number % 2 << SHIFT)
    assert entry_count(deadlines) <= 8 * 1024
    assert [offset for _, offset in due(deadlines, 1500, 10_000)] == [*range(1, 100, 2), *range(0, 100, 2)]


def test_what_was_put_off_comes_at_its_moment_though_its_entry_was_weeded_out() -> None:
    deadlines = Deadlines(shift=SHIFT)
    for offset in range(8000):
        deadlines.put(offset, offset << SHIFT)
    for offset in range(0, 8000, 4):
        deadlines.put(offset, 20_000 - offset << SHIFT)
    before = entry_count(deadlines)
    for offset in range(8000):
        if offset % 4:
            deadlines.pop(offset)
    assert entry_count(deadlines) < before - 4000, "nothing was weeded out"
    assert [offset for _, offset in due(deadlines, 30_000, 20_000)] == [*range(7996, -1, -4)]


def test_what_has_passed_is_not_counted_when_the_rest_is_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_OUTDATED_COUNT", 1)
    deadlines = Deadlines(shift=SHIFT)
    for offset in range(20):
        deadlines.put(offset, offset << SHIFT)
    assert len(due(deadlines, 4, 100)) == 5
    for offset in range(5, 18):
        deadlines.pop(offset)
        assert entry_count(deadlines) == len(entries(deadlines))
    assert entry_count(deadlines) <= 6
    assert due(deadlines, 100, 100) == [(18, 18), (19, 19)]
