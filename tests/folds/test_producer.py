"""Idempotent producers, case by case."""

import pytest
from tests.folds.header import batch

from headrace.folds.producer import FRESH, Duplicate, ProducerFold, Tentative
from headrace.model.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, SEQUENCE_LIMIT, BatchHeader
from headrace.model.errors import (
    CorruptLogError,
    DuplicateSequenceError,
    InvalidRecordError,
    OutOfOrderSequenceError,
    ProducerFencedError,
)
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import Marker


class Partition:
    """A fold and the log that it is a fold of."""

    def __init__(self) -> None:
        self.fold = ProducerFold()

    def send(self, header: BatchHeader, seen_ms: int = 0) -> Offset | Duplicate:
        """Check and, if it is fresh, write. Returns where it was written."""
        offset = self.fold.end_offset
        answer = self.fold.check(header, base_offset=offset)
        if isinstance(answer, Duplicate):
            return answer
        self.fold.apply(header._replace(base_offset=offset, max_timestamp_ms=1000 + offset), seen_ms=seen_ms)
        return offset


def test_sequences_that_follow_are_fresh() -> None:
    partition = Partition()
    assert partition.send(batch(0, count=3)) == 0
    assert partition.send(batch(3, count=2)) == 3
    assert partition.send(batch(5)) == 5
    assert partition.fold.end_offset == 6


def test_a_retry_is_answered_with_the_first_offset_and_not_stored() -> None:
    partition = Partition()
    sent = [batch(n * 2, count=2) for n in range(5)]
    for header in sent:
        partition.send(header)
    for n, header in enumerate(sent):
        assert partition.send(header) == Duplicate(Offset(n * 2), Offset(n * 2 + 1), 1000 + n * 2)
    assert partition.fold.end_offset == 10


def test_a_gap_is_refused_and_the_missing_batch_still_fits() -> None:
    partition = Partition()
    partition.send(batch(0))
    with pytest.raises(OutOfOrderSequenceError, match="1 comes next"):
        partition.send(batch(2))
    assert partition.send(batch(1)) == 1
    assert partition.send(batch(2)) == 2


def test_a_batch_older_than_the_window_is_known_to_be_stored_without_its_offset() -> None:
    partition = Partition()
    for n in range(6):
        partition.send(batch(n))
    with pytest.raises(DuplicateSequenceError):
        partition.send(batch(0))
    assert isinstance(partition.send(batch(1)), Duplicate)


def test_records_that_were_stored_in_other_batches_are_stored_all_the_same() -> None:
    partition = Partition()
    partition.send(batch(0, count=4))
    with pytest.raises(DuplicateSequenceError):
        partition.send(batch(1, count=2))


def test_a_batch_that_is_half_stored_is_refused_as_out_of_order() -> None:
    partition = Partition()
    partition.send(batch(0, count=4))
    with pytest.raises(OutOfOrderSequenceError):
        partition.send(batch(2, count=5))


def test_an_unknown_producer_may_begin_anywhere() -> None:
    partition = Partition()
    assert partition.send(batch(500)) == 0
    assert partition.send(batch(501)) == 1


def test_a_sequence_before_the_first_one_known_is_not_called_stored() -> None:
    partition = Partition()
    partition.send(batch(500))
    with pytest.raises(OutOfOrderSequenceError):
        partition.send(batch(499))


def test_sequences_wrap_to_zero() -> None:
    partition = Partition()
    last = SEQUENCE_LIMIT - 1
    partition.send(batch(last - 1))
    partition.send(batch(last, count=3))
    assert partition.send(batch(2)) == 4
    assert partition.send(batch(last, count=3)) == Duplicate(Offset(1), Offset(3), 1001)
    with pytest.raises(OutOfOrderSequenceError):
        partition.send(batch(4))


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    partition = Partition()
    partition.send(batch(0, epoch=3))
    with pytest.raises(OutOfOrderSequenceError):
        partition.send(batch(1, epoch=4))
    partition.send(batch(0, epoch=4))
    with pytest.raises(ProducerFencedError):
        partition.send(batch(1, epoch=3))
    with pytest.raises(ProducerFencedError):
        partition.send(batch(0, epoch=3))
    assert partition.send(batch(1, epoch=4)) == 2


