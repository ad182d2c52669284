"""Whatever groups decide, the log alone gives the same state, byte for byte, from its start or from any snapshot."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.folds.group.codec import encode_op
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
from headrace.model.ids import PartitionId

GROUPS = st.sampled_from(["a", "b", "ü"])
TOPICS = st.sampled_from([UUID(int=1), UUID(int=2)])
PLACES = st.builds(PartitionId, TOPICS, st.integers(0, 2))
TIMES = st.sampled_from([0, 1, FENCE_MS, FENCE_MS * 2 + 1])
PRODUCERS = st.integers(1, 2)
EPOCHS = st.integers(0, 3)
ENTRIES = st.lists(
    st.builds(OffsetEntry, TOPICS, st.integers(0, 2), st.integers(0, 9), st.integers(-1, 1), st.text(max_size=2)),
    max_size=3,
).map(tuple)
OPS: st.SearchStrategy[GroupOp] = st.one_of(
    st.builds(GroupStored, GROUPS, st.sampled_from(GroupKind), st.binary(max_size=3), TIMES),
    st.builds(OffsetsCommitted, GROUPS, ENTRIES, TIMES),
    st.builds(OffsetsDeleted, GROUPS, st.lists(PLACES, max_size=2).map(tuple), TIMES),
    st.builds(GroupDeleted, GROUPS, TIMES),
    st.builds(TxnOffsetsPending, GROUPS, PRODUCERS, EPOCHS, ENTRIES, TIMES),
    st.builds(TxnEnded, PRODUCERS, EPOCHS, st.booleans(), TIMES),
    st.builds(GroupConfigured, GROUPS, st.dictionaries(st.sampled_from("ab"), st.text(max_size=1)), TIMES),
)


@settings(max_examples=150)
@given(st.lists(OPS, max_size=25), st.integers(0, 25))
def test_a_replay_from_the_start_and_from_a_snapshot_give_the_same_bytes(ops: list[GroupOp], cut: int) -> None:
    decided = GroupFold()
    replayed = GroupFold()
    resumed = GroupFold()
    for at, op in enumerate(ops):
        decided.apply(op)
        replayed.apply_entry(*encode_op(op))
        if at == cut:
            resumed = GroupFold.restore(resumed.snapshot())
        resumed.apply_entry(*encode_op(op))
    assert decided.snapshot() == replayed.snapshot() == resumed.snapshot()


@settings(max_examples=150)
@given(st.lists(OPS, max_size=25))
def test_what_is_pending_is_of_producers_that_may_still_commit(ops: list[GroupOp]) -> None:
    """The model: of each producer's ends and offsets, in order, what is later than its last end."""
    fold = GroupFold()
    for op in ops:
        if isinstance(op, TxnOffsetsPending):
            newest = max(
                fold.fences[op.producer_id].producer_epoch if op.producer_id in fold.fences else -1,
                fold.pending[op.producer_id].producer_epoch if op.producer_id in fold.pending else -1,
            )
            if op.producer_epoch < newest:
                continue  # the coordinator refuses it: check_producer
        fold.apply(op)
        for producer_id, pending in fold.pending.items():
            fold.check_producer(producer_id, pending.producer_epoch)
