"""Offsets and images of one partition's groups, as the log's entries leave them."""

from uuid import UUID

import pytest

from headrace.folds.group.codec import KINDS, decode_op, encode_op
from headrace.folds.group.fold import FENCE_MS, GroupFold
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.op import (
    GroupConfigured,
    GroupDeleted,
    GroupOp,
    GroupStored,
    OffsetEntry,
    OffsetsCommitted,
    OffsetsDeleted,
    TxnEnded,
    TxnOffsetsPending,
)
from headrace.model.errors import CorruptBatchError, CorruptLogError, ProducerFencedError
from headrace.model.ids import Offset, PartitionId

TOPIC = UUID(int=7)
DAY_MS = 24 * 60 * 60 * 1000


def at(offset: int, partition: int = 0) -> OffsetEntry:
    return OffsetEntry(TOPIC, partition, offset, 3, "mine")


def committed(fold: GroupFold, group: str = "g", partition: int = 0) -> int | None:
    found = fold.offsets.get(group, {}).get(PartitionId(TOPIC, partition))
    return None if found is None else found.offset


def folded(*ops: GroupOp) -> GroupFold:
    fold = GroupFold()
    for op in ops:
        fold.apply(op)
    return fold


EVERY_OP: tuple[GroupOp, ...] = (
    GroupStored("g", GroupKind.CLASSIC, b"image", 5),
    OffsetsCommitted("g", (at(1), at(2, 1)), 6),
    OffsetsDeleted("g", (PartitionId(TOPIC, 1),), 7),
    GroupDeleted("g", 8),
    TxnOffsetsPending("g", 9, 0, (at(3),), 10),
    TxnEnded(9, 0, True, 11),
    GroupConfigured("g", {"consumer.session.timeout.ms": "9"}, 12),
)


def test_every_entry_reads_back_as_it_was_written() -> None:
    assert {type(op) for op in EVERY_OP} == set(KINDS)
    for op in EVERY_OP:
        assert decode_op(*encode_op(op)) == op


def test_an_entry_of_a_newer_kind_is_passed_over() -> None:
    fold = GroupFold()
    fold.apply_entry(999, b"?")
    assert not fold.groups


def test_a_damaged_entry_is_named() -> None:
    with pytest.raises(CorruptBatchError, match="type 201"):
        decode_op(201, b"\xff")


def test_the_last_commit_of_a_partition_counts() -> None:
    fold = folded(OffsetsCommitted("g", (at(1), at(5, 1)), 1), OffsetsCommitted("g", (at(2),), 2))
    assert (committed(fold), committed(fold, partition=1)) == (2, 5)
    assert fold.knows("g")
    assert not fold.knows("h")


def test_a_deleted_group_leaves_nothing_behind() -> None:
    fold = folded(*EVERY_OP[:3], TxnOffsetsPending("g", 9, 0, (at(3),), 10), GroupDeleted("g", 11))
    assert not fold.knows("g")
    fold.apply(TxnEnded(9, 0, True, 12))
    assert committed(fold) is None


def test_offsets_of_a_transaction_count_once_it_commits() -> None:
    fold = folded(OffsetsCommitted("g", (at(1),), 1), TxnOffsetsPending("g", 9, 0, (at(5),), 2))
    assert committed(fold) == 1
    assert fold.has_pending("g", PartitionId(TOPIC, 0))
    assert not fold.has_pending("g", PartitionId(TOPIC, 1))
    fold.apply(TxnEnded(9, 0, True, 3))
    assert committed(fold) == 5
    assert not fold.has_pending("g")


def test_offsets_of_a_transaction_that_aborts_never_count() -> None:
    fold = folded(
        OffsetsCommitted("g", (at(1),), 1), TxnOffsetsPending("g", 9, 0, (at(5),), 2), TxnEnded(9, 0, False, 3)
    )
    assert committed(fold) == 1


def test_a_plain_commit_after_the_transactions_offset_is_the_later_one() -> None:
    fold = folded(
        TxnOffsetsPending("g", 9, 0, (at(5),), 1), OffsetsCommitted("g", (at(7),), 2), TxnEnded(9, 0, True, 3)
    )
    assert committed(fold) == 7


def test_a_late_end_does_not_hit_the_next_transaction() -> None:
    fold = folded(TxnOffsetsPending("g", 9, 1, (at(5),), 1), TxnEnded(9, 0, True, 2))
    assert committed(fold) is None
    assert fold.has_pending("g")
    fold.apply(TxnEnded(9, 1, True, 3))
    assert committed(fold) == 5


def test_an_end_that_is_repeated_changes_nothing() -> None:
    ops = (TxnOffsetsPending("g", 9, 0, (at(5),), 1), TxnEnded(9, 0, True, 2))
    assert folded(*ops, TxnEnded(9, 0, True, 2)).snapshot() == folded(*ops).snapshot()


def test_a_producer_that_was_fenced_commits_nothing_more() -> None:
    fold = folded(TxnOffsetsPending("g", 9, 1, (at(5),), 1))
    with pytest.raises(ProducerFencedError):
        fold.check_producer(9, 0)
    fold.apply(TxnEnded(9, 2, True, 2))
    with pytest.raises(ProducerFencedError):
        fold.check_producer(9, 1)
    fold.check_producer(9, 2)
    fold.apply(TxnEnded(10, 0, True, 3 + FENCE_MS))
    assert list(fold.fences) == [10], "it is forgotten after a day"


def test_offsets_expire_after_the_group_is_empty_for_long_enough() -> None:
    fold = folded(
        OffsetsCommitted("g", (at(1),), 0),
        GroupStored("g", GroupKind.CLASSIC, b"empty", 5 * DAY_MS),
        OffsetsCommitted("g", (at(1, 1),), 6 * DAY_MS),
    )
    week_ms = 7 * DAY_MS
    assert fold.expired("g", now_ms=12 * DAY_MS, retention_ms=week_ms) == ()
    assert fold.expired("g", now_ms=12 * DAY_MS + 1, retention_ms=week_ms) == (PartitionId(TOPIC, 0),)
    assert len(fold.expired("g", now_ms=13 * DAY_MS + 1, retention_ms=week_ms)) == 2
    assert fold.expired("unknown", now_ms=13 * DAY_MS, retention_ms=week_ms) == ()


def test_a_snapshot_reads_back_as_the_same_state() -> None:
    fold = folded(*EVERY_OP[:3], *EVERY_OP[4:], TxnOffsetsPending("h", 12, 4, (at(3),), 10))
    fold.reach(Offset(6))
    again = GroupFold.restore(fold.snapshot())
    assert again.snapshot() == fold.snapshot()
    assert again.end_offset == 6
    assert again.has_pending("h")


def test_a_damaged_snapshot_is_refused() -> None:
    data = bytearray(folded(*EVERY_OP[:3]).snapshot())
    data[-1] ^= 1
    with pytest.raises(CorruptLogError):
        GroupFold.restore(bytes(data))
