"""What a fold has decided and must write, and those who wait until it is committed.

A decision changes the fold at once and leaves an op; the partition's next turn writes all ops of a turn as one control
batch. Whoever must not go on before an op is durable is told when the high watermark passes it. Ops that could not be
written (a disk with not even its reserve left) stay in line, in their order, and are tried again: memory is then ahead
of the log, and whoever waited has been told that nothing is certain.

While a write is on its way to the disk, what is decided gathers for the next one: it could not be synced sooner, and a
hundred decisions in one batch cost little more than one. What nobody waits for, a lease that is written behind its
hand-out, asks for no turn of its own: it goes with the next one, which is soon its own acknowledgement's.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from headrace.broker.partition import Partition
from headrace.host.clock import Clock
from headrace.log.partition_log import Incoming
from headrace.model.batch import read_header
from headrace.model.errors import HeadraceError
from headrace.model.ids import Offset
from headrace.wire.kafka.records import encode_control_records

_RETRY_MS = 1000
# How long something that nobody waits for may wait for company.
_BEHIND_MS = 50

OpType = TypeVar("OpType")
Told = Callable[[HeadraceError | None], None]


class Awaiting(NamedTuple):
    """Something that is told once everything below `end` is committed, or that it never will be."""

    end: Offset
    told: Told


class Ledger(Generic[OpType]):
    """The ops of one partition's subscriber on their way into its log."""

    def __init__(
        self,
        partition: Partition,
        *,
        clock: Clock,
        encode: Callable[[OpType], tuple[int, bytes]],  # the control type and the value
        merge: Callable[[OpType, OpType], OpType | None] = lambda _, __: None,  # two ops of a turn as one
    ) -> None:
        self._partition = partition
        self._clock = clock
        self._encode = encode
        self._merge = merge
        self._ops: list[OpType] = []
        self._told: list[Told] = []
        self._writing: list[OpType] = []
        self._writing_told: list[Told] = []
        self._awaiting: deque[Awaiting] = deque()
        self._written_end = Offset(0)
        self._wants_turn = False
        self._is_behind_due = False

    @property
    def has_pending(self) -> bool:
        """Whether the fold is ahead of the log."""
        return bool(self._ops or self._writing)

    @property
    def count(self) -> int:
        """Those who wait for something that is not written yet."""
        return len(self._told)

    def write(self, op: OpType, told: Told | None = None, *, is_behind: bool = False) -> None:
        """Have an op written with the next turn; one that is written behind makes none for itself."""
        merged = self._merge(self._ops[-1], op) if self._ops else None
        if merged is None:
            self._ops.append(op)
        else:
            self._ops[-1] = merged
        if told is not None:
            self._told.append(told)
        if not is_behind:
            self.want_turn()
        elif not self._is_behind_due:
            self._is_behind_due = True
            self._clock.call_later(_BEHIND_MS, self._write_behind)

    def _write_behind(self) -> None:
        self._is_behind_due = False
        if self._ops and self._partition.log.broken is None:
            self.want_turn()

    def want_turn(self, at_once: bool = False) -> None:
        """Have a turn written: now, or when what was written before is committed."""
        if at_once:
            self._partition.write_soon()
        elif self._written_end <= self._partition.high_watermark:
            self._partition.write_after_reading()
        else:
            self._wants_turn = True

    def tell_written(self, told: Told) -> None:
        """Tell once everything that was decided so far is committed."""
        if self._ops:
            self._told.append(told)
        elif self._writing:
            self._writing_told.append(told)
        else:
            self.tell_committed(self._partition.end_offset, told)

    def tell_committed(self, end: Offset, told: Told) -> None:
        if end <= self._partition.high_watermark:
            told(None)
        else:
            self._awaiting.append(Awaiting(end, told))

    # The partition's turns.

    def contribute(self, *, timestamp_ms: int) -> list[Incoming]:
        if not self._ops:
            return []
        self._writing, self._ops = self._ops, []
        self._writing_told, self._told = self._told, []
        batch = encode_control_records([self._encode(op) for op in self._writing], timestamp_ms=timestamp_ms)
        return [Incoming(read_header(batch), memoryview(batch))]

    def contributed(self, entries: Sequence[Offset]) -> Offset | None:
        """The batch was written; returns where it ends."""
        self._wants_turn = False
        if not entries:
            return None
        end = self._written_end = Offset(entries[0] + len(self._writing))
        told, self._writing, self._writing_told = self._writing_told, [], []
        for tell in told:
            self.tell_committed(end, tell)
        return end

    def note_written(self, end: Offset) -> None:
        """Messages were written with the turn, up to here."""
        self._written_end = end

    def refused(self, error: HeadraceError) -> None:
        told, self._writing_told = self._writing_told, []
        self._ops, self._writing = self._writing + self._ops, []
        for tell in told:
            tell(error)
        if self._ops and self._partition.log.broken is None:
            self._clock.call_later(_RETRY_MS, self._partition.write_soon)

    def advanced(self) -> None:
        """The high watermark has moved."""
        high_watermark = self._partition.high_watermark
        while self._awaiting and self._awaiting[0].end <= high_watermark:
            self._awaiting.popleft().told(None)
        if self._wants_turn and self._written_end <= high_watermark:
            self._wants_turn = False
            self._partition.write_after_reading()

    def end(self, error: HeadraceError) -> None:
        """Nothing more will be committed: everybody is told."""
        self.refused(error)
        told, self._told = self._told, []
        for tell in told:
            tell(error)
        while self._awaiting:
            self._awaiting.popleft().told(error)