def test_producers_do_not_disturb_each_other_and_plain_batches_are_always_fresh() -> None:
    partition = Partition()
    partition.send(batch(0, producer=1))
    partition.send(batch(0, producer=2))
    for _ in range(3):
        partition.send(batch(-1, producer=-1, epoch=-1))
    assert partition.send(batch(1, producer=1)) == 5
    assert len(partition.fold) == 2


def test_a_producer_id_without_epoch_or_sequence_is_refused() -> None:
    partition = Partition()
    with pytest.raises(InvalidRecordError):
        partition.send(batch(-1))
    with pytest.raises(InvalidRecordError):
        partition.send(batch(0, epoch=-1))


def test_a_transaction_marker_has_no_sequence_and_may_bring_a_new_epoch() -> None:
    fold = ProducerFold()
    attributes = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL
    fold.apply(batch(0, offset=0), seen_ms=0)
    fold.apply(batch(-1, offset=1, attributes=attributes), seen_ms=0, marker=Marker(True, 0))
    assert fold.check(batch(1), base_offset=Offset(2)) is FRESH
    fold.apply(batch(-1, epoch=1, offset=2, attributes=attributes), seen_ms=0, marker=Marker(False, 0))
    with pytest.raises(ProducerFencedError):
        fold.check(batch(2), base_offset=Offset(3))
    with pytest.raises(OutOfOrderSequenceError):
        fold.check(batch(2, epoch=1), base_offset=Offset(3))
    assert fold.check(batch(0, epoch=1), base_offset=Offset(3)) is FRESH


def test_batches_of_one_turn_are_checked_before_any_is_written() -> None:
    fold = ProducerFold()
    tentative: Tentative = {}
    for n in range(7):
        assert fold.check(batch(n), base_offset=Offset(n), tentative=tentative) is FRESH
    assert fold.check(batch(6), base_offset=Offset(7), tentative=tentative) == Duplicate(Offset(6), Offset(6), 1000)
    with pytest.raises(OutOfOrderSequenceError):
        fold.check(batch(8), base_offset=Offset(7), tentative=tentative)
    for n in range(7):
        fold.apply(batch(n, offset=n), seen_ms=0)
    assert fold.check(batch(7), base_offset=Offset(7)) is FRESH


def test_a_failed_write_leaves_no_trace() -> None:
    partition = Partition()
    partition.send(batch(0))
    before = partition.fold.snapshot()
    tentative: Tentative = {}
    partition.fold.check(batch(1), base_offset=Offset(1), tentative=tentative)
    partition.fold.check(batch(0, epoch=9), base_offset=Offset(2), tentative=tentative)
    assert partition.fold.snapshot() == before
    assert partition.send(batch(1)) == 1


def test_silent_producers_are_forgotten() -> None:
    partition = Partition()
    partition.send(batch(0, producer=1), seen_ms=1000)
    partition.send(batch(0, producer=2), seen_ms=2000)
    assert partition.fold.expire(1999, 1000) == 0
    assert partition.fold.expire(2000, 1000) == 1
    assert [producer for producer, _ in partition.fold.producers()] == [2]
    assert partition.send(batch(9, producer=1)) == 2


def test_above_the_cap_the_one_that_was_silent_longest_is_forgotten() -> None:
    fold = ProducerFold(producers_max=2)
    for offset, producer in enumerate([1, 2, 1, 3]):
        fold.apply(batch(0, producer=producer, offset=offset), seen_ms=0)
    assert [producer for producer, _ in fold.producers()] == [1, 3]


def test_a_damaged_snapshot_is_not_restored() -> None:
    partition = Partition()
    partition.send(batch(0))
    data = bytearray(partition.fold.snapshot())
    data[-1] ^= 1
    with pytest.raises(CorruptLogError):
        ProducerFold.restore(bytes(data))


def test_batches_cannot_be_applied_out_of_order() -> None:
    fold = ProducerFold(end_offset=Offset(10))
    with pytest.raises(AssertionError):
        fold.apply(batch(0, offset=9), seen_ms=0)
