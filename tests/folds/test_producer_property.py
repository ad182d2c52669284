"""Any sends, retries, gaps, wraps, epochs, failed writes and restarts, against a model that forgets nothing."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from tests.folds.header import batch

from headrace.folds.producer import Duplicate, ProducerFold, Tentative
from headrace.model.batch import SEQUENCE_LIMIT, BatchHeader
from headrace.model.errors import DuplicateSequenceError, OutOfOrderSequenceError, ProducerFencedError
from headrace.model.ids import Offset

# A producer's records are numbered from here without wrapping; what it sends is that number modulo the limit.
BEGINNINGS = [0, 0, 5, SEQUENCE_LIMIT - 4]


@dataclass
class Written:
    """One producer as an all-knowing bystander sees it, in sequences that never wrap."""

    epoch: int
    first: int
    end: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first, end, base offset

    def expected(self, epoch: int, first: int, count: int) -> str | int:
        if epoch < self.epoch:
            return "fenced"
        if epoch > self.epoch:
            return "fresh" if first % SEQUENCE_LIMIT == 0 else "gap"
        if first == self.end:
            return "fresh"
        for known_first, known_end, offset in self.batches[-5:]:
            if (known_first, known_end) == (first, first + count):
                return offset
        return "stored" if self.first <= first and first + count <= self.end else "gap"


@st.composite
def sends(draw: st.DrawFn) -> tuple[int, int, str, int, int]:
    """Producer, epoch step, kind of send, how far back or ahead, record count."""
    return (
        draw(st.integers(0, 2)),
        draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])),
        draw(st.sampled_from(["next", "next", "next", "retry", "shift"])),
        draw(st.integers(-9, 4)),
        draw(st.integers(1, 3)),
    )


class World:
    def __init__(self, beginnings: list[int]) -> None:
        self.beginnings = beginnings
        self.fold = ProducerFold()
        self.log: list[BatchHeader] = []
        self.model: dict[int, Written] = {}

    @property
    def end_offset(self) -> Offset:
        return self.log[-1].next_offset if self.log else Offset(0)

    def choose(self, send: tuple[int, int, str, int, int]) -> tuple[int, int, int, int]:
        """Producer, epoch, first sequence without wrapping, count."""
        producer, epoch_step, kind, shift, count = send
        known = self.model.get(producer)
        if known is None:
            return producer, 5, self.beginnings[producer], count
        epoch = known.epoch + epoch_step
        if epoch_step > 0:
            # A whole turn further on, so that a new epoch's sequences are never mistaken for the old one's.
            turn = (known.end // SEQUENCE_LIMIT + 2) * SEQUENCE_LIMIT
            return producer, epoch, turn + max(shift, 0), count
        if kind == "retry" and known.batches:
            first, end, _ = known.batches[max(len(known.batches) - 1 + shift, 0)] if shift < 0 else known.batches[-1]
            return producer, epoch, first, end - first
        return producer, epoch, max(known.end + (shift if kind == "shift" else 0), 0), count

    def judge(self, send: tuple[int, int, str, int, int], tentative: Tentative) -> None:
        producer, epoch, first, count = self.choose(send)
        known = self.model.get(producer)
        expected = known.expected(epoch, first, count) if known is not None else "fresh"
        offset = self.end_offset
        header = batch(first % SEQUENCE_LIMIT, producer=producer, epoch=epoch, count=count, offset=offset)
        found: str | int
        try:
            answer = self.fold.check(header, base_offset=offset, tentative=tentative)
            found = answer.base_offset if isinstance(answer, Duplicate) else "fresh"
        except ProducerFencedError:
            found = "fenced"
        except DuplicateSequenceError:
            found = "stored"
        except OutOfOrderSequenceError:
            found = "gap"
        assert found == expected
        if found == "fresh":
            self.log.append(header)
            if known is None or known.epoch != epoch:
                known = self.model[producer] = Written(epoch, first, first)
            known.batches.append((first, first + count, offset))
            known.end = first + count

    def replayed(self, fold: ProducerFold) -> ProducerFold:
        for header in self.log:
            if header.base_offset >= fold.end_offset:
                fold.apply(header, seen_ms=header.base_offset)
        return fold


turns = st.lists(
    st.tuples(st.lists(sends(), min_size=1, max_size=6), st.sampled_from(["written", "written", "restored"])),
    max_size=12,
)
beginnings = st.lists(st.sampled_from(BEGINNINGS), min_size=3, max_size=3)


@given(turns, beginnings)
def test_every_answer_is_the_one_of_a_bystander_who_forgets_nothing(
    script: list[tuple[list[tuple[int, int, str, int, int]], str]], start: list[int]
) -> None:
    world = World(start)
    snapshots = [world.fold.snapshot()]
    for turn, end in script:
        tentative: Tentative = {}
        written = len(world.log)
        for send in turn:
            world.judge(send, tentative)
        for header in world.log[written:]:
            world.fold.apply(header, seen_ms=header.base_offset)
        assert {producer: state.batches for producer, state in tentative.items()} == {
            producer: state.batches for producer, state in world.fold.producers() if producer in tentative
        }
        snapshots.append(world.fold.snapshot())
        if end == "restored":
            world.fold = ProducerFold.restore(snapshots[-1])
    final = world.fold.snapshot()
    assert world.replayed(ProducerFold()).snapshot() == final
    for snapshot in snapshots:
        assert world.replayed(ProducerFold.restore(snapshot)).snapshot() == final


@given(turns, beginnings, st.integers(1, 2))
def test_a_capped_fold_is_the_same_from_the_log_as_from_any_snapshot(
    script: list[tuple[list[tuple[int, int, str, int, int]], str]], start: list[int], producers_max: int
) -> None:
    world = World(start)
    for turn, _ in script:
        tentative: Tentative = {}
        written = len(world.log)
        for send in turn:
            world.judge(send, tentative)
        for header in world.log[written:]:
            world.fold.apply(header, seen_ms=0)
    capped = ProducerFold(producers_max=producers_max)
    snapshots = []
    for header in world.log:
        capped.apply(header, seen_ms=header.base_offset)
        snapshots.append(capped.snapshot())
    for snapshot in snapshots:
        restored = ProducerFold.restore(snapshot, producers_max=producers_max)
        assert world.replayed(restored).snapshot() == snapshots[-1]


@given(st.lists(sends(), max_size=20), beginnings)
def test_a_turn_whose_write_failed_might_as_well_not_have_been(
    script: list[tuple[int, int, str, int, int]], start: list[int]
) -> None:
    world = World(start)
    before = world.fold.snapshot()
    tentative: Tentative = {}
    for send in script:
        world.judge(send, tentative)
    assert world.fold.snapshot() == before
