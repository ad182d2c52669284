"""One partition of a queue: its fold, what is to be written about it, and those who wait for that.

Theory of operation. Every decision changes the fold at once and leaves an op to be written (`ledger.py`), behind which
come the messages of the same turn. Decisions see each other in the turn in which they are made, so no two consumers get
one message; and the log has them in an order in which a replay comes to the same state. What must be durable before
somebody is told (an acknowledgement, a lease where the guarantee is exactly once) waits until the high watermark passes
its op.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol
from uuid import UUID

from headrace.broker.ledger import Ledger, Told
from headrace.broker.partition import Partition
from headrace.broker.promise import Promise
from headrace.broker.queue.admission import Admission, Limit
from headrace.broker.queue.cache import CacheView
from headrace.broker.queue.outbox import Batch, Outbox, Share
from headrace.broker.queue.receipt import Receipt
from headrace.broker.queue.replay import replay_batch
from headrace.broker.queue.staying import Staying
from headrace.broker.queue.steady import FoldClock
from headrace.broker.queue.written import Written
from headrace.broker.subscriber import Contribution
from headrace.folds.queue.codec import encode_op
from headrace.folds.queue.fold import Lease, QueueFold
from headrace.folds.queue.image import fold_name, freeze
from headrace.folds.queue.op import Acked, Op
from headrace.host.clock import Clock, Timer
from headrace.log.partition_log import Incoming
from headrace.log.snapshots import FrozenSnapshot
from headrace.model.errors import HeadraceError, StaleReceiptError
from headrace.model.ids import Offset
from headrace.model.queue import Guarantee, QueueConfig

_logger = logging.getLogger(__name__)

# Acknowledgements whose receipts are remembered, so that a client that did not hear the answer may ask again.
_ANSWERED_MAX = 4096
# Messages whose time is over that are written down at a time.
_EXPIRE_COUNT = 1000
_SHORT_LEASE_MS = 1000
# For so many answers, it is worth waking the loop while the disk is waited for.
_FORESEEN_MIN = 8
# How much of a lease a restart may give back, and how late ids are forgotten, in a queue where nothing else happens.
_TICK_MS = 60_000


Arrived = tuple[bytes, int]  # an id, and the offset of its message


class Elsewhere(Protocol):
    """Who compares ids with those of the queue's other partitions."""

    is_settled: bool  # whether that was done for all that has arrived

    def arrived(self, partition: "PartitionQueue", fresh: list[Arrived]) -> None: ...


class Room(Limit, Protocol):
    """Who also drops what is too much."""

    def trim(self, partition: "PartitionQueue", base: int) -> None: ...


