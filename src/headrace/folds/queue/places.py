"""Where each live message of a queue is, and the ways between the places.

    on the shelf      ready: it could be handed out, as far as it alone is concerned
    leases            held by a consumer
    delayed           ready once its moment has come; `rests` has the moment, or `rest_runs` for the queue's default
    dying             to be copied to the dead-letter queue: attempts used up, or rejected
    overdue           its time to live is over; somebody has to write that down
    undecided         sent in a transaction that is open: `transactions` has whose
    held              leased, and acknowledged in a transaction that is open

A message is in exactly one of these. Beside them, for live messages: `attempts` (tried, and not leased now), `unused`
(how many of its attempts do not count), `lives` and `life_runs` (time to live to come), `lapsed` (time to live over:
overdue as soon as its lease ends), `late` and `late_dues` (those that were delayed for long, and when they are due).
"""

from collections.abc import Iterable
from itertools import islice

import msgspec
from pyroaring import BitMap64

from headrace.folds.queue import attempt as packed
from headrace.folds.queue.attempt import History
from headrace.folds.queue.deadlines import Deadlines
from headrace.folds.queue.instant import BEGINNING, Instant
from headrace.folds.queue.lanes import OrderedShelf
from headrace.folds.queue.lately import Lately
from headrace.folds.queue.remembered import RememberedIds
from headrace.folds.queue.rotation import Marks, Rotation, rotation_key
from headrace.folds.queue.runs import Runs, offsets_in
from headrace.folds.queue.shelf import Shelf
from headrace.folds.queue.terms import Terms
from headrace.folds.queue.transaction import HeldLease, OpenTransaction
from headrace.folds.queue.turns import FairShelf
from headrace.model.ids import Offset
from headrace.model.queue import ATTEMPTS_MAX, QueueConfig

DEFAULTS = QueueConfig()
# Delays from here on are remembered, because retention does not count them.
LONG_DELAY_MS = 60 * 60 * 1000
# So many messages are let go one by one, rather than all that is held looked through for them.
FEW = 1000


class Counts(msgspec.Struct, kw_only=True):
    """What became of the messages, from the first one on."""

    sent: int = 0
    acknowledged: int = 0
    dead_lettered: int = 0  # and those that a redrive moved away
    expired: int = 0
    dropped: int = 0
    purged: int = 0
    withdrawn: int = 0  # sent in a transaction that was aborted, or that repeated what had been sent before


def is_long_delay(delay_ms: int, config: QueueConfig) -> bool:
    """Whether a delay is worth remembering: also a short one, where retention is not much longer."""
    return delay_ms >= LONG_DELAY_MS or (config.retention_ms is not None and delay_ms * 100 > config.retention_ms)


