"""Transactions of a partition, case by case."""

import pytest
from tests.folds.header import batch

from headrace.folds.producer import FOLD_NAME, Duplicate, ProducerFold, Tentative
from headrace.folds.snapshot import FoldState, encode_snapshot
from headrace.folds.transaction_index import Aborted
from headrace.model.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL
from headrace.model.errors import CoordinatorFencedError, ProducerFencedError, TransactionStateError
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import Marker

END = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL


class Partition:
    """A fold and the log that it is a fold of. Everything is committed at once."""

    def __init__(self) -> None:
        self.fold = ProducerFold()

    @property
    def end(self) -> Offset:
        return self.fold.end_offset

    @property
    def stable(self) -> int:
        return self.fold.transactions.stable_offset(self.end)

    def send(
        self, sequence: int, *, producer: int = 7, epoch: int = 0, count: int = 1, is_verified: bool = True
    ) -> Offset | Duplicate:
        header = batch(
            sequence, producer=producer, epoch=epoch, count=count, offset=self.end, attributes=ATTRIBUTE_TRANSACTIONAL
        )
        outcome = self.fold.check(header, base_offset=self.end, is_verified=is_verified)
        if isinstance(outcome, Duplicate):
            return outcome
        self.fold.apply(header, seen_ms=0)
        return Offset(header.base_offset)

    def plain(self, count: int = 1) -> None:
        self.fold.apply(batch(-1, producer=-1, count=count, offset=self.end), seen_ms=0)

    def finish(
        self,
        is_commit: bool,
        *,
        producer: int = 7,
        epoch: int = 0,
        is_bumped: bool = False,
        coordinator: int = 0,
    ) -> bool:
        header = batch(-1, producer=producer, epoch=epoch, offset=self.end, attributes=END)
        marker = Marker(is_commit, coordinator)
        tentative: Tentative = {}
        is_needed = self.fold.check_marker(
            header, marker, base_offset=self.end, tentative=tentative, is_bumped=is_bumped
        )
        if is_needed:
            self.fold.apply(header, seen_ms=0, marker=marker)
        return is_needed


def test_readers_of_committed_messages_stop_before_the_oldest_open_transaction() -> None:
    partition = Partition()
    partition.plain(2)
    assert partition.stable == 2
    partition.send(0, producer=7)
    partition.plain()
    partition.send(0, producer=8)
    assert partition.stable == 2
    partition.finish(True, producer=7)
    assert partition.stable == 4
    partition.finish(False, producer=8)
    assert partition.stable == partition.end == 7


def test_a_decision_counts_when_it_is_committed_itself() -> None:
    partition = Partition()
    partition.send(0)
    partition.finish(True)
    transactions = partition.fold.transactions
    assert transactions.stable_offset(Offset(1)) == 0
    assert transactions.stable_offset(Offset(2)) == 2


def test_aborted_transactions_are_told_to_those_who_read_where_they_were() -> None:
    partition = Partition()
    partition.send(0, producer=7)
    partition.send(0, producer=8)
    partition.finish(False, producer=8)
    partition.finish(False, producer=7)
    partition.send(1, producer=7)
    partition.finish(True, producer=7)
    transactions = partition.fold.transactions
    first, second = Aborted(7, Offset(0), Offset(3)), Aborted(8, Offset(1), Offset(2))
    assert transactions.aborted_in(Offset(0), Offset(6)) == [first, second]
    assert transactions.aborted_in(Offset(0), Offset(1)) == [first]
    assert transactions.aborted_in(Offset(3), Offset(6)) == [first]
    assert transactions.aborted_in(Offset(4), Offset(6)) == []
    transactions.forget_below(Offset(3))
    assert list(transactions.aborted()) == [first]


def test_a_transaction_that_the_coordinator_did_not_confirm_is_refused() -> None:
    partition = Partition()
    with pytest.raises(TransactionStateError):
        partition.send(0, is_verified=False)
    partition.send(0)
    assert partition.send(1, is_verified=False) == 1
    partition.finish(True)
    with pytest.raises(TransactionStateError):
        partition.send(2, is_verified=False)


def test_a_retry_of_a_stored_batch_is_answered_after_the_transaction_too() -> None:
    partition = Partition()
    partition.send(0)
    partition.finish(True)
    assert isinstance(partition.send(0, is_verified=False), Duplicate)


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    partition = Partition()
    partition.send(0)
    with pytest.raises(TransactionStateError):
        partition.fold.check(batch(1), base_offset=partition.end)


def test_a_marker_is_written_once_however_often_it_is_sent() -> None:
    partition = Partition()
    assert not partition.finish(True)
    partition.send(0)
    assert partition.finish(True)
    assert not partition.finish(True)


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """Failure row 28: the epoch is raised with every transaction, so what is open has reached the marker's epoch."""
    partition = Partition()
    partition.send(0, epoch=0)
    assert partition.finish(True, epoch=1, is_bumped=True)
    partition.send(0, epoch=1)
    with pytest.raises(ProducerFencedError):
        partition.finish(False, epoch=1, is_bumped=True)
    assert partition.finish(True, epoch=2, is_bumped=True)


def test_a_marker_of_an_older_producer_or_coordinator_is_refused() -> None:
    partition = Partition()
    partition.send(0, epoch=3)
    with pytest.raises(ProducerFencedError):
        partition.finish(False, epoch=2)
    assert partition.finish(True, epoch=3, coordinator=5)
    partition.send(1, epoch=3)
    with pytest.raises(CoordinatorFencedError):
        partition.finish(False, epoch=3, coordinator=4)


def test_a_producer_with_an_open_transaction_is_never_forgotten() -> None:
    fold = ProducerFold(producers_max=2)
    fold.apply(batch(0, producer=1, attributes=ATTRIBUTE_TRANSACTIONAL), seen_ms=0)
    for n in range(2, 6):
        fold.apply(batch(0, producer=n, offset=n), seen_ms=0)
    fold.expire(10_000, 1)
    assert [producer for producer, _ in fold.producers()] == [1]


def test_a_snapshot_has_open_and_aborted_transactions() -> None:
    partition = Partition()
    partition.send(0, producer=7)
    partition.finish(False, producer=7, coordinator=3)
    partition.send(0, producer=9, epoch=2)
    partition.plain()
    data = partition.fold.snapshot()
    restored = ProducerFold.restore(data)
    assert restored.snapshot() == data
    assert restored.is_open(9, 2)
    assert restored.transactions.stable_offset(partition.end) == 2
    assert list(restored.transactions.aborted()) == [Aborted(7, Offset(0), Offset(1))]


def test_a_snapshot_from_before_transactions_is_read() -> None:
    payload = bytes.fromhex(
        "00000001"  # one producer
        "0000000000000007" "0001" "0000000000000064" "00000002" "01"
        "00000000" "00000001" "0000000000000000" "0000000000000001" "00000000000003e8"
    )  # fmt: skip
    fold = ProducerFold.restore(encode_snapshot(FoldState(FOLD_NAME, 1, Offset(2), payload)))
    assert len(fold) == 1
    assert fold.next_sequence(7, 1) == 2
    assert not list(fold.transactions.open())
