"""The queue fold: who may receive which message of a partition next.

Theory of operation. A partition's log holds messages and what was decided about them, in one order. The fold is what
follows from both: which messages are live, and where each of them is. It is made of four parts:

    places.py   where each message is, and the ways between the places
    state.py    arrivals, entries and time, and nothing else, change the state
    fold.py     decisions: what is asked, checked against the state, becomes an entry
    view.py     what people ask: where is a message, what blocks a key

A decision checks, builds its entry, applies it to the state and returns it, without a wait in between, so the next
decision of the same turn sees it. The caller appends the entries of a turn as one batch, and by the queue's guarantee
hands out before or after they are committed. On replay the same entries go through `apply` alone. The state is
then the same to the byte, if three rules are kept:

- Arrivals and entries come in the log's order. What was decided before a batch arrived is appended before it.
- A snapshot is taken only when every decision is appended, so that none is replayed onto a state that has it.
- After a restart, the lease clock goes on from `now.lease_ms`.

    arrive -> [delayed ->] visible -> leased -> acknowledged
                 ^            ^          |----> dying -> dead-lettered     attempts used up, or rejected
                 |            |----------|                                 expired or released, without back-off
                 |-----------------------|                                 expired or released, with it
    and from anywhere to expired, dropped or purged
    (what transactions add: transaction.py)

A message is handed out only below `upto`, the high watermark: it is taken up when it is written, and given out when it
is committed. Attempts are counted when a lease is taken. A receipt names the attempt; it is good as long as the lease
with that number is held, and a lease is over at its end, whether or not somebody else has the message by then. Only
whoever may be late (`check_newest`) is refused no sooner than when the message was leased again or is on its way out.

Sets of offsets are compressed bitmaps, so ten million waiting messages are a few kilobytes; only what is leased,
delayed by its own wish or retried costs memory by the message.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple, TypeVar

from headrace.folds.queue import attempt as packed
from headrace.folds.queue.attempt import NO_HISTORY, History
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.lately import Kept
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
from headrace.folds.queue.runs import offsets_in
from headrace.folds.queue.state import QueueState
from headrace.model.errors import InvalidRequestError, StaleReceiptError, TooManyLeasedError
from headrace.model.ids import Offset
from headrace.model.queue import LEASE_MS_MAX, QueueConfig

# Messages that one entry of retention may drop from between others, so that nobody waits long for it.
EXPIRED_MAX = 10_000
# The reason of a rejection that gives none.
_REJECTED = "rejected"

OpType = TypeVar("OpType", bound=Op)


class Lease(NamedTuple):
    """A message that was handed out."""

    offset: int
    number: int  # counted from 1; what receipts name
    first_ms: int  # when it was first handed out (wall clock)
    unused_count: int = 0  # leases before it that were given back by somebody who had not begun

    @property
    def attempt(self) -> int:
        """The number of the attempt, of those that count."""
        return self.number - self.unused_count


class Handout(NamedTuple):
    """What one consumer gets, in order, and the entry that says so."""

    op: Leased | Acked
    leases: list[Lease]


class Dying(NamedTuple):
    """A message to be copied to the dead-letter queue."""

    offset: int
    reason: str  # of its rejection; empty: its attempts are used up
    history: History
    error: str = ""  # what the last attempt failed with, if its consumer said so


class QueueFold(QueueState):
    """The decisions about one partition of a queue."""

    # Handing out.

    def lease(self, count_max: int, lease_ms: int, *, upto: int, now: Instant) -> Handout | None:
        """Hand out up to so many visible messages for so long; None if there are none."""
        assert count_max > 0
        assert 0 <= lease_ms <= LEASE_MS_MAX
        self.keep_up(now, count_max)
        room = self.config.leased_max - self.leased_count
        if room <= 0:
            if self.is_behind:  # some of these leases may be over
                return None
            raise TooManyLeasedError(
                f"{self.leased_count} messages of a partition are leased, as many as leased_max allows; "
                "acknowledge or release some, or raise it"
            )
        offsets = self._pick(min(count_max, room), upto)
        if not offsets:
            return None
        op = self._applied(Leased(tuple(offsets), lease_ms, self.now))
        values = self.leases.values
        leases = []
        for offset in offsets:
            value = values[offset]
            number, first_ms = packed.attempt_of(value), packed.first_ms_of(value)
            leases.append(Lease(offset, number, first_ms, self.unused.get(offset, 0) if self.unused else 0))
        return Handout(op, leases)

    def choose(self, count_max: int, *, upto: int, now: Instant) -> list[int]:
        """What `take` would hand out at this moment."""
        self.keep_up(now, count_max)
        return self._pick(count_max, upto)

    def take(self, count_max: int, *, upto: int, now: Instant) -> Handout | None:
        """Hand out for good, at most once: to be acknowledged in the log before it is given out."""
        offsets = self.choose(count_max, upto=upto, now=now)
        return self.take_chosen(offsets, now=now) if offsets else None

    def take_chosen(self, offsets: Sequence[int], *, now: Instant) -> Handout:
        """The same with what was chosen at this moment, or with the first of it."""
        wall_ms = self.now.wall_ms
        leases = []
        for offset in offsets:
            history = self.history(offset)
            leases.append(Lease(offset, history.attempts + 1, history.first_ms if history.attempts else wall_ms))
        return Handout(self.acknowledge(offsets, now=now), leases)

    def _pick(self, count_max: int, upto: int) -> list[int]:
        """What is to be handed out. Behind, it is settled first: a message's life may be over.

        As many leases have been ended before as are asked for, so what comes back first is there to be handed out, as
        far as it comes back in the order in which it is to be handed out.
        """
        left = self.step_count
        while left > 0 and (offsets := self.shelf.pick(count_max, upto)):
            if not (self.is_behind and self.settle(offsets)):
                return offsets
            left -= len(offsets)
        return []

    def has_visible(self, upto: int) -> bool:
        """Whether something could be handed out now, as far as time has passed."""
        return self.shelf.has_visible(upto)

    # What holders of a lease ask.

    def check(self, offset: int, number: int, *, now: Instant) -> None:
        """Refuse a receipt whose lease is over, saying what became of it."""
        self.keep_up(now)
        if self.is_behind:
            self.settle((offset,))
        lease = self.leases.get(offset)
        if lease is not None and packed.attempt_of(lease) == number:
            return
        if offset not in self.live:
            raise StaleReceiptError(
                f"the message at offset {offset} is gone: acknowledged, dead-lettered, expired or purged", is_gone=True
            )
        if offset in self.held:
            raise StaleReceiptError(
                f"the message at offset {offset} is acknowledged in a transaction; it is done when that commits"
            )
        if lease is not None:
            raise StaleReceiptError(
                f"the message at offset {offset} was leased again, lease {packed.attempt_of(lease)}, "
                f"and this receipt is of lease {number}; whoever has it now may acknowledge it"
            )
        raise StaleReceiptError(
            f"lease {number} of the message at offset {offset} is over: it expired or was given back; "
            "receive it again, or ask for longer leases"
        )

    def is_of_epoch(self, offset: int, epoch: int) -> bool:
        """Whether the last lease of a message was taken in this epoch, as far as that is known; also if it is gone."""
        if offset not in self.live:
            return True
        lease = self.held[offset].lease if offset in self.held else self.leases.get(offset)
        if lease is not None:
            known = self.terms.at_lease_ms(packed.taken_ms(lease))
        elif (tried := self.attempts.get(offset)) is not None:
            known = self.terms.at_wall_ms(packed.unpack_history(tried).last_ms)
        else:
            return False
        return known is None or known == epoch

    def check_newest(self, offset: int, attempt: int, *, now: Instant) -> None:
        """Like `check`, but a receipt whose lease is over is good for as long as nobody has leased the message since.

        Not if the message is on its way out: its copy may be in the dead-letter queue by now.
        """
        try:
            self.check(offset, attempt, now=now)
        except StaleReceiptError:
            if self._last_idle(offset) != attempt:
                raise

    def check_idle(self, offset: int, attempt: int, *, now: Instant) -> None:
        """Like `check`, but every receipt is good while no consumer has the message; for `extend` and `release`.

        Not in an ordered queue, where the next message of the key may have been handed out.
        """
        try:
            self.check(offset, attempt, now=now)
        except StaleReceiptError:
            if self.config.ordered or self._last_idle(offset) < attempt:
                raise

    def _last_idle(self, offset: int) -> int:
        """The number of the last lease of a message that no consumer has; 0: it is leased, on its way out or gone."""
        if offset in self.dying_reasons or offset in self.overdue:
            return 0
        return packed.unpack_history(self.attempts.get(offset, 0)).attempts

    def acknowledge(self, offsets: Sequence[int], *, now: Instant) -> Acked:
        """The holders of these are done. The caller has checked their receipts."""
        return self._applied(Acked(tuple(offsets), self._moment(now, offsets)))

    def acknowledge_later(self, producer_id: int, offsets: Sequence[int], *, now: Instant) -> TxnAcked:
        """The holders of these are done if a transaction commits. The caller has checked their receipts."""
        return self._applied(TxnAcked(producer_id, tuple(offsets), self._moment(now, offsets)))

    def is_held(self, producer_id: int, offset: int, attempt: int) -> bool:
        """Whether this lease was acknowledged in a producer's open transaction."""
        held = self.held.get(offset)
        return held is not None and held.producer_id == producer_id and packed.attempt_of(held.lease) == attempt

    def has_held(self, producer_id: int) -> bool:
        return any(held.producer_id == producer_id for held in self.held.values())

    def end_acknowledged(self, producer_id: int, *, is_commit: bool, now: Instant) -> TxnEnded:
        """A transaction ended, for what was acknowledged in it."""
        return self._applied(TxnEnded(producer_id, is_commit, self._moment(now)))

    def extend(self, offsets: Sequence[int], lease_ms: int, *, now: Instant) -> Extended:
        """Hold leases for so long from now on, also those that `check_idle` passes. All, or an error and none."""
        at = self._moment(now, offsets)
        for offset in offsets:
            if (lease := self.leases.get(offset)) is not None:
                held_ms = at.lease_ms - packed.taken_ms(lease)
            elif (tried := self.attempts.get(offset)) is not None:
                held_ms = at.wall_ms - packed.unpack_history(tried).last_ms
            else:
                continue
            if held_ms + lease_ms > LEASE_MS_MAX:
                raise InvalidRequestError(
                    f"the lease of the message at offset {offset} would last longer than {LEASE_MS_MAX} ms in total; "
                    "release it and receive it again, or ask for less"
                )
        return self._applied(Extended(tuple(offsets), lease_ms, at))

    def release(self, offsets: Sequence[int], delay_ms: int | None, *, now: Instant) -> Released:
        """Give leases back, visible again after the delay; None: after the queue's back-off, if it has one.

        Also those that `check_idle` passes.
        """
        return self._applied(Released(tuple(offsets), delay_ms, self._moment(now, offsets)))

    def fail(self, offset: int, delay_ms: int | None, error: str, *, now: Instant) -> Failed:
        """Give a lease back like `release`, saying what its consumer failed with."""
        return self._applied(Failed(offset, delay_ms, error, self._moment(now, (offset,))))

    def return_unused(self, offsets: Sequence[int], *, now: Instant) -> Returned:
        """Give leases back of messages that nobody has begun with: visible at once, and no attempt counts."""
        return self._applied(Returned(tuple(offsets), self._moment(now, offsets)))

    def reject(self, offset: int, reason: str, *, now: Instant) -> Rejected:
        """End a lease for good: a dead letter, whatever attempts are left."""
        # An empty reason is that of a message whose attempts are used up.
        return self._applied(Rejected(offset, reason or _REJECTED, self._moment(now, (offset,))))

    # The end of messages.

    def dying(self, count_max: int) -> list[Dying]:
        """Messages to be copied to the dead-letter queue, if there are any."""
        return [
            Dying(offset, reason, self.history(offset), self.errors.get(offset, ""))
            for offset, reason in islice(self.dying_reasons.items(), count_max)
        ]

    def expired(self, count_max: int) -> list[int]:
        """Messages whose time to live is over and which nobody holds: to be expired, or copied and dead-lettered."""
        return list(islice(self.overdue, count_max))

    def dead_letter(self, offsets: Sequence[int], reason: str, *, now: Instant) -> DeadLettered:
        """Their copies are committed in the dead-letter queue."""
        return self._applied(DeadLettered(tuple(offsets), reason, self._moment(now, offsets)))

    def move(self, offsets: Sequence[int], *, now: Instant) -> Moved:
        """Their copies are committed in the queue that they were redriven to."""
        return self._applied(Moved(tuple(offsets), self._moment(now, offsets)))

    def expire(self, offsets: Sequence[int], *, now: Instant) -> Expired:
        return self._applied(Expired(tuple(offsets), 0, ExpiryCause.TIME_TO_LIVE, self._moment(now, offsets)))

    def expire_below(self, upto: int, *, now: Instant) -> Expired:
        """Whatever is below this offset is gone from the log."""
        return self._applied(Expired((), upto, ExpiryCause.LOG_START, self._moment(now)))

    def expire_old(self, upto: int, *, now: Instant) -> Expired | None:
        """Retention: what is below this offset has been there too long, delays not counted. None: nothing has.

        Between messages that stay it goes one by one, and so no more than a number of them at a time: ask again.
        """
        at, retention_ms = self._moment(now), self.config.retention_ms
        if self.is_behind or retention_ms is None:
            return None  # what time has not got to is delayed here, and would not be for whoever replays this
        spared = self.spared(upto)
        old = self.live - spared if spared else self.live
        if not old.range_cardinality(0, upto) and not self._has_old_late(upto, at.wall_ms - retention_ms):
            return None
        if spared:
            single = old.iter_equal_or_larger(spared.min())
            upto = min(upto, next(islice(single, EXPIRED_MAX, None), upto))
        return self._applied(Expired((), upto, ExpiryCause.RETENTION, at))

    def _has_old_late(self, upto: int, due_before_ms: int) -> bool:
        """Whether a message below an offset, that was delayed for long, is due for so long."""
        late_ms = self.late_dues.next_ms()
        if late_ms is None or late_ms > due_before_ms:
            return False
        return any(self.late_dues.values[offset] <= due_before_ms for offset in offsets_in(self.late, 0, upto))

    def free_offsets(self) -> Iterator[int]:
        """Messages that nobody holds and that are not on their way out, in order: of these a full queue drops."""
        if self.is_behind:
            return filter(self._is_free, self.live)
        # Not a look at each live one in turn: a million may be leased before the first that is not.
        ready = filter(self._is_ready, self.shelf.maybe_ready())
        return merge(ready, iter(self.delayed), iter(self.overdue))

    def _is_free(self, offset: int) -> bool:
        if self.is_behind:
            self.settle((offset,))
        return not any(offset in place for place in (self.leases, self.dying_reasons, self.held, self.undecided))

    def _is_ready(self, offset: int) -> bool:
        return self._is_free(offset) and offset not in self.delayed and offset not in self.overdue

    def drop(self, offsets: Sequence[int], *, now: Instant) -> Dropped:
        return self._applied(Dropped(tuple(offsets), self._moment(now, offsets)))

    def withdraw(self, offsets: Sequence[int], *, now: Instant) -> Repeated:
        """Another partition knows the ids of these messages."""
        return self._applied(Repeated(tuple(offsets), self._moment(now, offsets)))

    def take_fresh_ids(self) -> list[tuple[bytes, int]]:
        """Ids that came since the last entry or call, with the offsets of their messages."""
        fresh, self.fresh_ids = self.fresh_ids, []
        return fresh

    def purge(self, upto: int, *, now: Instant) -> Purged:
        return self._applied(Purged(upto, self._moment(now)))

    # The queue itself.

    def configure(self, config: QueueConfig, *, now: Instant) -> Configured:
        at = self._moment(now)
        self.catch_up()
        return self._applied(Configured(config, at))

    def move_reader(self, name: str, offset: int, *, now: Instant) -> ReaderMoved:
        return self._applied(ReaderMoved(name, offset, self._moment(now)))

    def remove_reader(self, name: str, *, now: Instant) -> ReaderRemoved:
        return self._applied(ReaderRemoved(name, self._moment(now)))

    def tick(self, now: Instant) -> Ticked:
        """An entry that says the time. Worth writing about once a minute while `wants_tick`."""
        return self._applied(Ticked(self._moment(now)))

    @property
    def wants_tick(self) -> bool:
        """Whether anything waits for time that only entries tell: leases over a restart, ids to be forgotten."""
        return bool(self.leases or self.deduplication or self.moves)

    # Repetitions.

    def find_duplicate(self, deduplication_id: bytes, *, now: Instant) -> int | None:
        """The offset of the message with this id that arrived within the window."""
        if not self.config.deduplication_window_ms:
            return None  # also what came while there was one: this id would be stored by any other door
        return self.deduplication.find(deduplication_id, max(now.wall_ms, self.now.wall_ms))

    def find_moved(self, move_id: bytes) -> int | None:
        """The offset of the message that came here by this move."""
        return self.moves.find(move_id, self.noted.lease_ms)

    # Facts.

    @property
    def last_lease_ms(self) -> int:
        """Where the lease clock goes on after a restart."""
        return self.now.lease_ms

    @property
    def leased_count(self) -> int:
        return len(self.leases) + len(self.held)

    @property
    def delayed_count(self) -> int:
        """Delayed, or sent in a transaction that is open."""
        return len(self.delayed) + len(self.undecided)

    @property
    def visible_count(self) -> int:
        """Live and neither leased nor delayed: blocked, dying and overdue ones among them."""
        return len(self.live) - self.leased_count - self.delayed_count

    @property
    def floor(self) -> Offset:
        """No message below it is live."""
        return Offset(next(iter(self.live), self.end_offset))

    def history(self, offset: int) -> History:
        """The attempts at a message that count so far, the present one included."""
        lease = self.leases.get(offset)
        if lease is None and offset in self.held:
            lease = self.held[offset].lease
        history = self.attempts.get(offset, 0) if lease is None else packed.history_of(lease)
        if not history:
            return NO_HISTORY
        attempts, first_ms, last_ms = packed.unpack_history(history)
        return History(attempts - self.unused.get(offset, 0), first_ms, last_ms)

    def is_live(self, offset: int) -> bool:
        return offset in self.live

    def live_in(self, start: int, end: int) -> int:
        return self.live.range_cardinality(start, end)

    def live_offsets(self, start: int, end: int) -> Iterator[int]:
        return offsets_in(self.live, start, end)

    def kept_for_history(self, now: Instant) -> Kept | None:
        """What must stay to be read by offset though it is done."""
        history_ms = self.config.history_ms
        return self.lately.kept(now.wall_ms - history_ms, self.noted.wall_ms) if history_ms else None

    def _moment(self, now: Instant, offsets: Iterable[int] = ()) -> Instant:
        """What an entry about these says: never earlier than what time has already done here, and has done to these."""
        self.keep_up(now)
        if self.is_behind:
            self.settle(offsets)
        return self.now

    def _applied(self, op: OpType) -> OpType:
        """Obey what was decided. Time has passed up to its moment already."""
        self._obey(op)
        return op
