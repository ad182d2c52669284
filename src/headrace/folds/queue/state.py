"""What changes a queue's state: arrivals, entries, and time.

What time does needs no entry, since it follows from entries and time. It must not matter when it is done, or a replay,
which has other moments to do it in, would end elsewhere. So all that `advance` does is decided by the moments that are
stored, never by the moment of the call; and `apply` lets time pass up to the entry's moment first. An arrival has no
such moment. What it meets must therefore not depend on time that passed since the last entry: ids are forgotten when
an entry comes, and by its moment (`noted`), not when time passes.

A million leases may end at one moment, and whoever else is served by the same thread must not wait for all of them. So
`advance` does no more than `step_count` changes at a time; until the rest is done, the state is *behind*. What time
does to one message has nothing to do with any other. So it can be done for single messages beforehand (`settle`): for
those that a decision names, and for those that somebody asks about. Everything else comes to the same, whether time
changes it before or after the decision; except for a configuration, which obeys no lease that was over before it.
A state that is behind holds nothing that could not be: it is as if some leases ended a little later.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, assert_never

from pyroaring import BitMap64

from headrace.folds.queue import attempt as packed
from headrace.folds.queue.arrival import ALL_PLAIN, PLAIN, Properties
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import (
    Acked,
    Configured,
    DeadLettered,
    Dropped,
    Expired,
    ExpiryCause,
    Extended,
    Failed,
    Leased,
    Moved,
    Op,
    Purged,
    ReaderMoved,
    ReaderRemoved,
    Rejected,
    Released,
    Repeated,
    Returned,
    Ticked,
    TxnAcked,
    TxnEnded,
)
from headrace.folds.queue.places import Places
from headrace.folds.queue.runs import rounded_up_ms
from headrace.folds.queue.transaction import HeldLease, Identified, OpenTransaction
from headrace.model.ids import Offset

# How long a moved message is known by its move id, on the lease clock of the queue that it was moved to: the mover
# tries again when it is back, however long that takes, and time in which nobody leads does not count.
MOVES_REMEMBERED_MS = 60 * 60 * 1000


class Event(NamedTuple):
    """When time will change something, on each clock; None: never."""

    lease_ms: int | None
    wall_ms: int | None


class QueueState(Places):
    """One partition of a queue, as of `end_offset` and `now`."""

    step_count = 500  # messages that time may change in one step
    is_behind = False  # whether time has changes left to do, as of `now`

    # Arrivals.

    def arrive(
        self,
        base_offset: int,
        count: int,
        *,
        sent_ms: int,
        properties: Mapping[int, Properties] = ALL_PLAIN,
        producer_id: int | None = None,
    ) -> list[int]:
        """Take up messages at consecutive offsets, written or replayed. `properties` by index, of those that have any.

        `producer_id`: whose transaction they are part of, if they are of one. Returns the duplicates: a message whose
        deduplication id or move id is remembered is stored, since it stands in its producer's batch, and is done from
        the start.
        """
        if producer_id is not None:
            self._arrive_undecided(base_offset, count, sent_ms, properties, producer_id)
            return []
        assert base_offset >= self.end_offset, f"offset {base_offset} arrived after {self.end_offset}"
        duplicates: list[int] = []
        offset = base_offset
        end = base_offset + count
        for index in sorted(properties):
            if offset < base_offset + index:
                self._arrive_plain(offset, base_offset + index, sent_ms)
            offset = base_offset + index
            if not self._arrive_one(offset, properties[index], sent_ms):
                duplicates.append(offset)
            offset += 1
        if offset < end:
            self._arrive_plain(offset, end, sent_ms)
        self.end_offset = Offset(end)
        return duplicates

    def _arrive_plain(self, base: int, end: int, sent_ms: int) -> None:
        config = self.config
        self.live.add_range(base, end)
        self.counts.sent += end - base
        if config.delay_ms:
            self.delayed.add_range(base, end)
            self.rest_runs.add(base, end, rounded_up_ms(sent_ms, config.delay_ms), previous_end=self.arrived_end)
        self.shelf.add_range(base, end, is_ready=not config.delay_ms)
        if config.ttl_ms is not None:
            self.life_runs.add(base, end, rounded_up_ms(sent_ms, config.ttl_ms), previous_end=self.arrived_end)
        self.arrived_end = end

    def _arrive_one(self, offset: int, own: Properties, sent_ms: int) -> bool:
        config = self.config
        if self._is_repeated(offset, own, sent_ms):
            self.arrived_end = offset + 1
            return False
        self.live.add(offset)
        self.counts.sent += 1
        is_delayed = config.delay_ms > 0 if own.due_ms is None else own.due_ms > sent_ms
        if is_delayed:
            self.delayed.add(offset)
            if own.due_ms is not None:
                self._rest(offset, sent_ms, own.due_ms - sent_ms)
            else:
                due_ms = rounded_up_ms(sent_ms, config.delay_ms)
                self.rest_runs.add(offset, offset + 1, due_ms, previous_end=self.arrived_end)
        self.shelf.add(offset, own.key, own.priority, is_ready=not is_delayed)
        if own.expires_ms is not None:
            self.lives.put(offset, own.expires_ms)
        elif config.ttl_ms is not None:
            expires_ms = rounded_up_ms(sent_ms, config.ttl_ms)
            self.life_runs.add(offset, offset + 1, expires_ms, previous_end=self.arrived_end)
        self.arrived_end = offset + 1
        return True

    def _is_repeated(self, offset: int, own: Properties, sent_ms: int) -> bool:
        """Whether a message was here before; if not, what it is known by is remembered."""
        move_id = own.move_id
        if move_id is not None:
            # Undated until an entry says what the lease clock shows, and not forgotten before.
            if self.moves.find(move_id, self.noted.lease_ms) is not None:
                return True
            self.moves.add(move_id, offset)
        id_ = own.deduplication_id
        if id_ is not None and self.config.deduplication_window_ms:
            # A moved message keeps its id and is no repetition of itself.
            if move_id is None and self.deduplication.find(id_, max(sent_ms, self.noted.wall_ms)) is not None:
                return True
            self.deduplication.add(id_, offset, sent_ms + self.config.deduplication_window_ms)
            if move_id is None:
                self.fresh_ids.append((id_, offset))
        return False

    # Transactions.

    def _arrive_undecided(
        self, base_offset: int, count: int, sent_ms: int, properties: Mapping[int, Properties], producer_id: int
    ) -> None:
        """As if they were delayed until somebody says that they are sent."""
        assert base_offset >= self.end_offset, f"offset {base_offset} arrived after {self.end_offset}"
        end = base_offset + count
        transaction = self.transactions.setdefault(producer_id, OpenTransaction())
        transaction.offsets.add_range(base_offset, end)
        self.undecided.add_range(base_offset, end)
        self.live.add_range(base_offset, end)
        self.counts.sent += count
        config = self.config
        for index in range(count):
            offset, own = base_offset + index, properties.get(index, PLAIN)
            if own.due_ms is not None:
                if own.due_ms > sent_ms:
                    self._rest(offset, sent_ms, own.due_ms - sent_ms)
            elif config.delay_ms:
                due_ms = rounded_up_ms(sent_ms, config.delay_ms)
                self.rest_runs.add(offset, offset + 1, due_ms, previous_end=self.arrived_end)
            if own.expires_ms is not None:
                self.lives.put(offset, own.expires_ms)
            elif config.ttl_ms is not None:
                expires_ms = rounded_up_ms(sent_ms, config.ttl_ms)
                self.life_runs.add(offset, offset + 1, expires_ms, previous_end=self.arrived_end)
            if own is not PLAIN:
                self.shelf.add(offset, own.key, own.priority, is_ready=False)
                if own.move_id is not None or own.deduplication_id is not None:
                    transaction.identified[offset] = Identified(offset, sent_ms, own)
            self.arrived_end = offset + 1
        self.end_offset = Offset(end)

    def decide(self, producer_id: int, *, is_commit: bool) -> None:
        """A producer's transaction has ended in this partition: what it sent is sent now, or never was."""
        transaction = self.transactions.pop(producer_id, None)
        if transaction is None:
            return
        offsets = list(transaction.offsets & self.undecided)
        if not is_commit:
            self.counts.withdrawn += self._finish(offsets)
            return
        for offset in offsets:
            known = transaction.identified.get(offset)
            if known is not None and self._is_repeated(offset, known.own, known.sent_ms):
                self.counts.withdrawn += self._finish((offset,))
                continue
            self.undecided.remove(offset)
            if offset in self.lapsed:
                self.rests.pop(offset)
                self._end_life(offset)
            elif self.rests.get(offset) is not None or self.rest_runs.find_ms(offset) is not None:
                self.delayed.add(offset)
            else:
                self._make_ready(offset)

    def reach(self, end_offset: int) -> None:
        """Everything below this offset was applied: entries and batches of others among it."""
        self.end_offset = Offset(max(self.end_offset, end_offset))

    # Time.

    def advance(self, now: Instant, count_max: int | None = None) -> None:
        """Let time pass: leases end, delays and lives too. A clock that goes back is held where it was.

        No more than `count_max` messages are changed, or else `step_count`: see `is_behind`.
        """
        before = self.now
        if now[0] < before[0] or now[1] < before[1]:
            now = Instant(max(now.lease_ms, before.lease_ms), max(now.wall_ms, before.wall_ms))
        self.now = now
        if self._is_due():
            self._pass(self.step_count if count_max is None else count_max)
            self.is_behind = self._is_due()
        else:
            self.is_behind = False

    def _pass(self, left: int) -> None:
        """Do what is due, to so many messages."""
        lease_ms, wall_ms = self.now
        if self.leases.is_due(lease_ms):
            leases = self.leases.pop_due(lease_ms, left)
            for offset, lease in leases:
                self._lease_over(offset, lease, ended_ms=packed.end_wall_ms(lease), delay_ms=None)
            left -= len(leases)
        if self.lives.is_due(wall_ms):
            lives = self.lives.pop_due(wall_ms, left)
            for offset, _ in lives:
                self._lapse(offset)
            left -= len(lives)
        if self.life_runs.is_due(wall_ms):
            lapsed = self.life_runs.pop_due(wall_ms, left, self.live)
            for offset in lapsed:
                self._lapse(offset)
            left -= len(lapsed)
        if self.rests.is_due(wall_ms):
            rests = self.rests.pop_due(wall_ms, left)
            for offset, _ in rests:
                self._rested(offset)
            left -= len(rests)
        if self.rest_runs.is_due(wall_ms):
            for offset in self.rest_runs.pop_due(wall_ms, left, self.delayed):
                self._rested(offset)

    def _is_due(self) -> bool:
        lease_ms, wall_ms = self.now
        return (
            self.leases.is_due(lease_ms)
            or self.lives.is_due(wall_ms)
            or self.life_runs.is_due(wall_ms)
            or self.rests.is_due(wall_ms)
            or self.rest_runs.is_due(wall_ms)
        )

    def keep_up(self, now: Instant, count_max: int = 0) -> None:
        """Let time pass for somebody who asks: a step, or no more than `count_max` if it is behind already.

        Many may ask in one turn, and each waits for all. What is left is done by whoever keeps the time.
        """
        self.advance(now, count_max if self.is_behind else None)

    def catch_up(self) -> None:
        """Let all pass that has passed, at once."""
        while self.is_behind:
            self.advance(self.now)

    def settle(self, offsets: Iterable[int]) -> bool:
        """Do to these messages what time has not got to yet. Whether that was anything."""
        return bool([offset for offset in offsets if self._settle(offset)])

    def _settle(self, offset: int) -> bool:
        lease_ms, wall_ms = self.now
        is_changed = False
        lease = self.leases.get(offset)
        if lease is not None and packed.end_ms(lease) <= lease_ms:
            self.leases.pop(offset)
            self._lease_over(offset, lease, ended_ms=packed.end_wall_ms(lease), delay_ms=None)
            is_changed = True
        expires_ms = self.expires_ms(offset)
        if expires_ms is not None and expires_ms <= wall_ms and offset in self.live:
            self.lives.pop(offset)
            self._lapse(offset)
            is_changed = True
        due_ms = self.due_ms(offset)
        if due_ms is not None and due_ms <= wall_ms:
            self.rests.pop(offset)
            self._rested(offset)
            is_changed = True
        return is_changed

    def expires_ms(self, offset: int) -> int | None:
        """When a message's life will be over; None if never, or if it is."""
        if offset in self.lapsed:
            return None
        own_ms = self.lives.get(offset)
        return self.life_runs.find_ms(offset) if own_ms is None else own_ms

    def due_ms(self, offset: int) -> int | None:
        """Until when a message is delayed; None if it is not."""
        if offset not in self.delayed:
            return None
        own_ms = self.rests.get(offset)
        return self.rest_runs.find_ms(offset) if own_ms is None else own_ms

    def next_event(self) -> Event:
        """When time will next change something."""
        wall = [
            moment_ms
            for source in (self.rests, self.rest_runs, self.lives, self.life_runs)
            if (moment_ms := source.next_ms()) is not None
        ]
        return Event(self.leases.next_ms(), min(wall, default=None))

    # Entries.

    def apply(self, op: Op) -> None:
        """Take over an entry that is replayed. What it says of messages that are gone is passed over."""
        self.advance(op.at)
        self.catch_up()
        self._obey(op)

    def _obey(self, op: Op) -> None:
        """Change what an entry says, at its moment."""
        self.fresh_ids.clear()  # whatever was decided about them was written before this entry, or in front of it
        self._note(op.at)
        match op:
            case Leased():
                self._hand_out(op.offsets, op.length_ms, op.at)
            case Acked():
                # What is acknowledged without having been leased was handed out at most once: that was its turn.
                if self.shelf.has_lanes and (taken := list(filter(self.shelf.is_visible, op.offsets))):
                    self._take(taken, op.at)
                self.counts.acknowledged += self._finish(op.offsets)
            case Extended():
                self._hold_longer(op.offsets, op.length_ms, op.at)
            case Released():
                for offset in op.offsets:
                    if offset not in self.leases:
                        self._resume(offset, op.at)
                    if (lease := self.leases.pop(offset)) is not None:
                        self._lease_over(offset, lease, ended_ms=op.at.wall_ms, delay_ms=op.delay_ms)
            case Failed():
                if op.offset not in self.leases:
                    self._resume(op.offset, op.at)
                if (lease := self.leases.pop(op.offset)) is not None:
                    self._lease_over(op.offset, lease, ended_ms=op.at.wall_ms, delay_ms=op.delay_ms)
                    if op.offset in self.dying_reasons:
                        self.errors[op.offset] = op.error
            case Returned():
                for offset in op.offsets:
                    if (lease := self.leases.pop(offset)) is not None:
                        self._lease_unused(offset, lease)
            case Rejected():
                if (lease := self.leases.pop(op.offset)) is not None:
                    self.attempts[op.offset] = packed.history_of(lease)
                    self.dying_reasons[op.offset] = op.reason
            case DeadLettered() | Moved():
                self.counts.dead_lettered += self._finish(op.offsets)
            case Expired():
                self.counts.expired += self._finish(op.offsets)
                retention_ms = self.config.retention_ms
                if op.cause is ExpiryCause.RETENTION and retention_ms is not None:
                    self.counts.expired += self._finish_old(op.upto, op.at.wall_ms - retention_ms)
                else:
                    self.counts.expired += self._finish_below(op.upto)
            case Dropped():
                self.counts.dropped += self._finish(op.offsets)
            case Repeated():
                repeated = BitMap64(op.offsets)
                self.deduplication.drop(repeated, below=repeated.max() + 1)
                self.counts.withdrawn += self._finish(op.offsets)
            case Purged():
                # Nobody has acknowledged what is dropped here, so it may be sent again.
                self.deduplication.drop(self.live, below=op.upto)
                self.counts.purged += self._finish_below(op.upto)
            case Configured():
                self._configure(op.config)
                self._note_live(op.at)
            case ReaderMoved():
                self.readers[op.name] = op.offset
            case ReaderRemoved():
                self.readers.pop(op.name, None)
            case TxnAcked():
                for offset in op.offsets:
                    if (lease := self.leases.pop(offset)) is not None:
                        self.held[offset] = HeldLease(op.producer_id, lease)
            case TxnEnded():
                self.counts.acknowledged += self._take_back(op.producer_id, op.is_commit, op.at)
            case Ticked():
                pass
            case _:
                assert_never(op)

    def raise_start(self, offset: int) -> int:
        """The log begins here now: what was live below is gone, and counts as expired. Returns how many."""
        count = self._finish_below(offset)
        self.counts.expired += count
        return count

    def _note(self, at: Instant) -> None:
        if self.config.history_ms:
            self._note_live(at)
        self.noted = at
        self.terms.note(self.epoch, at)
        if self.deduplication:
            self.deduplication.forget(at.wall_ms)
        if self.moves:
            self.moves.date(at.lease_ms + MOVES_REMEMBERED_MS)
            self.moves.forget(at.lease_ms)

    def _note_live(self, at: Instant) -> None:
        """Note what is not done, for the queue's history."""
        if not self.config.history_ms:
            self.lately.clear()
            return
        self.lately.note(
            self.live,
            self.arrived_end,
            at_ms=at.wall_ms,
            last_ms=self.noted.wall_ms,
            history_ms=self.config.history_ms,
        )
