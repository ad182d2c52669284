"""One partition of an internal topic, and the state that follows from it.

Groups and transactions are folds over internal topics, as queues are over users' topics: decided in memory, written as
control entries with the partition's next turn, told when committed (`ledger.py`). Nothing but the fold reads such a
topic, so everything below the fold's durable snapshot may be cleaned away, and the log stays as small as what came
since.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

from headrace.broker.ledger import Ledger, Told
from headrace.broker.partition import Partition
from headrace.broker.restore import restore_fold
from headrace.broker.subscriber import Contribution
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.log.partition_log import Incoming
from headrace.log.snapshots import Snapshot
from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset
from headrace.wire.kafka.records import control_kind, decode_batch

_logger = logging.getLogger(__name__)


class StateFold(Protocol):
    """A fold that an internal topic holds."""

    @property
    def end_offset(self) -> Offset:
        """Every entry below it was applied."""

    def apply_entry(self, kind: int, value: bytes) -> None:
        """Take over an entry of the log. A kind that it does not know was written by a newer headrace."""

    def reach(self, end_offset: Offset) -> None: ...

    def snapshot(self) -> bytes: ...


FoldType = TypeVar("FoldType", bound=StateFold)
OpType = TypeVar("OpType")


async def restore_state(
    partition: Partition,
    *,
    name: str,
    empty: Callable[[Offset], FoldType],
    restore: Callable[[Buffer], FoldType],
    store: LogStore,
    threads: Threads,
) -> FoldType:
    """A fold at the end of its internal topic's partition; see `restore_fold`."""

    def apply(fold: FoldType, _: BatchHeader, batch: memoryview) -> None:
        _apply(fold, batch)

    return await restore_fold(
        partition, name=name, empty=empty, restore=restore, apply=apply, store=store, threads=threads
    )


def _apply(fold: StateFold, batch: Buffer) -> None:
    if read_header(batch).is_control:
        for record in decode_batch(batch):
            fold.apply_entry(control_kind(record), record.value or b"")


class StateLog(Generic[FoldType, OpType]):
    """A fold and its way into its partition. Its owner decides, and calls `write` with what it has decided."""

    def __init__(
        self,
        partition: Partition,
        fold: FoldType,
        *,
        name: str,
        clock: Clock,
        encode: Callable[[OpType], tuple[int, bytes]],  # the control type and the value
    ) -> None:
        self.partition = partition
        self.fold = fold
        self._name = name
        self._clock = clock
        self._ledger: Ledger[OpType] = Ledger(partition, clock=clock, encode=encode)
        partition.attach(self)
        partition.log.retainer = self

    def write(self, op: OpType, told: Told | None = None) -> None:
        """Have an op, which the fold has applied, written with the next turn; told when it is committed."""
        self.partition.log.check_usable()
        self._ledger.write(op, told)

    def tell_written(self, told: Told) -> None:
        """Tell once everything that was decided so far is committed."""
        self._ledger.tell_written(told)

    # The partition's side.

    def contribute(self) -> Contribution:
        return Contribution(self._ledger.contribute(timestamp_ms=self._clock.wall_ms()), ())

    def contributed(self, entries: Sequence[Offset], messages: Sequence[Offset]) -> None:
        end = self._ledger.contributed(entries)
        if end is not None:
            self.fold.reach(end)

    def refused_messages(self, error: HeadraceError) -> None:
        """It sends none."""

    def refused(self, error: HeadraceError) -> None:
        self._ledger.refused(error)

    def admit(self, batches: Sequence[Incoming]) -> None:
        """No producer may write here."""

    def written(self, batch: Incoming, base_offset: Offset) -> None:
        """Nobody else writes here; what an operator's tool might have is no entry and is passed over."""
        _apply(self.fold, batch.data)
        self.fold.reach(Offset(base_offset + batch.header.last_offset_delta + 1))

    def advanced(self) -> None:
        try:
            self.partition.log.check_usable()
        except HeadraceError as error:
            self._ledger.end(error)
            return
        self._ledger.advanced()

    @property
    def has_pending(self) -> bool:
        return self._ledger.has_pending

    @property
    def pending_count(self) -> int:
        return self._ledger.count

    def snapshot(self) -> Snapshot | None:
        if self._ledger.has_pending:
            return None
        return Snapshot(self._name, self.fold.end_offset, self.fold.snapshot())

    # What of the log must stay: nothing that a durable snapshot covers, which the log itself looks after.

    def limit(self) -> Offset:
        return self.partition.high_watermark

    def live_count(self, start: Offset, end: Offset) -> int:
        return 0

    def live_offsets(self, start: Offset, end: Offset) -> Sequence[int]:
        return ()
