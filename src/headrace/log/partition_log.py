"""One partition's log: segments back to back, appended to by one writer.

Theory of operation. Four offsets, in this order:

    start_offset <= recovery_point <= durable_offset <= end_offset

Everything below `end_offset` that was not cleaned away is in the page cache, but for the active segment's `tail`:
batches that the journal makes durable are kept in memory until somebody reads them, many have gathered, or they are
synced. Below `durable_offset` everything is on stable storage (in the segment, or in the node's journal), and below
`recovery_point` on stable storage in the segment itself, with a checkpoint that says so. Only whole batches are ever
appended, so all four are batch boundaries, except that `start_offset` may stand inside a batch after records were
deleted. Closed segments below the recovery point may have gaps where messages were cleaned away (`clean.py`): an offset
in one is read as the next batch.

This class changes memory and writes to the page cache; it syncs nothing. What must be synced for a promise to hold is
handed out as a plan (`plan_flush`), carried out by the driver in a thread, and reported back (`flushed`). After a write
or a sync failed in a way that leaves the file in doubt, the log is `broken`: it refuses everything until it is opened
again and recovered (failure rows 15 and 22).
"""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from headrace.host.disk import Disk
from headrace.log import disk_error
from headrace.log.checkpoint import Checkpoint
from headrace.log.claim import Claim
from headrace.log.cleaned import Cleaned
from headrace.log.compacted import Compacted
from headrace.log.epochs import EpochTable
from headrace.log.files import Files
from headrace.log.flush_plan import FlushPlan, FlushPutOffError
from headrace.log.index import SparseIndex
from headrace.log.reader import Located, Reads, Slice, read_batches
from headrace.log.retainer import Retainer
from headrace.log.segment import Segment
from headrace.log.segment_list import SegmentList
from headrace.log.segment_writer import give_back, take_tail, write_buffers
from headrace.log.snapshots import TakenSnapshot
from headrace.log.transactions import Transactions
from headrace.model.batch import BatchHeader, Buffer, assign
from headrace.model.errors import (
    CorruptLogError,
    DiskFailedError,
    DiskFullError,
    HeadraceError,
    OffsetOutOfRangeError,
    PartitionOfflineError,
    UnknownTopicError,
)
from headrace.model.ids import Epoch, Offset, PartitionId
from headrace.model.topic import TopicConfig

_logger = logging.getLogger(__name__)

T = TypeVar("T")

# Deferred batches of one partition. All partitions' together are bounded by the journal, which holds them too.
_TAIL_COUNT_MAX = 1000


class Incoming(NamedTuple):
    """A checked batch about to be stored. The log writes offset and epoch into its bytes."""

    header: BatchHeader
    data: memoryview


def _nobody() -> None:
    """Nobody listens yet."""


