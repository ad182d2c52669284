"""What readers of the log see in the entries of queues and groups is what those have written."""

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from tests.folds.queue.script import SUBSCRIPTION
from tests.folds.queue.test_codec import ops

from headrace.folds.group.codec import encode_op as encode_group_op
from headrace.folds.group.op import GroupDeleted, OffsetEntry, OffsetsCommitted
from headrace.folds.queue.codec import encode_op
from headrace.folds.queue.op import Op, Rejected
from headrace.model.errors import CorruptBatchError
from headrace.wire.group_entry import CommittedOffset, GroupCommit, read_commit
from headrace.wire.queue_entry import EntryKind, QueueEntry, read_entry

TOPIC = UUID(int=7)


@given(op=ops)
def test_every_entry_of_a_queue_says_when_it_was_and_which_messages_it_is_about(op: Op) -> None:
    kind, value = encode_op(SUBSCRIPTION, op)
    offsets: Any = (op.offset,) if isinstance(op, Rejected) else getattr(op, "offsets", ())
    assert read_entry(kind, value) == QueueEntry(EntryKind(kind), SUBSCRIPTION, op.at.wall_ms, offsets)


@pytest.mark.parametrize("kind", [-1, 0, 1, 99, 119, 201])
def test_what_is_no_entry_of_a_queue_is_passed_over(kind: int) -> None:
    assert read_entry(kind, b"") is None


@pytest.mark.parametrize("kind", [EntryKind.ACKED, EntryKind.LEASED, EntryKind.REJECTED, EntryKind.DEAD_LETTERED])
@pytest.mark.parametrize("size", [0, 10, 32])
def test_a_torn_entry_is_named(kind: EntryKind, size: int) -> None:
    with pytest.raises(CorruptBatchError, match=f"type {int(kind)}"):
        read_entry(kind, bytes(size))


def test_a_commit_is_read_with_its_group_its_time_and_its_offsets() -> None:
    entry = OffsetEntry(topic_id=TOPIC, partition=3, offset=70, leader_epoch=1, metadata="x")
    kind, value = encode_group_op(OffsetsCommitted(group_id="billing", offsets=(entry,), at_ms=5))
    assert read_commit(kind, value) == GroupCommit("billing", 5, (CommittedOffset(TOPIC, 3, 70),))
    kind, value = encode_group_op(GroupDeleted(group_id="billing", at_ms=5))
    assert read_commit(kind, value) is None
    with pytest.raises(CorruptBatchError, match="type 201"):
        read_commit(201, b"\xc1")
