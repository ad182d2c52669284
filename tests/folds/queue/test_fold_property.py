"""Whatever is sent, received, acknowledged and restarted: the fold does what a plain model of a queue does."""

import os
from collections.abc import Iterable
from itertools import islice
from uuid import UUID

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.folds.queue.model import PLAIN, Message, Model

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.codec import decode_op, encode_op
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.image import fold_name, restore, snapshot
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.invariant import check_invariants
from headrace.folds.queue.op import Op
from headrace.folds.queue.view import facts, state_of
from headrace.model.errors import StaleReceiptError, TooManyLeasedError
from headrace.model.queue import Backoff, QueueConfig
from headrace.model.topic import DAY_MS

QUEUE = UUID("6f2b6a52-3a1d-4f9e-9c57-3d1f6a2b7c80")
NAME = fold_name(QUEUE)
STATES = {
    "ready": ("visible", "blocked"),
    "overdue": ("dying",),
    "undecided": ("delayed",),
    "held": ("leased",),
}

kinds = st.sampled_from([{}, {"ordered": True}, {"ordered": True}, {"fair": True}])
configs = st.builds(
    lambda kind, **rest: QueueConfig(**kind, **rest),
    kinds,
    max_deliveries=st.sampled_from([None, 1, 2, 3]),
    backoff=st.sampled_from([None, None, Backoff(first_ms=50, last_ms=120)]),
    delay_ms=st.sampled_from([0, 0, 0, 40]),
    ttl_ms=st.sampled_from([None, None, 200]),
    deduplication_window_ms=st.sampled_from([0, 300]),
    leased_max=st.sampled_from([3, 1000, 1000]),
    retention_ms=st.sampled_from([None, None, 1, 120, 7 * DAY_MS]),
    history_ms=st.sampled_from([0, 0, 400, 5000]),
)
properties = st.builds(
    lambda delay_ms, ttl_ms, **rest: (delay_ms, ttl_ms, Properties(**rest)),
    st.sampled_from([None, None, 0, 30, 500]),
    st.sampled_from([None, None, None, 60, 400]),
    priority=st.sampled_from([5, 5, 5, 9, 0]),
    key=st.sampled_from([None, b"a", b"a", b"b", b"c"]),
    deduplication_id=st.sampled_from([None, None, None, b"x", b"y"]),
    move_id=st.sampled_from([None, None, None, None, b"m"]),
)
KEPT = ("leased", "dying", "undecided", "held")  # what a full queue does not drop
rarely = st.sampled_from([True, False, False, False])  # a rule that ends much, or everything
spans = st.sampled_from([0, 1, 10, 40, 100, 300])
which = st.integers(0, 30)
producers = st.sampled_from([71, 72])
senders = st.sampled_from([None, None, 71, 72])  # None: outside of any transaction

# Base offset, count, sent, properties, and whose transaction they are part of.
Arrival = tuple[int, int, int, dict[int, Properties], int | None]
Marker = tuple[int, bool, str]  # producer id, whether it committed
Entry = tuple[int, bytes]
Wishes = dict[int, tuple[int | None, int | None, Properties]]  # delay, time to live, the rest