class PartitionLog:
    def __init__(
        self,
        *,
        id: PartitionId,
        directory: str,
        config: TopicConfig,
        disk: Disk,
        files: Files,
        segments: list[Segment],
        epochs: EpochTable,
        start_offset: Offset,
        load_index: Callable[[Segment], SparseIndex],  # blocks
    ) -> None:
        self.id = id
        self.directory = directory
        self.config = config
        self.disk = disk
        self.files = files
        self.segments = segments  # changed through the list alone
        self._list = SegmentList(segments, load_index)
        self.epochs = epochs
        self.start_offset = start_offset
        self.saved = Checkpoint(log_start=start_offset)  # the durable checkpoint
        self.end_offset = segments[-1].next_offset
        self.durable_offset = self.end_offset
        self.covered_offset = self.end_offset  # durable, or on its way there in the journal or a flush
        self.recovery_point = Offset(0)
        self.recovery_base = segments[0].base_offset  # of the segment that an unclean start reads first
        self.journal_sequence = 0
        # Whether bytes were found torn at the end when the log was opened: such a replica may lack what it promised.
        self.was_torn = False
        # Whether the node's last stop was clean. A replica that was not may lack what it promised from memory.
        self.was_clean = True
        self.bytes_since_checkpoint = 0
        self.broken: Exception | None = None
        self.checkpoint_error = OSError("no checkpoint has failed")  # the last one's, where it has
        self.write_error: DiskFailedError | None = None  # of the last write or new segment, where the disk refused it
        self.is_deleted = False
        # Called when durable_offset has grown or the log has broken.
        self.listener: Callable[[], None] = _nobody
        # What the log's owner has to do that need not wait for what it appended last to be durable: called once, while
        # the journal is being written, when the event loop would only wait. Or never.
        self.meanwhile: Callable[[], None] | None = None
        # Have the log's owner append what it has decided and not written, so that a checkpoint's snapshots have it.
        self.write_pending: Callable[[], None] = _nobody
        # Where the oldest open transaction began, or the end: nothing from there on is dropped.
        self.open_limit: Callable[[], Offset] = lambda: self.end_offset
        # State of the folds at end_offset, for a checkpoint.
        self.take_snapshots: Callable[[], Sequence[TakenSnapshot]] = tuple
        # Every fold has a durable snapshot of all entries below it; -1 where no fold has one.
        self.snapshot_offset = Offset(-1)
        self.retainer_count = 0  # retainers that this log has had since it was opened
        self._retainer: Retainer | None = None
        # Knows which messages were committed. None: no transaction ever wrote here.
        self.transactions: Transactions | None = None
        self.compacted: Compacted | None = None  # how far; None until somebody asked
        self.generation = max((entry.generation for entry in self.cleaned_entries), default=0)  # of the newest cleaning
        self.cut_count = 0  # truncations since the log was opened
        self.dropped_stems: list[str] = []  # oldest segments that were dropped, and whose files are still there
        self.claim: Claim | None = None  # what the cleaner works on
        self._directory_is_synced = True

    # What is there.

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def retainer(self) -> Retainer | None:
        """Says what may be cleaned away. None: nothing. To be set when the folds are restored."""
        return self._retainer

    @retainer.setter
    def retainer(self, retainer: Retainer | None) -> None:
        """Whoever knows what is dead has a fold of its own, so only snapshots that are taken from now on count."""
        self._retainer = retainer
        if retainer is not None:
            self.retainer_count += 1
            self.snapshot_offset = Offset(0)

    @property
    def cleaned_offset(self) -> Offset:
        """Entries below it may be missing. A fold that has no snapshot from here on cannot be restored."""
        ends = [Offset(entry.next_offset) for entry in self.cleaned_entries]
        return ends[-1] if ends else self.segments[0].base_offset

    @property
    def cleaned_entries(self) -> list[Cleaned]:
        return [segment.cleaned for segment in self.segments if segment.cleaned is not None]

    @property
    def has_unsynced(self) -> bool:
        return not self._directory_is_synced or any(not segment.is_synced for segment in self.segments)

    def fail(self, error: Exception) -> None:
        """Refuse everything from now on. Nothing will be synced here any more, so no file need stay open for it."""
        if self.broken is None:
            self.broken = error
            if not self.is_deleted:
                _logger.critical("partition is offline", extra={"directory": self.directory, "error": str(error)})
        for segment in self.segments:
            self._drop_tail(segment)
            self._let_close(segment)

    def delete(self) -> None:
        """Refuse everything from now on; the caller moves the directory away."""
        self.is_deleted = True
        self.fail(UnknownTopicError("this partition was deleted; refresh metadata"))

    def check_usable(self) -> None:
        if isinstance(self.broken, UnknownTopicError):
            raise self.broken
        if isinstance(self.broken, CorruptLogError):
            raise PartitionOfflineError(
                f"{self.directory} is offline on this node since damage was found: {self.broken}; then restart the node"
            )
        if self.broken is not None:
            raise PartitionOfflineError(
                f"{self.directory} is offline on this node since its disk failed ({self.broken}); "
                "check the disk and restart the node, which recovers the partition from its files"
            )

    def checkpoint_refusal(self) -> HeadraceError:
        """Why the last checkpoint failed."""
        return disk_error.refusal(self.checkpoint_error, f"a checkpoint of {self.directory}", "written")

    # Append.

    def append(
        self, batches: Sequence[Incoming], *, epoch: Epoch, now_ms: int, defer: bool = False, is_owed: bool = False
    ) -> list[Offset]:
        """Give offsets to batches and write them to the page cache in one call; return their base offsets.

        All or nothing: on an error the file is as it was, or the log is broken. With `defer` the bytes stay in memory
        for now, since the caller makes them durable in the journal before anybody is told of them: a thousand
        partitions with a trickle each are then written when there is something to write, or a reader asks. With
        `is_owed` it is written as long as the node's ballast makes room for it.
        """
        if self.broken is not None:
            self.check_usable()
        size = 0
        for _, data in batches:
            size += len(data)
        segment = self.segments[-1]
        if segment.size and (
            segment.size + size > self.config.segment_bytes_max
            or now_ms - segment.created_ms >= self.config.segment_age_ms_max
        ):
            segment = self.roll(now_ms=now_ms, is_owed=is_owed)
        offsets = []
        offset = self.end_offset
        for header, data in batches:
            assign(data, 0, offset, epoch)
            offsets.append(offset)
            offset = Offset(offset + header.last_offset_delta + 1)
        if defer:
            for _, data in batches:
                # Copied, because what arrived is a small piece of a frame that may be large.
                segment.tail.append(bytes(data))
            segment.is_synced = False
            self.files.space.defer(size)
        else:
            self.write_tail()
            self._write(segment, [batch.data for batch in batches], is_owed=is_owed)
        index, position = segment.index, segment.size
        assert index is not None
        self.epochs.assign(epoch, self.end_offset)
        for base, (header, data) in zip(offsets, batches, strict=True):
            index.add(base, position, header.max_timestamp_ms)
            position += len(data)
        segment.mark_verified(segment.size, position)
        segment.size = position
        segment.next_offset = self.end_offset = offset
        self.bytes_since_checkpoint += size
        if len(segment.tail) >= _TAIL_COUNT_MAX:
            self.write_tail()
        return offsets

    def append_stored(self, header: BatchHeader, data: memoryview, *, now_ms: int) -> None:
        """Append a batch that has its offset and epoch: one from the journal, or from a leader."""
        assert header.base_offset == self.end_offset, f"{header.base_offset} does not follow {self.end_offset}"
        self.append([Incoming(header, data)], epoch=Epoch(header.leader_epoch), now_ms=now_ms, is_owed=True)

    def write_tail(self) -> None:
        """Write what was deferred. On an error it stays so: it is durable in the journal, and may be tried again."""
        segment = self.active
        if not segment.tail:
            return
        end = segment.size
        segment.size -= sum(map(len, segment.tail))
        try:
            self._write(segment, segment.tail, is_owed=True, is_tail=True)
            self._drop_tail(segment)
        finally:
            segment.size = end

    def _drop_tail(self, segment: Segment) -> None:
        if segment.tail:
            self.files.space.defer(-sum(map(len, segment.tail)))
            segment.tail = []

    def _write(self, segment: Segment, buffers: Sequence[Buffer], *, is_owed: bool, is_tail: bool = False) -> None:
        while True:
            try:
                write_buffers(self.files, segment, buffers, is_tail=is_tail)
            except PartitionOfflineError as error:
                self.fail(error)
                raise
            except DiskFullError:
                if is_owed and self.files.space.ballast.make_room():
                    continue
                raise
            except DiskFailedError as error:
                self._note_write_error(error)
                raise
            self.write_error = None
            return

    def _note_write_error(self, error: DiskFailedError) -> None:
        """Remember an error that stored nothing and broke nothing, until the files can be written again."""
        if self.write_error is None:
            _logger.error(
                "a partition's files cannot be written; its sends are refused",
                extra={"directory": self.directory, "error": str(error)},
            )
        self.write_error = error

    def roll(self, *, now_ms: int, is_owed: bool = False) -> Segment:
        """Begin a new segment at the end."""
        self.write_tail()
        self.give_back_reserve()
        segment = Segment(
            self.directory, self.end_offset, index=SparseIndex(self.config.index_interval_bytes), created_ms=now_ms
        )
        try:
            if is_owed:
                self.files.space.ballast.insist(lambda: self._create(segment))
            else:
                self._create(segment)
        except OSError as error:
            refusal = disk_error.refusal(error, segment.path, "created")
            if isinstance(refusal, DiskFailedError):
                self._note_write_error(refusal)
            raise refusal from error
        self.write_error = None
        self._directory_is_synced = False
        self._list.add(segment)
        return segment

    def _create(self, segment: Segment) -> None:
        file = self.files.create(segment.path)
        try:
            file.truncate(0)
        except OSError:
            # What is appended to the old segment instead would be taken for what stands before this one.
            self.files.close(segment.path)
            self.disk.remove(segment.path)
            raise

    def give_back_reserve(self) -> None:
        """Free the blocks behind the end: nothing more is written to this segment, for now or for ever."""
        give_back(self.files, self.active)

    # Flush.

    def plan_flush(self) -> FlushPlan:
        """What to write and sync so that everything appended so far is durable in the segments.

        OverloadedError: there is no descriptor for it now. Flush again later.
        """
        self.check_usable()
        try:
            tail = take_tail(self.files, self.active)
        except DiskFailedError as error:
            # What was promised must become durable here now, and cannot. The journal is kept for the recovery.
            self.fail(error)
            self.check_usable()
            raise
        dirty = [segment for segment in self.segments if not segment.is_synced]
        return FlushPlan(
            upto=self.end_offset,
            sizes=[(segment, segment.size) for segment in dirty],
            files=[self.files.hold(segment.path) for segment in dirty],
            active=self.active,
            tail=tail,
            directory=None if self._directory_is_synced else self.directory,
            checkpoint=None if self._directory_is_synced else self._listing(),
        )

    def _listing(self) -> Checkpoint:
        """The durable checkpoint with the names of all segments, and nothing else that is new."""
        names = [int(segment.base_offset) for segment in self.segments]
        return msgspec.structs.replace(self.saved, segments=names, shutdown_id="")

    def flushed(self, plan: FlushPlan, error: Exception | None = None) -> None:
        """Note the end of a plan. A failed sync is never tried again: what it left is not known (failure row 15).

        A plan that was put off has failed at no sync, and the next one begins anew.
        """
        for segment, size in plan.sizes:
            self.files.release(segment.path)
            if error is None and segment.size == size and not segment.is_synced:
                self._let_close(segment)
        if isinstance(error, FlushPutOffError):
            return
        if error is not None:
            self.fail(error)
            return
        if plan.tail is not None:
            plan.tail.done()
        if plan.checkpoint is not None:
            self.saved = plan.checkpoint
        if plan.active is self.active:
            self._directory_is_synced = True
        self.durable_offset = max(self.durable_offset, plan.upto)

    # Read.

    def read(self, offset: Offset, *, bytes_max: int, upto: Offset, whole_first: bool = True) -> Reads[Slice]:
        """Whole batches from the one that holds an offset, or the next one, below `upto`."""
        return self._whole(self._read(offset, bytes_max, upto, whole_first))

    def _whole(self, reads: Reads[T]) -> Reads[T]:
        """Have the file whole at each step of a read. While it waits for the device others append, and what they defer
        counts in the segment's size: looked for in the file, it would be taken for lost."""
        self.write_tail()
        try:
            need = next(reads)
            while True:
                data = yield need
                if self.broken is not None:
                    self.check_usable()
                self.write_tail()
                need = reads.send(data)
        except StopIteration as stop:
            value: T = stop.value
            return value

    def _read(self, offset: Offset, bytes_max: int, upto: Offset, whole_first: bool) -> Reads[Slice]:
        self.check_usable()
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside {self.start_offset} to {self.end_offset}",
                start=self.start_offset,
                end=self.end_offset,
            )
        at = self._list.floor(offset)
        while offset < upto and at < len(self.segments):
            segment = self.segments[at]
            if not segment.is_empty:
                yield from self._list.need_index(segment)
                found = yield from read_batches(
                    segment,
                    max(offset, segment.base_offset),
                    bytes_max=bytes_max,
                    upto=upto,
                    whole_first=whole_first,
                    epochs=self.epochs,
                )
                if found is not None:
                    return found
            at += 1
        return Slice(b"", offset)

    def bytes_from(self, offset: Offset) -> int:
        """About how many bytes lie between an offset and the end: what a waiting reader compares with its minimum."""
        return self._list.bytes_from(offset)

    def find_time(self, timestamp_ms: int, *, upto: Offset, from_offset: Offset | None = None) -> Reads[Located | None]:
        """The first batch below `upto` that says it holds a message at or after a time, and ends after an offset."""
        self.check_usable()
        start = self.start_offset if from_offset is None else from_offset
        return self._whole(self._list.find_time(timestamp_ms, upto=upto, from_offset=start))

    def max_timestamp_ms(self, *, upto: Offset) -> Reads[int]:
        """Largest timestamp in the log below an offset."""
        return self._whole(self._list.max_timestamp_ms(self.start_offset, upto))

    def load_index(self, segment: Segment) -> None:
        """Blocks."""
        self._list.load_index(segment)

    # What maintenance changes.

    def drop_segments(self, count: int) -> None:
        """Forget the oldest segments; maintenance moves their files away. The active one always stays."""
        assert count < len(self.segments)
        assert self.claim is None or not any(segment in self.claim for segment in self.segments[:count])
        dropped = self._list.drop(0, count)
        for segment in dropped:
            self._let_go(segment)
        self.dropped_stems += [segment.stem for segment in dropped]
        self.raise_start(self.segments[0].base_offset)

    def replace_segments(self, old: Sequence[Segment], new: Segment) -> None:
        """Put a cleaned segment in the place of neighbours whose offsets it stands for. Their files go later."""
        self._list.replace(old, new)
        for segment in old:
            self._let_go(segment)

    def raise_start(self, offset: Offset) -> None:
        if offset > self.start_offset:
            self.start_offset = offset
            self.epochs.trim_to(offset)

    def cut(self, segment: Segment, position: int, offset: Offset) -> list[Segment]:
        """Forget everything from a byte of a segment on. May block for its index.

        Returns the segments after it, for the caller to move away.
        """
        self.cut_count += 1
        self.compacted = None  # its file is lowered, and read again
        later = self._list.drop(self.segments.index(segment) + 1, None)
        for gone in later:
            self._let_go(gone)
        self.load_index(segment)
        segment.truncate_to(position, offset)
        self.end_offset = offset
        self.durable_offset = self.covered_offset = min(self.durable_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.snapshot_offset > offset:
            self.snapshot_offset = Offset(0)  # the snapshots go with what they speak of
        self.epochs.truncate_to(offset)
        return later

    def _let_go(self, segment: Segment) -> None:
        self._let_close(segment)
        self.files.close(segment.path)

    def _let_close(self, segment: Segment) -> None:
        """A segment has no unsynced bytes any more, or none that matter."""
        segment.is_synced = True
        if segment.is_held:
            segment.is_held = False
            self.files.release(segment.path)
