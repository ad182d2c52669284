"""The transaction fold: what each transactional id may do next.

Theory of operation. A transactional id belongs to one producer at a time, known by a producer id and an epoch; whoever
asks for the id anew gets a higher epoch, and everything that comes with a lower one is refused from then on.

    Empty -> Ongoing -> PrepareCommit -> CompleteCommit -> Ongoing, the next one, ...
                     -> PrepareAbort  -> CompleteAbort  -> Ongoing, the next one, ...
    and from Empty and both Complete states: a new producer -> Empty; unused for long -> forgotten

Every participant (a partition, a group, a queue's partition with acknowledgements) is noted durably before it gets
anything of the transaction, so whoever ends the transaction knows all of them. The decision is the entry `Prepare...`:
once it is committed nothing changes it, and the driver tells the participants, as often as it takes (row 29). When all
of them have it, `Complete...` lets the next transaction begin. Nothing is told before the decision is committed.

Two ways of numbering:
- classic: the epoch stays for all transactions of a producer, and markers have it;
- KIP-890: each end raises the epoch by one, and the markers have the raised one, so that nothing late of one
  transaction can touch the next (row 28).
A transaction that is ended for its producer (its time-out is over, a new instance took the id) is aborted with a raised
epoch in both. When a producer's epochs are used up it gets another producer id.

Pure: a decision returns the transaction as it is to be; the caller stores that, which is an entry of the log.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

import msgspec

from headrace.folds.snapshot import FoldState, decode_snapshot, encode_snapshot
from headrace.folds.transaction.codec import ENCODER, Op, Stored, decode_op
from headrace.folds.transaction.transaction import (
    AT_REST,
    EPOCH_MAX,
    NO_PRODUCER,
    PREPARED,
    State,
    Transaction,
)
from headrace.model.batch import Buffer
from headrace.model.errors import (
    ConcurrentTransactionsError,
    CorruptLogError,
    ProducerFencedError,
    ProducerMappingError,
    TransactionStateError,
)
from headrace.model.ids import Offset, PartitionId

FOLD_NAME = "transaction"
_STATE_VERSION = 1
_START = Offset(0)

T = TypeVar("T", PartitionId, str)


class Producer(NamedTuple):
    """Who asks: a transactional id with the producer id and epoch that it was given."""

    transactional_id: str
    producer_id: int
    epoch: int


class Ending(NamedTuple):
    """A transaction that is to end, or is ended."""

    transaction: Transaction
    is_new: bool  # False: this was decided before, and whoever asks again gets the same answer


class TransactionFold:
    """The transactional ids of one partition of the internal topic, as of `end_offset`."""

    def __init__(self, *, end_offset: Offset = _START) -> None:
        self._end_offset = end_offset
        self._transactions: dict[str, Transaction] = {}

    # Entries.

    @property
    def end_offset(self) -> Offset:
        return self._end_offset

    def reach(self, end_offset: Offset) -> None:
        self._end_offset = max(self._end_offset, end_offset)

    def apply(self, op: Op) -> None:
        if isinstance(op, Stored):
            self._transactions[op.transaction.id] = op.transaction
        else:
            self._transactions.pop(op.id, None)

    def apply_entry(self, kind: int, value: bytes) -> None:
        op = decode_op(kind, value)
        if op is not None:
            self.apply(op)

    # What is there.

    def get(self, id: str) -> Transaction | None:
        return self._transactions.get(id)

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def __len__(self) -> int:
        return len(self._transactions)

    # A producer begins.

    def create(self, id: str, *, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
        assert id not in self._transactions
        return Transaction(
            id=id, producer_id=producer_id, epoch=0, timeout_ms=timeout_ms, state=State.EMPTY, updated_ms=now_ms
        )

    def renew(
        self, id: str, *, expected: tuple[int, int] | None, new_producer_id: int, timeout_ms: int, now_ms: int
    ) -> Transaction:
        """Give an id that is at rest to a new instance of its producer, which fences the last one.

        `expected`: the producer id and epoch that the caller has (KIP-360). `new_producer_id` is used only when the
        epochs are used up.
        """
        known = self._transactions[id]
        assert known.state in AT_REST
        if expected is not None and expected != (known.producer_id, known.epoch):
            if expected == (known.last_producer_id, known.last_epoch) and known.state is State.EMPTY:
                return known  # asked again, because the answer got lost
            raise _fenced(known, *expected)
        changes: dict[str, int] = {"producer_id": known.producer_id, "epoch": known.epoch + 1}
        if known.is_exhausted:
            changes = {"producer_id": new_producer_id, "epoch": 0}
        last = {"last_producer_id": NO_PRODUCER, "last_epoch": -1}
        if expected is not None:
            last = {"last_producer_id": expected[0], "last_epoch": expected[1]}
        return msgspec.structs.replace(
            known, state=State.EMPTY, timeout_ms=timeout_ms, updated_ms=now_ms, **changes, **last
        )

    def check_expected(self, id: str, expected: tuple[int, int]) -> None:
        """Refuse a caller whose producer id and epoch are neither the present nor the last ones."""
        known = self._transactions.get(id)
        if known is None:
            raise ProducerMappingError(f"nothing is known of the transactional id {id}; begin without a producer id")
        if expected not in ((known.producer_id, known.epoch), (known.last_producer_id, known.last_epoch)):
            raise _fenced(known, *expected)

    # A transaction goes on.

    def add(
        self,
        producer: Producer,
        *,
        partitions: Iterable[PartitionId] = (),
        acknowledgements: Iterable[PartitionId] = (),
        groups: Iterable[str] = (),
        now_ms: int,
    ) -> Transaction | None:
        """Let participants join, beginning a transaction where none is open. None: all of them take part already."""
        known = self._current(producer)
        if known.state in PREPARED:
            raise ConcurrentTransactionsError(
                f"the last transaction of {known.id} is still being ended; retry in a moment"
            )
        if known.state is not State.ONGOING:
            known = msgspec.structs.replace(
                known, state=State.ONGOING, started_ms=now_ms, is_bumped=False, next_producer_id=NO_PRODUCER
            )
        joined = msgspec.structs.replace(
            known,
            partitions=_union(known.partitions, partitions),
            acknowledgements=_union(known.acknowledgements, acknowledgements),
            groups=_union(known.groups, groups),
        )
        if joined == self._transactions[known.id]:
            return None
        return msgspec.structs.replace(joined, updated_ms=now_ms)

    def verify(
        self,
        producer: Producer,
        *,
        partition: PartitionId | None = None,
        acknowledgement: PartitionId | None = None,
        group: str | None = None,
    ) -> None:
        """Refuse what does not belong to the producer's open transaction."""
        known = self._current(producer)
        if (
            known.state is not State.ONGOING
            or (partition is not None and partition not in known.partitions)
            or (acknowledgement is not None and acknowledgement not in known.acknowledgements)
            or (group is not None and group not in known.groups)
        ):
            raise TransactionStateError(
                f"this is not part of an open transaction of {known.id}, which is {known.state.value}; "
                "abort and begin anew"
            )

    # A transaction ends.

    def end(self, producer: Producer, *, is_commit: bool, is_bumped: bool, new_producer_id: int, now_ms: int) -> Ending:
        """Decide an open transaction, with the epoch raised or not. What was decided before is not decided again."""
        known = self._transactions.get(producer.transactional_id)
        prepared, complete = _ends(is_commit)
        if known is not None and known.state in (prepared, complete) and _was_asked(known, producer, is_bumped):
            return Ending(known, False)
        known = self._current(producer)
        is_empty_abort = is_bumped and not is_commit and known.state in AT_REST
        if known.state is not State.ONGOING and not is_empty_abort:
            raise TransactionStateError(
                f"the transaction of {known.id} is {known.state.value} and cannot be "
                f"{'committed' if is_commit else 'aborted'}"
            )
        ended = msgspec.structs.replace(
            known,
            state=prepared,
            updated_ms=now_ms,
            is_bumped=is_bumped,
            last_producer_id=known.producer_id,
            last_epoch=known.epoch,
        )
        if is_bumped:
            ended = msgspec.structs.replace(
                ended,
                epoch=min(known.epoch + 1, EPOCH_MAX),
                next_producer_id=new_producer_id if known.is_exhausted else NO_PRODUCER,
            )
        return Ending(ended, True)

    def fence(self, id: str, *, now_ms: int) -> Transaction:
        """Abort an open transaction for its producer, whatever that does next: its epoch is over."""
        known = self._transactions[id]
        assert known.state is State.ONGOING
        return msgspec.structs.replace(
            known,
            state=State.PREPARE_ABORT,
            updated_ms=now_ms,
            is_bumped=True,
            epoch=min(known.epoch + 1, EPOCH_MAX),
            last_producer_id=NO_PRODUCER,
            last_epoch=-1,
        )

    def complete(self, id: str, *, now_ms: int) -> Transaction:
        """Every participant has heard how the transaction ended."""
        known = self._transactions[id]
        assert known.state in PREPARED
        _, complete = _ends(known.state is State.PREPARE_COMMIT)
        producer_id, epoch = known.following
        return msgspec.structs.replace(
            known,
            state=complete,
            producer_id=producer_id,
            epoch=epoch,
            next_producer_id=NO_PRODUCER,
            updated_ms=now_ms,
            partitions=(),
            acknowledgements=(),
            groups=(),
        )

    def idle(self, *, now_ms: int, after_ms: int) -> list[str]:
        """Ids that nobody has used for so long and that have nothing open."""
        return [
            known.id
            for known in self._transactions.values()
            if known.state in AT_REST and now_ms - known.updated_ms >= after_ms
        ]

    def _current(self, producer: Producer) -> Transaction:
        id, producer_id, epoch = producer
        known = self._transactions.get(id)
        if known is None or known.producer_id != producer_id:
            raise ProducerMappingError(
                f"producer id {producer_id} does not belong to the transactional id {id}; begin the producer anew"
            )
        if known.epoch != epoch:
            raise _fenced(known, producer_id, epoch)
        return known

    # Snapshots.

    def snapshot(self) -> bytes:
        payload = ENCODER.encode([self._transactions[id] for id in sorted(self._transactions)])
        return encode_snapshot(FoldState(FOLD_NAME, _STATE_VERSION, self._end_offset, payload))

    @classmethod
    def restore(cls, data: Buffer, *, file: str = "transaction snapshot") -> "TransactionFold":
        """The fold as it was when the snapshot was taken. An error says not to use it: replay the log instead."""
        state = decode_snapshot(data, fold=FOLD_NAME, version_max=_STATE_VERSION, file=file)
        try:
            transactions = msgspec.msgpack.decode(state.payload, type=list[Transaction])
        except msgspec.DecodeError as error:
            raise CorruptLogError(
                file=file, position=0, expected="transactions", found=error, what="content"
            ) from error
        fold = cls(end_offset=state.end_offset)
        fold._transactions = {transaction.id: transaction for transaction in transactions}
        return fold


def _ends(is_commit: bool) -> tuple[State, State]:
    if is_commit:
        return State.PREPARE_COMMIT, State.COMPLETE_COMMIT
    return State.PREPARE_ABORT, State.COMPLETE_ABORT


def _was_asked(known: Transaction, producer: Producer, is_bumped: bool) -> bool:
    """Whether this is the request that ended the transaction, once more."""
    asked = producer.producer_id, producer.epoch
    if asked != (known.last_producer_id, known.last_epoch):
        return False
    return is_bumped == known.is_bumped


def _union(known: tuple[T, ...], new: Iterable[T]) -> tuple[T, ...]:
    return tuple(sorted(set(known).union(new)))


def _fenced(known: Transaction, producer_id: int, epoch: int) -> ProducerFencedError:
    return ProducerFencedError(
        f"{known.id} belongs to producer {known.producer_id} in epoch {known.epoch} now, and this is producer "
        f"{producer_id} in epoch {epoch}: a newer instance took over, or its transaction was ended for it"
    )