class QueueMachine(RuleBasedStateMachine):
    """A fold, a model, and the log that both follow from."""

    @initialize(config=configs, wishes=st.dictionaries(st.integers(0, 5), properties, max_size=6))
    def start(self, config: QueueConfig, wishes: Wishes) -> None:
        self.config = config
        self.fold = self.prepared(QueueFold(config))
        self.model = Model(config)
        self.log: list[tuple[int, Arrival | Marker | Entry]] = []  # with the offset at which the batch ends
        self.now = Instant(1_000, 50_000)
        self.end = 0
        self.snapshots: list[tuple[int, bytes]] = []
        self.receipts: list[tuple[int, int]] = []  # every one that was ever given out
        self.acknowledged: set[int] = set()
        self.done: dict[int, int | None] = {}  # when each was; None: before the history was what it is
        self.send(6, wishes, 0, None)

    # What senders do.

    @rule(
        count=st.integers(1, 4),
        wishes=st.dictionaries(st.integers(0, 3), properties, max_size=4),
        late_ms=spans,
        producer_id=senders,
    )
    def send(self, count: int, wishes: Wishes, late_ms: int, producer_id: int | None) -> None:
        sent_ms = self.now.wall_ms - late_ms
        own = {
            index: wish._replace(
                due_ms=None if delay_ms is None else sent_ms + delay_ms,
                expires_ms=None if ttl_ms is None else sent_ms + ttl_ms,
            )
            for index, (delay_ms, ttl_ms, wish) in wishes.items()
            if index < count
        }
        arrival = (self.end, count, sent_ms, own, producer_id)
        self.end += count
        self.log.append((self.end, arrival))
        known = set(self.model.messages)
        play(self.model, arrival)
        arrived = set(self.model.messages) - known
        base = arrival[0]
        duplicates = self.fold.arrive(base, count, sent_ms=sent_ms, properties=own, producer_id=producer_id)
        assert set(duplicates) == set(range(base, base + count)) - arrived

    @rule(producer_id=producers, is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        self.end += 1
        self.log.append((self.end, (producer_id, is_commit, "marker")))
        self.model.decide(producer_id, is_commit)
        self.fold.decide(producer_id, is_commit=is_commit)
        self.fold.reach(self.end)

    # What consumers do.

    @rule(count=st.integers(1, 5), length_ms=st.sampled_from([0, 20, 100, 1000]), lag=st.integers(0, 3))
    def receive(self, count: int, length_ms: int, lag: int) -> None:
        self.model.advance(self.now)
        upto = self.end - lag
        room = self.fold.config.leased_max - self.model.count("leased") - self.model.count("held")
        expected = self.model.choose(min(count, room), upto) if room > 0 else []
        try:
            handout = self.fold.lease(count, length_ms, upto=upto, now=self.now)
        except TooManyLeasedError:
            assert room <= 0
            return
        assert room > 0 or (handout is None and self.fold.is_behind)
        offsets = [] if handout is None else [lease.offset for lease in handout.leases]
        self.rightly_chosen(offsets, expected, upto)
        assert self.acknowledged.isdisjoint(offsets)
        if handout is None:
            return
        self.written(handout.op)
        for lease in handout.leases:
            message = self.model.messages[lease.offset]
            assert (lease.number, lease.first_ms) == (message.number, message.first_ms)
            assert lease.attempt == message.attempt
            assert (lease.offset, lease.number) not in self.receipts
            self.receipts.append((lease.offset, lease.number))

    @rule(count=st.integers(1, 5))
    def receive_and_forget(self, count: int) -> None:
        """A consumer that dies with what it has."""
        self.receive(count, 20, 0)
        self.wait(20, 20, 1)

    @rule(count=st.integers(1, 2))
    def receive_at_most_once(self, count: int) -> None:
        self.model.advance(self.now)
        expected = self.model.choose(count, self.end)
        handout = self.fold.take(count, upto=self.end, now=self.now)
        offsets = [] if handout is None else [lease.offset for lease in handout.leases]
        self.rightly_chosen(offsets, expected, self.end)
        if handout is not None:
            self.written(handout.op)
            self.acknowledged.update(offsets)

    @precondition(lambda self: self.receipts)
    @rule(first=which, count=st.integers(1, 4))
    def acknowledge(self, first: int, count: int) -> None:
        offsets = self.held(first, count)
        self.written(self.fold.acknowledge(offsets, now=self.now))
        self.became(offsets, "acknowledged")
        self.acknowledged.update(offsets)

    @precondition(lambda self: self.receipts)
    @rule(which_one=which)
    def acknowledge_late(self, which_one: int) -> None:
        offset, number = self.receipts[which_one % len(self.receipts)]
        self.model.advance(self.now)
        message = self.model.messages[offset]
        is_newest = message.is_live and message.number == number and message.state in ("leased", "ready", "delayed")
        try:
            self.fold.check_newest(offset, number, now=self.now)
        except StaleReceiptError:
            assert not is_newest
            return
        assert is_newest
        self.written(self.fold.acknowledge([offset], now=self.now))
        self.acknowledged.add(offset)

    @precondition(lambda self: self.receipts)
    @rule(which_one=which, length_ms=st.sampled_from([0, 20, 100]), delay_ms=st.sampled_from([None, None, 0, 40]))
    def change_what_nobody_has(self, which_one: int, length_ms: int, delay_ms: int | None) -> None:
        offset, number = self.receipts[which_one % len(self.receipts)]
        self.model.advance(self.now)
        message = self.model.messages[offset]
        is_held = message.state == "leased" and message.number == number
        is_idle = message.state in ("ready", "delayed") and not self.fold.config.ordered
        try:
            self.fold.check_idle(offset, number, now=self.now)
        except StaleReceiptError:
            assert not is_held
            assert not is_idle
            return
        assert is_held or is_idle
        if delay_ms is None:
            self.written(self.fold.extend([offset], length_ms, now=self.now))
            self.became([offset], "leased")
        else:
            self.written(self.fold.release([offset], delay_ms, now=self.now))
            self.became([offset], "ready", "delayed", "dying", "overdue")

    @precondition(lambda self: self.receipts)
    @rule(first=which, count=st.integers(1, 4), producer_id=producers)
    def acknowledge_in_a_transaction(self, first: int, count: int, producer_id: int) -> None:
        offsets = self.held(first, count)
        self.written(self.fold.acknowledge_later(producer_id, offsets, now=self.now))
        self.became(offsets, "held")

    @rule(producer_id=producers, is_commit=st.booleans())
    def end_what_was_acknowledged(self, producer_id: int, is_commit: bool) -> None:
        held = [offset for offset, one in self.fold.held.items() if one.producer_id == producer_id]
        self.written(self.fold.end_acknowledged(producer_id, is_commit=is_commit, now=self.now))
        assert not self.fold.has_held(producer_id)
        self.became(held, *(["acknowledged"] if is_commit else ["ready", "dying", "overdue"]))
        if is_commit:
            self.acknowledged.update(held)

    @precondition(lambda self: self.receipts)
    @rule(first=which, count=st.integers(1, 2), delay_ms=st.sampled_from([None, 0, 70]))
    def release(self, first: int, count: int, delay_ms: int | None) -> None:
        offsets = self.held(first, count)
        self.written(self.fold.release(offsets, delay_ms, now=self.now))
        self.became(offsets, "ready", "delayed", "dying", "overdue")

    @precondition(lambda self: self.receipts)
    @rule(first=which, count=st.integers(1, 2))
    def give_back_unbegun(self, first: int, count: int) -> None:
        offsets = self.held(first, count)
        self.written(self.fold.return_unused(offsets, now=self.now))
        limit = self.fold.config.max_deliveries
        for offset in offsets:
            # A limit that was lowered since may count the attempts before this one.
            is_used_up = limit is not None and self.model.messages[offset].attempt >= limit
            self.became([offset], *(["dying"] if is_used_up else ["ready", "overdue"]))

    @precondition(lambda self: self.receipts)
    @rule(first=which, length_ms=st.sampled_from([0, 5, 150, 2000]))
    def extend(self, first: int, length_ms: int) -> None:
        offsets = self.held(first, 2)
        self.written(self.fold.extend(offsets, length_ms, now=self.now))
        for offset in offsets:
            assert self.model.messages[offset].lease_end_ms == self.fold.now.lease_ms + length_ms

    @precondition(lambda self: self.receipts)
    @rule(first=which)
    def reject(self, first: int) -> None:
        for offset in self.held(first, 1):
            self.written(self.fold.reject(offset, "no good", now=self.now))
            self.became([offset], "dying")

    # What the queue's driver does.

    @rule(count=st.integers(1, 3))
    def bury(self, count: int) -> None:
        self.fold.advance(self.now)
        self.model.advance(self.now)
        dying = self.fold.dying(count)
        for one in dying:
            message = self.model.messages[one.offset]
            assert (message.state, one.reason) == ("dying", message.reason)
            assert one.history.attempts == message.attempt
        if dying:
            self.written(self.fold.dead_letter([one.offset for one in dying], "used up", now=self.now))
            self.became([one.offset for one in dying], "dead_lettered")

    @rule(count=st.integers(1, 3))
    def expire(self, count: int) -> None:
        self.fold.advance(self.now)
        self.model.advance(self.now)
        expired = self.fold.expired(count)
        assert all(self.model.messages[offset].state == "overdue" for offset in expired)
        self.written(self.fold.expire(expired, now=self.now))
        self.became(expired, "expired")

    @rule(is_now=rarely)
    def withdraw_the_newest(self, is_now: bool) -> None:
        live = list(self.fold.live)[-1:]
        if is_now and live:
            self.written(self.fold.withdraw(live, now=self.now))
            self.became(live, "withdrawn")

    @rule(is_now=rarely, count=st.integers(1, 2), is_move=st.booleans())
    def drop_or_move_the_oldest(self, is_now: bool, count: int, is_move: bool) -> None:
        if not is_now:
            return
        self.fold.advance(self.now)
        oldest = list(islice(self.fold.free_offsets(), count))
        self.model.advance(self.now)
        free = [message.offset for message in self.model.live() if message.state not in KEPT]
        assert oldest == free[:count]
        op = self.fold.move(oldest, now=self.now) if is_move else self.fold.drop(oldest, now=self.now)
        self.written(op)
        self.became(oldest, "dead_lettered" if is_move else "dropped")

    @rule(is_now=rarely, back=st.integers(0, 6), is_lost=st.booleans())
    def cut(self, is_now: bool, back: int, is_lost: bool) -> None:
        if not is_now:
            return
        upto = max(self.end - back, 0)
        self.written(self.fold.expire_below(upto, now=self.now) if is_lost else self.fold.purge(upto, now=self.now))

    @rule(back=st.integers(0, 6))
    def grow_old(self, back: int) -> None:
        upto = max(self.end - back, 0)
        before = self.fold.counts.expired
        op = self.fold.expire_old(upto, now=self.now)
        if op is not None:
            self.written(op)
            assert self.fold.counts.expired > before

    @rule(is_now=rarely, config=configs)
    def configure(self, is_now: bool, config: QueueConfig) -> None:
        if not is_now:
            return
        # Whether keys are obeyed is chosen when a queue is made: another test is about a change of that.
        config = msgspec.structs.replace(config, ordered=self.config.ordered, fair=self.config.fair)
        is_other_history = config.history_ms != self.fold.config.history_ms
        self.written(self.fold.configure(config, now=self.now))
        if is_other_history:
            self.note_done()
            self.done = dict.fromkeys(self.done)

    @rule()
    def tick(self) -> None:
        self.written(self.fold.tick(self.now))

    @rule(name=st.sampled_from(["spark", "mirror"]), back=st.integers(0, 5), is_removed=st.booleans())
    def read(self, name: str, back: int, is_removed: bool) -> None:
        if is_removed:
            self.written(self.fold.remove_reader(name, now=self.now))
            assert name not in self.fold.readers
        else:
            offset = self.end - back
            self.written(self.fold.move_reader(name, offset, now=self.now))
            assert self.fold.readers[name] == offset

    # What time and machines do.

    @rule(lease_ms=spans, wall_ms=st.sampled_from([-50, 0, 1, 10, 40, 100, 300, 1500]), is_long=st.integers(0, 9))
    def wait(self, lease_ms: int, wall_ms: int, is_long: int) -> None:
        hour_ms = 3_600_000 if is_long == 0 else 0
        self.now = Instant(self.now.lease_ms + lease_ms + hour_ms, self.now.wall_ms + wall_ms)
        self.fold.advance(self.now)
        self.model.advance(self.now)

    @rule()
    def take_snapshot(self) -> None:
        """And go on with what was read back, of which every later step asks whether anything is missing."""
        self.fold.advance(self.now)
        self.fold.catch_up()
        data = snapshot(self.fold, NAME)
        self.snapshots.append((len(self.log), data))
        self.fold = self.prepared(restore(data, name=NAME))
        assert snapshot(self.fold, NAME) == data

    @rule(back=st.integers(0, 3))
    def replay(self, back: int) -> None:
        """A replay ends in the same bytes, from any snapshot and from none."""
        self.fold.advance(self.now)
        self.fold.catch_up()
        now = self.fold.now
        replayed = self.replayed(back)
        replayed.advance(now)
        assert snapshot(replayed, NAME) == snapshot(self.fold, NAME)
        self.fold = self.prepared(replayed)

    @rule(is_now=rarely, back=st.integers(0, 5), down_ms=spans)
    def crash(self, is_now: bool, back: int, down_ms: int) -> None:
        """Nobody knows what time it was: the lease clock goes on from the last entry, or the last snapshot used."""
        if not is_now:
            return
        self.fold = self.prepared(self.replayed(back))
        self.now = Instant(self.fold.last_lease_ms, self.now.wall_ms + down_ms)
        start, base = self.start_of(back)
        self.model = Model(self.config)
        for _, entry in self.log[:start]:
            play(self.model, entry)
        if base is not None:
            self.model.advance(restore(base, name=NAME).now)
        for _, entry in self.log[start:]:
            play(self.model, entry)
        self.snapshots = [(count, data) for count, data in self.snapshots if data == base]
        # Leases that were over may be held again; a receipt that is given out now may be one of before.
        self.receipts = [
            (message.offset, number)
            for message in self.model.messages.values()
            for number in range(1, message.number + 1)
        ]

    def start_of(self, back: int) -> tuple[int, bytes | None]:
        return self.snapshots[-back] if 0 < back <= len(self.snapshots) else (0, None)

    def replayed(self, back: int) -> QueueFold:
        start, data = self.start_of(back)
        fold = QueueFold(self.config) if data is None else restore(data, name=NAME)
        for end, entry in self.log[start:]:
            play(fold, entry)
            fold.reach(end)
        return fold

    # What must hold.

    @invariant()
    def the_fold_says_what_the_model_says(self) -> None:
        if not hasattr(self, "fold"):
            return
        self.fold.advance(self.now)
        self.model.advance(self.now)
        check_invariants(self.fold)
        for message in self.model.messages.values():
            self.agree(message)
        assert [message.offset for message in self.model.live()] == list(self.fold.live)
        counts = self.fold.counts
        assert counts.sent == len(self.model.messages)
        for ending in ("acknowledged", "dead_lettered", "expired", "dropped", "purged", "withdrawn"):
            assert getattr(counts, ending) == self.model.count(ending), ending
        for id_ in (b"x", b"y"):
            assert self.fold.find_duplicate(id_, now=self.now) == self.model.find_duplicate(id_)
        self.one_valid_receipt_at_most()
        self.note_done()
        self.what_was_done_lately_is_kept()

    def note_done(self) -> None:
        for message in self.model.messages.values():
            if not message.is_live:
                # What a transaction withdrew was no entry's doing, and nobody wants to read it.
                is_withdrawn = message.state == "withdrawn"
                self.done.setdefault(message.offset, None if is_withdrawn else self.fold.noted.wall_ms)

    def what_was_done_lately_is_kept(self) -> None:
        """For the time of the history, and for no more than an eighth longer, or a second where that is more."""
        history_ms = self.fold.config.history_ms
        kept = self.fold.kept_for_history(self.fold.now)
        for offset, done_ms in self.done.items():
            is_kept = kept is not None and (offset >= kept.start or offset in kept.offsets)
            if history_ms and done_ms is not None and done_ms > self.fold.now.wall_ms - history_ms:
                assert is_kept
            elif done_ms is not None and done_ms <= self.fold.now.wall_ms - history_ms - max(history_ms // 8, 1000):
                assert not is_kept

    def agree(self, message: Message) -> None:
        state = state_of(self.fold, message.offset)
        if state is None:
            assert not message.is_live
            return
        assert state.value in STATES.get(message.state, (message.state,))
        if message.state == "ready":
            assert (state.value == "visible") == (self.model.front_of(message) is message)
        known = facts(self.fold, message.offset)
        assert known is not None
        assert (known.attempts, known.priority, known.expires_ms) == (
            message.attempt,
            message.priority,
            None if message.is_lapsed else message.expires_ms,
        )
        if message.state == "leased":
            assert known.until_ms == message.lease_end_wall_ms
        if message.state == "delayed":
            assert known.until_ms == message.due_ms

    def one_valid_receipt_at_most(self) -> None:
        valid: list[int] = []
        for offset, attempt in self.receipts:
            try:
                self.fold.check(offset, attempt, now=self.now)
            except StaleReceiptError:
                continue
            message = self.model.messages[offset]
            assert message.state == "leased"
            assert message.number == attempt
            valid.append(offset)
        assert len(valid) == len(set(valid)) == self.model.count("leased")

    # Helpers.

    def prepared(self, fold: QueueFold) -> QueueFold:
        return fold

    def rightly_chosen(self, offsets: list[int], expected: list[int], upto: int) -> None:
        assert offsets == expected

    def written(self, op: Op) -> None:
        assert op.at == self.fold.now, "an entry's moment is the latest that the fold has seen"
        entry = encode_op(QUEUE, op)
        self.end += 1
        self.log.append((self.end, entry))
        self.fold.reach(self.end)
        play(self.model, entry)

    def became(self, offsets: Iterable[int], *states: str) -> None:
        """The model does what entries say. Whether they say what was asked is seen by what became of the messages."""
        assert all(self.model.messages[offset].state in states for offset in offsets)

    def held(self, first: int, count: int) -> list[int]:
        self.fold.advance(self.now)
        held = sorted(self.fold.leases.values)
        return held[first % len(held) :][:count] if held else []


def play(target: QueueFold | Model, entry: Arrival | Marker | Entry) -> None:
    if len(entry) == 3:
        producer_id, is_commit, _ = entry
        if isinstance(target, QueueFold):
            target.decide(producer_id, is_commit=is_commit)
        else:
            target.decide(producer_id, is_commit)
        return
    if len(entry) == 2:
        decoded = decode_op(*entry)
        assert decoded is not None
        owner, op = decoded
        assert owner == QUEUE
        target.apply(op)
        return
    base, count, sent_ms, own, sender = entry
    if isinstance(target, QueueFold):
        target.arrive(base, count, sent_ms=sent_ms, properties=own, producer_id=sender)
        return
    for index in range(count):
        target.arrive(base + index, own.get(index, PLAIN), sent_ms, sender)


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(
    max_examples=5_000 if os.environ.get("HEADRACE_LONG") else 300,
    stateful_step_count=40,
    deadline=None,
)
