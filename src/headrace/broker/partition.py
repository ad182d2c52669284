"""One partition: its log and its folds, and those who wait for it.

What arrived in one turn of the event loop becomes one write. For each of the turn's requests, in order of arrival:
check its producer's sequence against the fold and against what this turn has accepted so far; give offsets; write all
accepted batches with one call; only then let the fold apply them. A request is answered when the high watermark passes
its last batch: at once with durability `memory`, after the sync with `fsync`. A retry of something that is not durable
yet waits for it like the first try did, since both promise the same.

A subscriber (the queue over this partition) writes with the turn, so that it is one write and one sync whatever is in
it. Its entries come first, because they were decided before anything else of the turn was there to be seen; then the
messages that were sent through it, then the senders' batches. It may refuse these (a queue that is full, or that could
not hand them out), and it is asked once a batch is known to be new, and before anything of the turn is written.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from headrace.broker.held_back import HeldBack
from headrace.broker.intake import check_records, with_codec
from headrace.broker.pending import Appended, Pending, PendingMarker, Promised
from headrace.broker.promise import Promise
from headrace.broker.stable import Stability
from headrace.broker.subscriber import NOTHING, Contribution, Subscriber
from headrace.broker.times import TimeLookup
from headrace.broker.turn import Turn
from headrace.folds.producer import FOLD_NAME, Duplicate, ProducerFold, Tentative
from headrace.host.clock import Clock, stamp_ms
from headrace.log import snapshots
from headrace.log.driver import LogStore
from headrace.log.partition_log import Incoming, PartitionLog
from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.log.snapshots import Snapshot, TakenSnapshot
from headrace.model.batch import Buffer, read_header
from headrace.model.errors import (
    CorruptLogError,
    DiskFullError,
    FencedEpochError,
    HeadraceError,
    OffsetOutOfRangeError,
    OutOfOrderSequenceError,
    PartitionOfflineError,
    UnknownEpochError,
    UnsupportedError,
)
from headrace.model.ids import Epoch, Offset, PartitionId
from headrace.model.topic import Durability, TimestampType, TopicConfig
from headrace.wire.kafka.marker import MARKER_ATTRIBUTES, Marker, decode_marker, encode_marker

_NO_OFFSET = Offset(-1)

_logger = logging.getLogger(__name__)


class Waiter(Protocol):
    """Somebody who reads at the end of the log."""

    def wake(self) -> None: ...


class Partition(TimeLookup, Stability):
    def __init__(self, *, log: PartitionLog, store: LogStore, clock: Clock, epoch: Epoch) -> None:
        self.id: PartitionId = log.id
        self.log = log
        self.epoch = epoch
        self.waiters: set[Waiter] = set()
        self._store = store
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._producers = ProducerFold()
        self._held_back = HeldBack(clock)
        self._queue: list[Pending | PendingMarker] = []
        self._promised: deque[Promised] = deque()
        self._subscriber: Subscriber | None = None
        self._turn = Turn(write=self._write_turn, count=self._pending_count)
        self.write_soon = self._turn.write_soon
        self.write_after_reading = self._turn.write_after_reading
        self._high_watermark = log.durable_offset
        log.listener = self._advance
        log.take_snapshots = self._take_snapshots
        log.write_pending = self.write_now
        log.open_limit = self._open_limit
        log.transactions = self

    # Where it stands.

    @property
    def start_offset(self) -> Offset:
        return self.log.start_offset

    @property
    def end_offset(self) -> Offset:
        return self.log.end_offset

    @property
    def high_watermark(self) -> Offset:
        return self._high_watermark

    @property
    def size_bytes(self) -> int:
        return self.log.size_bytes

    def reconfigure(self, config: TopicConfig) -> None:
        """Obey new settings from the next append on."""
        self.log.config = config

    # Folds.

    def restore_folds(self) -> None:
        """Bring the folds up to the log's end, from the newest snapshot that checks. Blocks; before any append."""
        directory = f"{self.log.directory}/{FOLDS_DIRECTORY}"
        for snapshot in snapshots.load(self.log.disk, directory, FOLD_NAME, upto=self.log.end_offset):
            try:
                self._producers = ProducerFold.restore(snapshot.data)
                break
            except (CorruptLogError, UnsupportedError) as error:
                _logger.warning("snapshot is not used; replaying", extra={"error": str(error)})
        if self._producers.end_offset < self.log.saved.snapshot_offset:
            _logger.warning(
                "a partition's snapshot is missing; its producers are restored from what is left of the log, and a "
                "retry of what is gone from it would be stored again",
                extra={"directory": directory, "offset": self.log.saved.snapshot_offset},
            )
        self._replay(self._clock.steady_ms())

    def _take_snapshots(self) -> Sequence[TakenSnapshot]:
        if not self.log.end_offset:
            return ()
        self._producers.transactions.forget_below(self.log.start_offset)
        taken: list[TakenSnapshot] = [Snapshot(FOLD_NAME, self._producers.end_offset, self._producers.snapshot())]
        if self._subscriber is not None:
            snapshot = self._subscriber.snapshot()
            if snapshot is None:
                return ()
            taken.append(snapshot)
        return taken

    def expire_producers(self, after_ms: int) -> None:
        self._producers.expire(self._clock.steady_ms(), after_ms)

    # Append.

    def append(self, records: memoryview, *, is_verified: bool = False) -> Promise[Appended]:
        """Store a record set; the promise is kept when it is committed. The memory is ours until then.

        A batch that opens a transaction is stored only if it is verified: if the coordinator has this partition in the
        producer's transaction, in this turn of the loop.
        """
        promise: Promise[Appended] = Promise()
        try:
            self.check_space()
            if self.log.broken is not None:
                self.log.check_usable()
            config, clock = self.log.config, self._clock
            # The time that a message is given here must not make it look old once the clock is right again.
            is_stamped = config.timestamp_type is TimestampType.LOG_APPEND_TIME
            batches = check_records(records, config, now_ms=stamp_ms(clock) if is_stamped else clock.wall_ms())
        except HeadraceError as error:
            promise.fail(error)
            return promise
        # Here and below the tuple's own constructor: that of a named one is a Python function, at twice the time.
        self._queue.append(tuple.__new__(Pending, (batches, promise, is_verified)))
        self.write_soon()
        return promise

    def end_transaction(
        self, producer_id: int, epoch: int, marker: Marker, *, is_bumped: bool = False
    ) -> Promise[Appended]:
        """Write a marker where this producer's transaction is open; kept when it is committed, or nothing is to end.

        A full disk takes it, since it frees more than it costs. Of `is_bumped`, see `ProducerFold.check_marker`.
        """
        promise: Promise[Appended] = Promise()
        try:
            self.log.check_usable()
        except HeadraceError as error:
            promise.fail(error)
            return promise
        now_ms = self._clock.wall_ms()
        batch = encode_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp_ms=now_ms)
        self._queue.append(PendingMarker(Incoming(read_header(batch), memoryview(batch)), marker, is_bumped, promise))
        self.write_soon()
        return promise

    def check_space(self) -> None:
        """Refuse what would fill the disk's reserve, which is for acknowledgements and deletes (failure row 21)."""
        if self._store.is_full:
            raise self._store.space.refusal()

    def write_now(self) -> None:
        """Write at once what waits for the end of the turn, or for company: before a checkpoint, and before the end."""
        is_due = self._turn.is_due or (self._subscriber is not None and self._subscriber.has_pending)
        if is_due and self.log.broken is None:
            self._write_turn()

    def _pending_count(self) -> int:
        return len(self._queue) + (self._subscriber.pending_count if self._subscriber is not None else 0)

    def _write_turn(self) -> None:
        """Write everything that arrived in this turn of the loop; on a full disk, what frees space and no sends."""
        if not self._store.admits(self.log):
            self._store.call_when_admitted(self._write_turn)
            return
        self._turn.begin_next()
        queue, self._queue = self._queue, []
        subscriber = self._subscriber
        share = NOTHING if subscriber is None else subscriber.contribute()
        promised: list[Promised] = []
        try:
            try:
                self._write_placed(queue, share, promised)
            except DiskFullError as error:
                promised.clear()
                markers = self._refuse_sends(queue, error)
                self._write_placed(markers, Contribution(share.entries, ()), promised)
        except Exception as error:  # noqa: BLE001 - whatever it is, the senders are told
            self._refuse(promised, error)
            return
        self._promised.extend(promised)
        # With `fsync` what was written now is committed later, and only a retry may be so already.
        is_synced_later = self.log.config.durability is Durability.FSYNC
        if not is_synced_later or (promised and promised[0].end <= self._high_watermark):
            self._advance()

    def _write_placed(
        self, queue: Sequence[Pending | PendingMarker], share: Contribution, promised: list[Promised]
    ) -> None:
        """Place what arrived behind the subscriber's share, and write it with one call."""
        is_owed = not share.messages  # the reserve and the ballast are for what is no send
        tentative: Tentative = {}
        is_opaque = self.log.config.is_opaque
        fresh: list[Incoming] = [*share.entries]
        fresh += share.messages if is_opaque else [with_codec(m, self.log.config) for m in share.messages]
        share_count = len(fresh)
        base_offset = self.log.end_offset
        if share_count:
            base_offset = Offset(base_offset + sum(batch.header.last_offset_delta + 1 for batch in fresh))
        for pending in queue:
            try:
                if isinstance(pending, Pending):
                    is_owed = False
                    promised.append(self._place(pending, tentative, fresh, base_offset))
                else:
                    promised.append(self._place_marker(pending, tentative, fresh, base_offset))
            except HeadraceError as error:
                pending.promise.fail(error)
                continue
            base_offset = max(base_offset, promised[-1].end)
        if not fresh:
            return
        offsets = self._write(fresh, is_owed=is_owed)
        if self._subscriber is not None:
            if share_count:
                entry_count = len(share.entries)
                self._subscriber.contributed(offsets[:entry_count], offsets[entry_count:share_count])
            for at in range(share_count, len(fresh)):
                self._subscriber.written(fresh[at], offsets[at])

    def _refuse_sends(self, queue: Sequence[Pending | PendingMarker], error: HeadraceError) -> list[PendingMarker]:
        """Refuse what asks for space, and return what frees some."""
        markers = []
        for pending in queue:
            if isinstance(pending, Pending):
                pending.promise.fail(error)
            else:
                markers.append(pending)
        if self._subscriber is not None:
            self._subscriber.refused_messages(error)
        return markers

    def _refuse(self, promised: list[Promised], error: Exception) -> None:
        """Nothing of a turn was written. What no rule expected stops the partition (failure row 41)."""
        if not isinstance(error, HeadraceError):
            _logger.critical("partition stopped on an unexpected error", exc_info=error)
            self.log.fail(error)
            error = PartitionOfflineError(f"{self.log.directory} stopped on an unexpected error: {error!r}")
        for promise in promised:
            promise.promise.fail(error)
        if self._subscriber is not None:
            self._subscriber.refused(error)
        if self.log.broken is not None:
            self._refuse_all()

    def take_offline(self, damage: HeadraceError) -> None:
        """Somebody came by damage: nothing more is written here, and everybody is told in a turn of their own."""
        self.log.fail(damage)
        self._loop.call_soon(self.log.listener)

    # The subscriber.

    def attach(self, subscriber: Subscriber) -> None:
        """Let a subscriber, which knows everything up to the end, take part from the next turn on."""
        assert self._subscriber is None, f"{self.id} has a subscriber"
        self._subscriber = subscriber

    def detach(self) -> None:
        self._subscriber = None

    def _place(self, pending: Pending, tentative: Tentative, fresh: list[Incoming], offset: Offset) -> Promised:
        """Decide where the batches of one send go, or already are. All of a send is written or nothing."""
        batches, promise, is_verified = pending
        subscriber = self._subscriber
        stamped = self.log.config.timestamp_type is TimestampType.LOG_APPEND_TIME
        if len(batches) == 1 and batches[0].header.producer_id < 0:
            # What most sends are: nothing to compare with, and one batch to place.
            header = batches[0].header
            if subscriber is not None:
                subscriber.admit(batches)
            last = Offset(offset + header.last_offset_delta)
            fresh.append(batches[0])
            time_ms = header.max_timestamp_ms if stamped else -1
            appended = tuple.__new__(Appended, (offset, last, time_ms, self.log.start_offset))
            return tuple.__new__(Promised, (last + 1, promise, appended))
        first: Offset | None = None
        end = last = following = Offset(0)
        time_ms = -1
        accepted: list[Incoming] = []
        trial = dict(tentative) if len(batches) > 1 or subscriber is not None else tentative
        for batch in batches:
            try:
                outcome = self._producers.check(
                    batch.header, base_offset=offset, tentative=trial, is_verified=is_verified
                )
            except OutOfOrderSequenceError:
                self._held_back.check(batch.header)
                raise
            if isinstance(outcome, Duplicate):
                # A retry is told the time that the first copy was given, which is the one that is stored.
                base, last, time_ms = outcome
            else:
                if not accepted:
                    self._held_back.check(batch.header)
                accepted.append(batch)
                base, last = offset, Offset(offset + batch.header.last_offset_delta)
                time_ms = batch.header.max_timestamp_ms
                offset = Offset(last + 1)
            # Batches of one send whose copies do not stand together have no offset that one answer could name.
            first = base if first is None else first if base == following else _NO_OFFSET
            following = Offset(last + 1)
            end = max(end, following)
        if subscriber is not None and accepted:
            self._admit(subscriber, accepted)
        tentative.update(trial)
        fresh += accepted
        assert first is not None
        return Promised(end, promise, Appended(first, last, time_ms if stamped else -1, self.log.start_offset))

    def _admit(self, subscriber: Subscriber, accepted: Sequence[Incoming]) -> None:
        try:
            subscriber.admit(accepted)
        except HeadraceError as error:
            if error.retriable:
                self._held_back.note(accepted[0].header, error)
            raise
        self._held_back.go_on(accepted[0].header)

    def _place_marker(
        self, pending: PendingMarker, tentative: Tentative, fresh: list[Incoming], offset: Offset
    ) -> Promised:
        """Decide whether a marker has anything to end. If not, an earlier copy did, which may not be committed yet."""
        header = pending.batch.header
        if not self._producers.check_marker(
            header, pending.marker, base_offset=offset, tentative=tentative, is_bumped=pending.is_bumped
        ):
            return Promised(offset, pending.promise, Appended(offset, offset, -1, self.log.start_offset))
        fresh.append(pending.batch)
        return Promised(Offset(offset + 1), pending.promise, Appended(offset, offset, -1, self.log.start_offset))

    def _write(self, fresh: list[Incoming], *, is_owed: bool) -> list[Offset]:
        log, committer = self.log, self._store.committer
        base_offset = log.end_offset
        now_ms = self._clock.wall_ms()
        buffers: list[Buffer] = []
        size = 0
        for _, data in fresh:
            buffers.append(data)
            size += len(data)
        if is_owed:
            self._store.space.charge(size)
        else:
            self._store.space.admit(size)
        fsync = log.config.durability is Durability.FSYNC
        defer = fsync and committer.takes_journal(log, size, base_offset)
        offsets = log.append(fresh, epoch=self.epoch, now_ms=now_ms, defer=defer, is_owed=is_owed)
        apply, seen_ms = self._producers.apply, self._clock.steady_ms()
        for (header, data), offset in zip(fresh, offsets, strict=True):
            marker = decode_marker(data) if header.attributes & MARKER_ATTRIBUTES == MARKER_ATTRIBUTES else None
            apply(header, base_offset=offset, seen_ms=seen_ms, marker=marker)
        if fsync:
            committer.commit(log, base_offset, buffers, size)
        return offsets

    def _advance(self) -> None:
        """Move the high watermark, answer those below it and wake those who read at the end."""
        if self.log.broken is not None:
            self._refuse_all()
            return
        fsync = self.log.config.durability is Durability.FSYNC
        committed = self.log.durable_offset if fsync else self.log.end_offset
        if committed > self._high_watermark:
            self._high_watermark = committed
            if self.waiters:
                for waiter in list(self.waiters):
                    waiter.wake()
            if self._subscriber is not None:
                self._subscriber.advanced()
        promised = self._promised
        while promised and promised[0].end <= self._high_watermark:
            _, promise, answer = promised.popleft()
            promise.keep(answer)

    def _refuse_all(self) -> None:
        """The disk failed: what was written may or may not be there, and nobody is told that it is."""
        try:
            self.log.check_usable()
        except HeadraceError as error:
            while self._promised:
                self._promised.popleft().promise.fail(error)
        for waiter in list(self.waiters):
            waiter.wake()
        if self._subscriber is not None:
            self._subscriber.advanced()

    # Read.

    def check_offset(self, offset: Offset) -> None:
        if not self.start_offset <= offset <= self.end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} is outside {self.start_offset} to {self.end_offset}; "
                "start from the earliest or the latest offset",
                start=self.start_offset,
                end=self.high_watermark,
            )

    def check_epoch(self, epoch: Epoch) -> None:
        """Refuse a caller who knows another leader. -1 is a caller who knows none."""
        if 0 <= epoch < self.epoch:
            raise FencedEpochError(f"leader epoch is {self.epoch}, the request says {epoch}; refresh metadata")
        if epoch > self.epoch:
            raise UnknownEpochError(f"leader epoch is {self.epoch}, the request says {epoch}; retry")

    def epoch_end(self, epoch: Epoch) -> tuple[Epoch, Offset]:
        """The largest epoch up to the given one that this log knows, and the offset at which it ended."""
        if epoch == self.epoch:
            return epoch, self.end_offset
        known, end = self.log.epochs.end_of(epoch, self.end_offset)
        return known, max(end, self.start_offset) if end >= 0 else end

    async def delete_records(self, before: Offset) -> Offset:
        """Drop everything below an offset, -1 for everything committed. Durable when this returns."""
        offset = self.high_watermark if before == -1 else before
        if not 0 <= offset <= self.high_watermark:
            raise OffsetOutOfRangeError(
                f"offset {offset} is above the high watermark {self.high_watermark}",
                start=self.start_offset,
                end=self.high_watermark,
            )
        self.log.raise_start(offset)
        if self.start_offset > self.log.saved.log_start and not await self._store.checkpoint(self.log):
            self.log.check_usable()
            raise self.log.checkpoint_refusal()
        return self.start_offset