class Places:
    """The messages of one partition of a queue, and what is remembered beside them."""

    def __init__(self, config: QueueConfig = DEFAULTS, *, end_offset: int = 0) -> None:
        self.config = config
        self.now = BEGINNING
        self.noted = BEGINNING  # the moment of the last entry, which a replay knows too
        self.end_offset = Offset(end_offset)
        self.arrived_end = end_offset  # where the last message ended
        self.counts = Counts()
        self.readers: dict[str, int] = {}
        self.epoch = 0  # of the leader that writes the entries
        self.terms = Terms()
        self.live = BitMap64()
        self.marks = Marks()
        self.shelf = self._make_shelf()
        self.leases = Deadlines(shift=packed.END_SHIFT)  # on the lease clock; all other moments are of the wall clock
        self.delayed = BitMap64()
        self.rests = Deadlines()
        self.rest_runs = Runs()
        self.dying_reasons: dict[int, str] = {}
        self.errors: dict[int, str] = {}  # what the last attempt failed with, of those that are dying
        self.attempts: dict[int, int] = {}
        self.unused: dict[int, int] = {}
        self.late = BitMap64()
        self.late_dues = Deadlines()
        self.lives = Deadlines()
        self.life_runs = Runs()
        self.lapsed = BitMap64()
        self.overdue = BitMap64()
        self.undecided = BitMap64()
        self.transactions: dict[int, OpenTransaction] = {}  # by producer id
        self.held: dict[int, HeldLease] = {}
        self.lately = Lately()
        self.deduplication = RememberedIds()
        self.moves = RememberedIds()
        # Ids that came after the last entry, with their messages: whether another partition knows them is not written.
        self.fresh_ids: list[tuple[bytes, int]] = []

    def _make_shelf(self) -> Shelf:
        rotation = Rotation(self.marks, self._rotation_key)
        if self.config.ordered:
            return OrderedShelf(self.live, rotation)
        return FairShelf(self.live, rotation) if self.config.fair else Shelf(self.live, rotation)

    # Handing out, and what comes back.

    def _hand_out(self, chosen: Iterable[int], length_ms: int, at: Instant) -> None:
        offsets = [offset for offset in chosen if offset in self.live and offset not in self.leases]
        if self.delayed or self.overdue or self.dying_reasons or self.undecided or self.held:
            # Never so in the log that was written. In one that was cleaned, the entry may be missing by which a
            # message came back to the shelf, and then whoever leased it knew better.
            for offset in offsets:
                self._unplace(offset)
        self._take(offsets, at)
        span_ms = max(at.lease_ms + length_ms - self.terms.taken_ms(at), 0)
        first = packed.pack_lease(at=at, length_ms=length_ms, span_ms=span_ms, attempt=1, first_ms=at.wall_ms)
        fresh = offsets
        if self.attempts:
            fresh = []
            for offset in offsets:
                history = self.attempts.pop(offset, 0)
                if not history:
                    fresh.append(offset)
                    continue
                number, first_ms = packed.next_attempt(history), packed.first_ms_in(history)
                self.leases.put(
                    offset,
                    packed.pack_lease(at=at, length_ms=length_ms, span_ms=span_ms, attempt=number, first_ms=first_ms),
                )
        self.leases.put_all(fresh, first)

    def _hold_longer(self, offsets: Iterable[int], length_ms: int, at: Instant) -> None:
        extended: dict[int, int] = {}
        for offset in offsets:
            lease = self.leases.get(offset)
            if lease is None and (lease := self._resume(offset, at)) is None:
                continue
            extended[offset] = packed.pack_lease(
                at=at,
                length_ms=length_ms,
                span_ms=max(at.lease_ms + length_ms - packed.taken_ms(lease), 0),
                attempt=packed.attempt_of(lease),
                first_ms=packed.first_ms_of(lease),
            )
        self.leases.move_all(extended)

    def _resume(self, offset: int, at: Instant) -> int | None:
        """Hold a message again whose last lease is over and which no consumer has leased since; None: it is elsewhere.

        It is the same lease, under the same number and as of when it was taken, so its receipt is good again.
        """
        if self.config.ordered or offset in self.dying_reasons or offset in self.overdue:
            return None
        history = self.attempts.pop(offset, None)
        if history is None:
            return None
        if offset in self.delayed:
            self._unplace(offset)
        else:
            self.shelf.unready(offset)
        attempts, first_ms, last_ms = packed.unpack_history(history)
        span_ms = at.lease_ms - self.terms.lease_ms_of(last_ms, at)
        lease = packed.pack_lease(at=at, length_ms=0, span_ms=span_ms, attempt=attempts, first_ms=first_ms)
        self.leases.put(offset, lease)
        return lease

    def _lease_over(self, offset: int, lease: int, *, ended_ms: int, delay_ms: int | None) -> None:
        """A lease expired or was given back, at a time of the wall clock. None: the queue's back-off decides."""
        self.attempts[offset] = packed.history_of(lease)
        if self._is_used_up(offset):
            self.dying_reasons[offset] = ""
            return
        if offset in self.lapsed:
            self._end_life(offset)
            return
        if delay_ms is None and self.config.backoff is not None:
            delay_ms = self.config.backoff.delay_ms(packed.attempt_of(lease) - self.unused.get(offset, 0))
        if delay_ms:
            self.delayed.add(offset)
            self._rest(offset, ended_ms, delay_ms)
        else:
            self._make_ready(offset)

    def _take(self, offsets: Iterable[int], at: Instant) -> None:
        """Messages are handed out, leased or already acknowledged."""
        if not (self.attempts or self.leases or self.held or self.shelf.has_turns):
            self.marks.clear()  # nothing is left that was handed out before
        self.marks.note(at.wall_ms, self.arrived_end)
        self.shelf.take(offsets, at.wall_ms)

    def _make_ready(self, offset: int) -> None:
        """It could be handed out: at its place, or in turn if it was tried before."""
        self.shelf.ready(offset, is_tried=offset in self.attempts and self._is_tried(offset))

    def _is_tried(self, offset: int) -> bool:
        """Whether a consumer has begun with a message that is not leased."""
        return packed.unpack_history(self.attempts[offset]).attempts > self.unused.get(offset, 0)

    def _rotation_key(self, offset: int) -> int:
        attempts, _, last_ms = packed.unpack_history(self.attempts.get(offset, 0))
        return rotation_key(last_ms, attempts)

    def tried_offsets(self) -> BitMap64:
        """Messages that were handed out, and that are not leased."""
        tried = BitMap64(self.attempts)
        tried -= BitMap64([offset for offset in self.unused if offset in tried and not self._is_tried(offset)])
        return tried

    def _is_used_up(self, offset: int) -> bool:
        """Whether a message that is not leased has had as many deliveries as it may have."""
        limit = self.config.max_deliveries
        if limit is None:
            return False
        return packed.unpack_history(self.attempts[offset]).attempts - self.unused.get(offset, 0) >= limit

    def _rest(self, offset: int, since_ms: int, delay_ms: int) -> None:
        """It is due so long after a moment of the wall clock."""
        self.rests.put(offset, since_ms + delay_ms)
        if is_long_delay(delay_ms, self.config):
            self.late.add(offset)
            self.late_dues.put(offset, since_ms + delay_ms)

    def _lease_unused(self, offset: int, lease: int) -> None:
        """A lease was given back by somebody who had not begun. Its number stays taken: a receipt names it."""
        self.attempts[offset] = packed.history_of(lease)
        if packed.attempt_of(lease) < ATTEMPTS_MAX:
            self.unused[offset] = self.unused.get(offset, 0) + 1
        if self._is_used_up(offset):  # the limit was lowered since it was leased
            self.dying_reasons[offset] = ""
        elif offset in self.lapsed:
            self._end_life(offset)
        else:
            self._make_ready(offset)

    def _take_back(self, producer_id: int, is_commit: bool, at: Instant) -> int:
        """End what was acknowledged in a transaction: for good, or not at all. Returns how many are done."""
        offsets = [offset for offset, held in self.held.items() if held.producer_id == producer_id]
        if is_commit:
            return self._finish(offsets)
        for offset in offsets:
            self._lease_over(offset, self.held.pop(offset).lease, ended_ms=at.wall_ms, delay_ms=0)
        return 0

    def _rested(self, offset: int) -> None:
        if offset in self.delayed and offset not in self.rests:
            self.delayed.remove(offset)
            self._make_ready(offset)

    def _lapse(self, offset: int) -> None:
        """Its time to live is over. Whoever holds it may finish; otherwise nobody gets it any more."""
        self.lapsed.add(offset)
        if offset in self.leases or offset in self.dying_reasons or offset in self.undecided or offset in self.held:
            return
        self._end_life(offset)
        if offset in self.delayed:
            self.delayed.remove(offset)
            self.rests.pop(offset)
        else:
            self.shelf.unready(offset)

    def _end_life(self, offset: int) -> None:
        """Nobody gets it any more. If somebody had it, retention spares it no longer: a replay may have the ends of its
        last lease and of its life behind it at once, and be it the first that puts a message off for long, or the
        second that forbids it, it must come to the same."""
        self.overdue.add(offset)
        if self.late and offset in self.attempts:
            self.late.discard(offset)
            self.late_dues.pop(offset)

    # The end of messages.

    def _finish(self, offsets: Iterable[int]) -> int:
        """Let messages go, wherever they are. Returns how many were live."""
        live, leases, shelf = self.live, self.leases, self.shelf
        count = 0
        for offset in offsets:
            if offset not in live:
                continue
            live.remove(offset)
            count += 1
            was_leased = leases.pop(offset) is not None
            # A leased message is nowhere else, except for what is asked here.
            if not was_leased or shelf.has_lanes or shelf.others:
                self._leave(offset)
            if self.lives:
                self.lives.pop(offset)
            if self.lapsed:
                self.lapsed.discard(offset)
            if self.unused:
                self.unused.pop(offset, None)
            if self.late:
                self.late.discard(offset)
                self.late_dues.pop(offset)
        return count

    def _leave(self, offset: int) -> None:
        self.attempts.pop(offset, None)
        self._unplace(offset)
        self.shelf.done(offset)

    def _unplace(self, offset: int) -> None:
        self.dying_reasons.pop(offset, None)
        if self.errors:
            self.errors.pop(offset, None)
        self.overdue.discard(offset)
        self.held.pop(offset, None)
        if offset in self.delayed:
            self.delayed.remove(offset)
            self.rests.pop(offset)
        elif offset in self.undecided:
            self.undecided.remove(offset)
            self.rests.pop(offset)

    def _finish_below(self, upto: int) -> int:
        """Let go whatever is below an offset. Ten million messages at once are no loop, and a few are no search."""
        upto = min(upto, self.end_offset)
        count = self.live.range_cardinality(0, upto)
        if count <= FEW:
            return self._finish(list(islice(self.live, count)))
        for offsets in (self.live, self.delayed, self.late, self.lapsed, self.overdue, self.undecided):
            offsets.remove_range(0, upto)
        for deadlines in (self.leases, self.rests, self.rest_runs, self.late_dues, self.lives, self.life_runs):
            deadlines.pop_below(upto)
        self.held = {offset: held for offset, held in self.held.items() if offset >= upto}
        self.attempts = {offset: history for offset, history in self.attempts.items() if offset >= upto}
        self.unused = {offset: count for offset, count in self.unused.items() if offset >= upto}
        self.dying_reasons = {offset: reason for offset, reason in self.dying_reasons.items() if offset >= upto}
        self.errors = {offset: error for offset, error in self.errors.items() if offset >= upto}
        self.shelf.done_below(upto)
        return count

    def spared(self, upto: int) -> BitMap64:
        """What retention does not drop below an offset: its delay is not over, or was not for so long."""
        spared = self.late | self.delayed
        spared.remove_range(upto, max(self.end_offset, upto))
        return spared

    def _finish_old(self, upto: int, due_before_ms: int) -> int:
        """Let go what is below an offset, but for what is spared."""
        while self.late_dues.is_due(due_before_ms):
            # One more than there are: what is due may be an outdated entry alone, and has to be looked at all the same.
            for offset, _ in self.late_dues.pop_due(due_before_ms, len(self.late) + 1):
                self.late.discard(offset)
        spared = self.spared(upto)
        if not spared:
            return self._finish_below(upto)
        first = spared.min()
        count = self._finish_below(first)
        return count + self._finish(list(offsets_in(self.live - spared, first, upto)))

    def sweep_ids(self) -> bool:
        """Take some forgotten ids out of memory. Whether there are more."""
        return self.deduplication.sweep() or self.moves.sweep()

    # Another configuration.

    def _configure(self, config: QueueConfig) -> None:
        is_other_shelf = (config.ordered, config.fair) != (self.config.ordered, self.config.fair)
        is_other_limit = config.max_deliveries != self.config.max_deliveries
        self.config = config
        if is_other_limit and config.max_deliveries is not None:
            self._end_used_up(config.max_deliveries)
        if is_other_shelf:
            # Keys are known of messages that came while they were obeyed; those of before have no order, and no turn.
            old = self.shelf
            self.shelf = self._make_shelf()
            lanes = [image._replace(turn=0) for image in old.lanes()]  # turns of another kind say nothing here
            self.shelf.load(lanes, self.ready_offsets(), old.others, self.tried_offsets())

    def _end_used_up(self, limit: int) -> None:
        """What has had more deliveries than a lowered limit allows gets none more: it is on its way out now."""
        least = packed.pack_history(History(limit, 0, 0))  # compared as numbers, for there may be a million
        tried = BitMap64(offset for offset, history in self.attempts.items() if history >= least)
        tried -= self.overdue
        tried -= BitMap64(self.dying_reasons)
        tried -= BitMap64(offset for offset in self.unused if offset in tried and not self._is_used_up(offset))
        self.dying_reasons.update(dict.fromkeys(tried, ""))
        for offset in self.delayed & tried:
            self.rests.pop(offset)
        for offset in tried - self.delayed:
            self.shelf.unready(offset)
        self.delayed -= tried

    def ready_offsets(self) -> BitMap64:
        """Live messages that are on the shelf."""
        unready = BitMap64(self.leases.values)
        unready.update(self.dying_reasons)
        unready.update(self.held)
        return self.live - unready - self.delayed - self.overdue - self.undecided
