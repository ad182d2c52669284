"""What one partition of the internal topic says about its groups: a pure function of its entries.

Theory of operation. Two kinds of state are kept apart. Here is what must outlive the node: each group's members and
generation as they were when they last changed for good (an image, in the encoding of the group's kind, which this fold
does not look into), and the offsets of every group, whatever its kind. What need not outlive it (who waits for an
answer, who was heard of when) is in the group's machine (`classic.py`), which is made anew from the image.

Offsets that belong to a transaction wait beside the others until it ends. Of an offset that was committed plainly and
one that a transaction had pending, the later one in the log counts, so every entry that sets one has a serial number.
An end with an older epoch than what is pending comes too late and hits nothing (failure row 28), and once a
transaction has ended nothing more of an older epoch is taken.
"""

from headrace.folds.group.codec import decode_op
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
from headrace.folds.group.state import (
    CommittedOffset,
    Fence,
    GroupState,
    Offsets,
    Pending,
    StoredGroup,
    encode_state,
    load_state,
)
from headrace.model.batch import Buffer
from headrace.model.errors import ProducerFencedError
from headrace.model.ids import Offset, PartitionId

# For how long the end of a producer's transaction is remembered, to refuse what comes after it.
FENCE_MS = 24 * 60 * 60 * 1000


class GroupFold(GroupState):
    @classmethod
    def restore(cls, data: Buffer) -> "GroupFold":
        fold = cls()
        load_state(fold, data)
        return fold

    def snapshot(self) -> bytes:
        return encode_state(self)

    def reach(self, end_offset: Offset) -> None:
        assert end_offset >= self.end_offset, f"{end_offset} is below {self.end_offset}"
        self.end_offset = end_offset

    def apply_entry(self, kind: int, value: bytes) -> None:
        op = decode_op(kind, value)
        if op is not None:
            self.apply(op)

    def apply(self, op: GroupOp) -> None:
        match op:
            case GroupStored():
                self.groups[op.group_id] = StoredGroup(op.kind, op.image, op.at_ms)
            case OffsetsCommitted():
                self.offsets.setdefault(op.group_id, {}).update(self._entries(op.offsets, op.at_ms))
            case OffsetsDeleted():
                self._delete_offsets(op)
            case GroupDeleted():
                self._delete_group(op.group_id)
            case TxnOffsetsPending():
                pending = self.pending.setdefault(op.producer_id, Pending(op.producer_epoch))
                pending.producer_epoch = op.producer_epoch
                pending.groups.setdefault(op.group_id, {}).update(self._entries(op.offsets, op.at_ms))
            case TxnEnded():
                self._end_transaction(op)
            case GroupConfigured():
                self.settings[op.group_id] = op.overrides
                if not op.overrides:
                    del self.settings[op.group_id]

    def _entries(self, offsets: tuple[OffsetEntry, ...], at_ms: int) -> Offsets:
        self.serial += 1
        return {
            entry.place: CommittedOffset(entry.offset, entry.leader_epoch, entry.metadata, at_ms, self.serial)
            for entry in offsets
        }

    def _delete_offsets(self, op: OffsetsDeleted) -> None:
        offsets = self.offsets.get(op.group_id, {})
        for place in op.partitions:
            offsets.pop(place, None)
        if not offsets:
            self.offsets.pop(op.group_id, None)

    def _delete_group(self, group_id: str) -> None:
        self.groups.pop(group_id, None)
        self.offsets.pop(group_id, None)
        for producer_id, pending in list(self.pending.items()):
            pending.groups.pop(group_id, None)
            if not pending.groups:
                del self.pending[producer_id]

    def _end_transaction(self, op: TxnEnded) -> None:
        pending = self.pending.get(op.producer_id)
        if pending is not None and pending.producer_epoch <= op.producer_epoch:
            del self.pending[op.producer_id]
            if op.is_committed:
                for group_id, offsets in pending.groups.items():
                    self._merge(self.offsets.setdefault(group_id, {}), offsets)
        fence = self.fences.pop(op.producer_id, None)
        epoch = op.producer_epoch if fence is None else max(op.producer_epoch, fence.producer_epoch)
        self.fences[op.producer_id] = Fence(epoch, op.at_ms)
        while self.fences:
            producer_id = next(iter(self.fences))
            if op.at_ms - self.fences[producer_id].at_ms <= FENCE_MS:
                break
            del self.fences[producer_id]

    def _merge(self, into: Offsets, pending: Offsets) -> None:
        for place, committed in pending.items():
            known = into.get(place)
            if known is None or known.serial < committed.serial:
                into[place] = committed

    # Questions.

    def knows(self, group_id: str) -> bool:
        return group_id in self.groups or group_id in self.offsets or self.has_pending(group_id)

    def has_pending(self, group_id: str, place: PartitionId | None = None) -> bool:
        """Whether a transaction that is not over holds offsets of a group, or one partition's."""
        for pending in self.pending.values():
            offsets = pending.groups.get(group_id)
            if offsets is not None and (place is None or place in offsets):
                return True
        return False

    def check_producer(self, producer_id: int, producer_epoch: int) -> None:
        """Refuse a producer whose transaction under this epoch is over, or that has begun a newer one."""
        fence = self.fences.get(producer_id)
        pending = self.pending.get(producer_id)
        newest = max(
            -1 if fence is None else fence.producer_epoch,
            -1 if pending is None else pending.producer_epoch,
        )
        if producer_epoch < newest:
            raise ProducerFencedError(f"producer {producer_id} has gone on to epoch {newest}; this is {producer_epoch}")

    def expired(self, group_id: str, *, now_ms: int, retention_ms: int) -> tuple[PartitionId, ...]:
        """Offsets of a group without members that are older than the policy allows (KIP-211).

        They count from when the group lost its last member, or from their commit where that is later.
        """
        stored = self.groups.get(group_id)
        empty_ms = 0 if stored is None else stored.at_ms
        return tuple(
            place
            for place, committed in self.offsets.get(group_id, {}).items()
            if now_ms - max(committed.at_ms, empty_ms) > retention_ms
        )