class PartitionQueue:
    def __init__(
        self,
        *,
        id: UUID,
        partition: Partition,
        fold: QueueFold,
        now: FoldClock,
        clock: Clock,
        cache: CacheView,
        on_visible: Callable[[], None],
        on_dying: Callable[[], None],
        elsewhere: Elsewhere,
        room: Room,
    ) -> None:
        self.id = id
        self.partition = partition
        self.index = partition.id.partition
        self.fold = fold
        fold.epoch = partition.epoch
        self.now = now
        self.cache = cache
        self._clock = clock
        self._on_visible = on_visible
        self._on_dying = on_dying
        self._elsewhere = elsewhere
        self._room = room
        self._admission = Admission(fold, room)
        self.admit = self._admission.admit
        self._outbox = Outbox(fold)
        self._ledger: Ledger[Op] = Ledger(partition, clock=clock, encode=lambda op: encode_op(id, op), merge=_merge)
        self.tell_written = self._ledger.tell_written
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._is_closed = False
        self._answered: dict[Receipt, None] = {}
        self._name = fold_name(id)
        self._foreseen: list[Written] = []
        self.duplicate_count = 0  # sends that were answered with an earlier one's place
        self.staying = Staying(fold, partition, now)
        # The oldest live message and when it was sent; set every few seconds (keeper.py).
        self.oldest: tuple[int, int] | None = None

    # The partition's side.

    def contribute(self) -> Contribution:
        wall_ms = self.now.now().wall_ms
        entries = self._ledger.contribute(timestamp_ms=wall_ms)
        return Contribution(entries, self._outbox.build(wall_ms=wall_ms) if self._outbox else ())

    def contributed(self, entries: Sequence[Offset], messages: Sequence[Offset]) -> None:
        end = self._ledger.contributed(entries)
        if end is not None:
            self.fold.reach(end)
        for batch, base in zip(self._outbox.take_written(), messages, strict=True):
            self._arrived(batch, base)
            self._ledger.note_written(Offset(base + len(batch.messages)))
        self._arm()

    def _arrived(self, batch: Batch, base: Offset) -> None:
        end = Offset(base + len(batch.messages))
        self.fold.arrive(base, len(batch.messages), sent_ms=batch.sent_ms, properties=batch.properties)
        self.fold.reach(end)
        self.fold.fresh_ids.clear()  # their senders' door has asked the other partitions
        if self.cache.has_room:
            self.cache.add_sent(base, batch.messages, batch.sent_ms)
        written = Written(self.index, base, batch.shares, self._outbox.take_repeats(batch.shares))
        if len(batch.shares) >= _FORESEEN_MIN:
            self._foreseen.append(written)
            self.partition.log.meanwhile = self._foresee
        self._ledger.tell_committed(end, written.tell)

    def _foresee(self) -> None:
        foreseen, self._foreseen = self._foreseen, []
        for written in foreseen:
            written.foresee()

    def refused_messages(self, error: HeadraceError) -> None:
        self._admission.forget()
        self._outbox.refuse(error)

    def refused(self, error: HeadraceError) -> None:
        self._admission.forget()
        self._outbox.refuse(error)
        self._ledger.refused(error)
        self._arm()

    def written(self, batch: Incoming, base_offset: Offset) -> None:
        properties = self._admission.take(batch)
        replay_batch(self.fold, self.id, batch.header, batch.data, base_offset, properties)
        if properties is not None:
            self._room.trim(self, base_offset)
        self._look_at_arrived()
        self._arm()

    def _look_at_arrived(self) -> None:
        """Have what came with an id compared with the other partitions."""
        if self.fold.fresh_ids:
            self._elsewhere.arrived(self, self.fold.take_fresh_ids())

    def advanced(self) -> None:
        self._foreseen = []
        try:
            self.partition.log.check_usable()
        except HeadraceError as error:
            self._end(error)
            self._on_visible()  # whoever waits in line may wait for nothing now
            return
        self._ledger.advanced()
        self._on_visible()

    def _end(self, error: HeadraceError) -> None:
        self._outbox.refuse(error)
        self._ledger.end(error)

    @property
    def has_pending(self) -> bool:
        return self._ledger.has_pending

    @property
    def pending_count(self) -> int:
        return self._ledger.count + self._outbox.count

    def snapshot(self) -> FrozenSnapshot | None:
        if self._ledger.has_pending or not self._elsewhere.is_settled:
            return None
        self.fold.advance(self.now.now())
        if self.fold.is_behind:
            return None
        return FrozenSnapshot(self._name, self.fold.end_offset, freeze(self.fold, self._name))

    def open(self, config: QueueConfig) -> None:
        """Begin, attached to a partition whose end the fold has reached."""
        self._look_at_arrived()
        if self.fold.config != config:
            self._ledger.write(self.fold.configure(config, now=self.now.now()))
        self.partition.log.retainer = self.staying
        self.tick()

    def write_now(self) -> None:
        """Have what was decided written before anything else happens."""
        self.partition.write_now()

    def close(self, error: HeadraceError) -> None:
        """The queue is gone: everybody who waits is told."""
        self._is_closed = True
        self._end(error)
        self.partition.detach()
        self.partition.log.retainer = None
        if self._timer is not None:
            self._timer.cancel()
        self.cache.clear()

    # Sending.

    def send(self, share: Share) -> None:
        """Take messages in; their places get the outcomes once those are committed."""
        if share.id is None:
            if self._outbox.take(share):
                self._ledger.want_turn(self._outbox.is_large)
            return
        base = self._outbox.add(share, now=self.now.now())
        if base is None:
            self._ledger.want_turn(self._outbox.is_large)
            return
        self.duplicate_count += len(share.messages)

        def told(error: HeadraceError | None) -> None:
            if error is None:
                share.answer(self.index, base, True)
            else:
                share.refuse(error)

        self._ledger.tell_committed(Offset(base + len(share.messages)), told)

    def knows(self, id: bytes | None) -> bool:
        """Whether what is known by this id is here or on its way in, so that it is not stored again."""
        return id is not None and self._outbox.knows(id, now=self.now.now())

    def tell_stored(self, id: bytes, told: Told) -> bool:
        """Tell once the message of this id that is here, or on its way in, is committed. Whether there is one."""
        if self._outbox.tell_sent(id, told):
            return True
        offset = self.fold.find_duplicate(id, now=self.now.now())
        if offset is not None:
            self._ledger.tell_committed(Offset(offset + 1), told)
        return offset is not None

    def has_arrived(self, id: bytes, offset: int) -> bool:
        """Whether this message is known by its id, is here, and nobody has been given it."""
        fold = self.fold
        return (
            self.partition.log.broken is None
            and fold.find_duplicate(id, now=self.now.now()) == offset
            and fold.is_live(offset)
            and offset not in fold.leases
            and offset not in fold.held
        )

    @property
    def message_count(self) -> int:
        """Messages that are not done, those on their way in included."""
        return len(self.fold.live) + self._outbox.count + self._admission.count

    # Leases.

    def take(self, count_max: int, lease_ms: int) -> list[Lease]:
        """Hand out what is visible and committed, at most so many."""
        now = self.now.now()
        upto = self.partition.high_watermark
        if self.fold.config.guarantee is Guarantee.AT_MOST_ONCE:
            handout = self.fold.take(count_max, upto=upto, now=now)
        else:
            handout = self.fold.lease(count_max, lease_ms, upto=upto, now=now)
        if handout is None:
            return []
        is_behind = self.fold.config.guarantee is Guarantee.AT_LEAST_ONCE
        self._ledger.write(handout.op, is_behind=is_behind)
        if is_behind and (self._timer is None or lease_ms < _SHORT_LEASE_MS):
            self._arm()  # no turn may be written for a while, which would do it
        return handout.leases

    def choose(self, count_max: int) -> list[int]:
        """What is visible and committed, at most so many, in the order in which it is to be handed out."""
        return self.fold.choose(count_max, upto=self.partition.high_watermark, now=self.now.now())

    def take_chosen(self, offsets: Sequence[int]) -> list[Lease]:
        """Hand out for good what was chosen at this moment, or the first of it."""
        handout = self.fold.take_chosen(offsets, now=self.now.now())
        self._ledger.write(handout.op)
        return handout.leases

    def check_space(self) -> None:
        self.partition.check_space()

    def check_open(self) -> None:
        self.partition.log.check_usable()

    def check(self, receipt: Receipt, *, may_be_late: bool = False) -> None:
        """Refuse a receipt whose lease is over, or was taken by a process whose log had not got it yet.

        `may_be_late`: over it may be, if nobody has leased the message since.
        """
        self._check_epoch(receipt)
        check = self.fold.check_newest if may_be_late else self.fold.check
        check(receipt.offset, receipt.attempt, now=self.now.now())

    def check_idle(self, receipt: Receipt) -> None:
        """Refuse a receipt whose message another consumer has, or that is gone: `QueueFold.check_idle`."""
        self._check_epoch(receipt)
        self.fold.check_idle(receipt.offset, receipt.attempt, now=self.now.now())

    def _check_epoch(self, receipt: Receipt) -> None:
        if receipt.epoch != self.partition.epoch and not self.fold.is_of_epoch(receipt.offset, receipt.epoch):
            raise StaleReceiptError(
                "this lease was not on disk when the node stopped, and is forgotten; the message is handed out again"
            )

    def holds(self, offset: int, attempt: int) -> bool:
        try:
            self.fold.check(offset, attempt, now=self.now.now())
        except StaleReceiptError:
            return False
        return True

    def acknowledge(self, offsets: Sequence[int], told: Told, *, receipts: Iterable[Receipt] = ()) -> None:
        """End leases that were checked; told when it is durable. The receipts are remembered as good ones."""
        for offset in offsets:
            self.cache.take(offset)
        self._answered.update(dict.fromkeys(receipts))
        while len(self._answered) > _ANSWERED_MAX:
            del self._answered[next(iter(self._answered))]
        self.decide(self.fold.acknowledge(tuple(offsets), now=self.now.now()), told)
        # What was behind it in its key is free now.
        self._on_visible()

    def acknowledge_later(self, producer_id: int, held: Mapping[int, int], told: Told) -> None:
        """Have leases that were checked, offset to attempt, end with a transaction; told when that is durable."""
        self.decide(self.fold.acknowledge_later(producer_id, tuple(held), now=self.now.now()), told)

    def end_acknowledged(self, producer_id: int, *, is_commit: bool, told: Told) -> None:
        """A transaction ended. May be repeated: told when nothing of it is held any more, for good."""
        if not self.fold.has_held(producer_id):
            self.tell_written(told)
            return
        self.decide(self.fold.end_acknowledged(producer_id, is_commit=is_commit, now=self.now.now()), told)

    def was_acknowledged(self, receipt: Receipt) -> bool:
        """Whether this receipt did its work lately."""
        return receipt in self._answered

    def extend(self, offset: int, lease_ms: int, told: Told | None = None) -> None:
        self.decide(self.fold.extend((offset,), lease_ms, now=self.now.now()), told)

    def release(self, offset: int, delay_ms: int | None, told: Told | None = None) -> None:
        self.decide(self.fold.release((offset,), delay_ms, now=self.now.now()), told)

    def fail(self, offset: int, delay_ms: int | None, error: str, told: Told) -> None:
        self.decide(self.fold.fail(offset, delay_ms, error, now=self.now.now()), told)

    def return_unused(self, offsets: Sequence[int], told: Told | None = None) -> None:
        """Leases of messages that nobody has begun with."""
        self.decide(self.fold.return_unused(tuple(offsets), now=self.now.now()), told)

    def extend_all(self, offsets: Sequence[int], lease_ms: int) -> None:
        """All of them, or an error and none."""
        self.decide(self.fold.extend(tuple(offsets), lease_ms, now=self.now.now()))

    def release_all(self, offsets: Sequence[int], delay_ms: int | None) -> None:
        self.decide(self.fold.release(tuple(offsets), delay_ms, now=self.now.now()))

    def give_back(self, leases: Sequence[Lease]) -> None:
        """Take back what was chosen for a consumer who is gone."""
        held = tuple(lease.offset for lease in leases if self.holds(lease.offset, lease.number))
        if held:
            self.return_unused(held)

    def reject(self, offset: int, reason: str, told: Told) -> None:
        self.decide(self.fold.reject(offset, reason, now=self.now.now()), told)

    def drop(self, offsets: Sequence[int]) -> None:
        """End leases for good where there are no dead letters: nobody gets these again, and they are counted."""
        self.decide(self.fold.drop(tuple(offsets), now=self.now.now()))

    def withdraw(self, offsets: Sequence[int]) -> None:
        """End what just arrived and repeats what another partition knows."""
        self._ledger.write(self.fold.withdraw(offsets, now=self.now.now()))

    def give_up(self, offsets: Sequence[int]) -> None:
        """Drop what was chosen and cannot be read: retention was quicker, or its producer wrote nonsense."""
        live = tuple(offset for offset in offsets if self.fold.is_live(offset))
        if live:
            _logger.warning("messages that cannot be read are dropped", extra={"offsets": live[:10]})
            self.decide(self.fold.expire(live, now=self.now.now()))

    def decide(self, op: Op, told: Told | None = None) -> None:
        """Write what the fold has decided, and see what follows from it."""
        self._ledger.write(op, told)
        if self.fold.dying_reasons:
            self._on_dying()
        self._on_visible()

    # The queue's owner.

    def configure(self, config: QueueConfig, told: Told) -> None:
        self.decide(self.fold.configure(config, now=self.now.now()), told)

    def purge(self, told: Told, *, upto: int | None = None) -> None:
        """Drop what lies below an offset, or everything."""
        self.decide(self.fold.purge(self.partition.end_offset if upto is None else upto, now=self.now.now()), told)

    def move_reader(self, name: str, offset: int, told: Told) -> None:
        self.decide(self.fold.move_reader(name, offset, now=self.now.now()), told)

    def remove_reader(self, name: str, told: Told) -> None:
        self.decide(self.fold.remove_reader(name, now=self.now.now()), told)

    def end_moved(self, offsets: Sequence[int], reason: str) -> None:
        """Dead letters whose copies are committed."""
        self.decide(self.fold.dead_letter(tuple(offsets), reason, now=self.now.now()))

    async def end_redriven(self, offsets: Sequence[int]) -> None:
        """Redriven messages whose copies are committed; returns when that is durable here too."""
        promise: Promise[None] = Promise()
        self.decide(self.fold.move(tuple(offsets), now=self.now.now()), _teller(promise))
        await promise

    async def committed(self, end: Offset) -> None:
        """Wait until everything below an offset is committed."""
        self.check_open()
        promise: Promise[None] = Promise()
        self._ledger.tell_committed(end, _teller(promise))
        await promise

    def expire_below(self, upto: Offset) -> None:
        if self.fold.floor < upto:
            self.decide(self.fold.expire_below(upto, now=self.now.now()))

    def expire_old(self, upto: Offset) -> bool:
        """Let go what retention says, or a part of it. Whether there may be more."""
        if self.fold.floor >= upto or (op := self.fold.expire_old(upto, now=self.now.now())) is None:
            return False
        self.decide(op)
        return op.upto < upto

    def follow_start(self) -> None:
        """Records were deleted below the log's start: those messages are gone."""
        self.expire_below(self.partition.start_offset)

    def note_time(self) -> None:
        """Write the time down where nothing else has for a while and something waits for it: see `wants_tick`."""
        now = self.now.now()
        if self.fold.wants_tick and now.lease_ms - self.fold.noted.lease_ms >= _TICK_MS:
            self.decide(self.fold.tick(now))

    async def catch_up(self) -> None:
        """Let all pass that has passed, in steps between which others are served."""
        self.fold.keep_up(self.now.now())
        while self.fold.is_behind:
            self.fold.advance(self.now.now())
            await asyncio.sleep(0)

    def advanced_fold(self) -> QueueFold:
        """The fold as of now."""
        self.fold.keep_up(self.now.now())
        return self.fold

    # Time.

    def _arm(self) -> None:
        """Wake when the next lease ends, delay is over or message expires. Once a turn, when it is written.

        At once, if more was due than is done in one turn of the loop: others who wait are served in between.
        """
        now = self.now.now()
        event = self.fold.next_event()
        due = [at - clock_ms for at, clock_ms in zip(event, now, strict=True) if at is not None]
        if self.fold.overdue and not self.fold.config.dead_letter_expired:
            due.append(0)
        if not due or self._is_closed:
            return
        delay_ms = max(min(due), 0)
        due_ms = self._clock.monotonic_ms() + delay_ms
        if self._timer is not None:
            if self._timer_ms <= due_ms:
                return
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._clock.call_later(delay_ms, self.tick)

    def tick(self) -> None:
        """Do what time has brought."""
        self._timer = None
        if self._is_closed or self.partition.log.broken is not None:
            return
        now = self.now.now()
        self.fold.advance(now)
        if expired := self.fold.expired(_EXPIRE_COUNT):
            if self.fold.config.dead_letter_expired:
                self._on_dying()
            else:
                self._ledger.write(self.fold.expire(tuple(expired), now=now))
        if self.fold.dying_reasons:
            self._on_dying()
        self._on_visible()
        self._arm()


def _teller(promise: Promise[None]) -> Told:
    """What keeps a promise when it is told."""
    return lambda error: promise.keep(None) if error is None else promise.fail(error)


def _merge(last: Op, op: Op) -> Op | None:
    """One entry for what a turn acknowledged: time can do nothing in between that would outlast it."""
    if isinstance(last, Acked) and isinstance(op, Acked):
        return Acked(last.offsets + op.offsets, op.at)
    return None
