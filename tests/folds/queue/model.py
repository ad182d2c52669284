"""A queue as its documentation describes it, one plain object a message, with no thought for speed or memory."""

from dataclasses import dataclass, field

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.instant import BEGINNING, Instant
from headrace.folds.queue.op import (
    Acked,
    Configured,
    DeadLettered,
    Dropped,
    Expired,
    ExpiryCause,
    Extended,
    Leased,
    Moved,
    Op,
    Purged,
    Rejected,
    Released,
    Repeated,
    Returned,
    TxnAcked,
    TxnEnded,
)
from headrace.folds.queue.state import MOVES_REMEMBERED_MS
from headrace.model.queue import PRIORITY_DEFAULT, QueueConfig

GONE = ("acknowledged", "dead_lettered", "expired", "dropped", "purged", "withdrawn")


@dataclass
class Message:
    offset: int
    key: bytes | None
    priority: int
    state: str  # ready, delayed, leased, dying, overdue, undecided, held, or how it ended
    due_ms: int = 0
    expires_ms: int | None = None
    is_lapsed: bool = False
    number: int = 0  # of its last lease
    unused_count: int = 0  # leases that do not count as attempts
    first_ms: int = 0
    lease_end_ms: int = 0
    lease_end_wall_ms: int = 0
    reason: str = ""
    late_due_ms: int | None = None  # after a long delay
    producer_id: int | None = None  # undecided or held: whose transaction decides
    own: Properties | None = None  # undecided: what it will be when it is sent
    sent_ms: int = 0
    taken_ms: int = 0  # its last lease, on the lease clock
    last_ms: int = 0  # and by the wall clock, as far as that is known after an extension

    @property
    def attempt(self) -> int:
        return self.number - self.unused_count

    @property
    def is_live(self) -> bool:
        return self.state not in GONE


@dataclass
class Remembered:
    offset: int
    until_ms: int | None  # None: not yet dated


@dataclass
class Model:
    config: QueueConfig
    messages: dict[int, Message] = field(default_factory=dict)
    now: Instant = BEGINNING
    noted: Instant = BEGINNING
    ids: dict[bytes, Remembered] = field(default_factory=dict)
    moves: dict[bytes, Remembered] = field(default_factory=dict)
    turns: dict[bytes, int] = field(default_factory=dict)  # of keys with live messages; b"" of those without a key
    turn: int = 0
    served: dict[bytes, tuple[int, int]] = field(default_factory=dict)  # ordered: a key's last time, and how many
    arrived_end: int = 0
    deliveries: list[tuple[int, int]] = field(default_factory=list)  # when, and where the messages ended then
    began: Instant | None = None  # the first entry

    # What happens.

    def arrive(self, offset: int, own: Properties, sent_ms: int, producer_id: int | None = None) -> None:
        config = self.config
        self.arrived_end = offset + 1
        if producer_id is None and self._repeats(offset, own, sent_ms):
            return
        due_ms = sent_ms + config.delay_ms if own.due_ms is None else own.due_ms
        expires_ms = own.expires_ms
        if expires_ms is None and config.ttl_ms is not None:
            expires_ms = sent_ms + config.ttl_ms
        state = "delayed" if due_ms > sent_ms else "ready"
        key = own.key if config.ordered or config.fair else None
        if config.fair and key and key not in self.turns:
            self.turn += 1
            self.turns[key] = self.turn
        message = self.messages[offset] = Message(offset, key, own.priority, state, due_ms, expires_ms)
        message.sent_ms = sent_ms
        if own.due_ms is not None and own.due_ms > sent_ms:
            self._note_delay(message, own.due_ms - sent_ms)
        if producer_id is not None:
            message.state, message.producer_id, message.own = "undecided", producer_id, own

    def _repeats(self, offset: int, own: Properties, sent_ms: int) -> bool:
        config = self.config
        if own.move_id is not None:
            move = self.moves.get(own.move_id)
            if move is not None and (move.until_ms is None or move.until_ms > self.noted.lease_ms):
                return True
            self.moves[own.move_id] = Remembered(offset, None)
        if own.deduplication_id is not None and config.deduplication_window_ms:
            known = self.ids.get(own.deduplication_id)
            if own.move_id is None and known is not None and (known.until_ms or 0) > max(sent_ms, self.noted.wall_ms):
                return True
            self.ids[own.deduplication_id] = Remembered(offset, sent_ms + config.deduplication_window_ms)
        return False

    def decide(self, producer_id: int, is_commit: bool) -> None:
        """A transaction has ended: what was sent in it is sent now, or never was."""
        for message in self.live():
            if message.state != "undecided" or message.producer_id != producer_id:
                continue
            assert message.own is not None
            if not is_commit or self._repeats(message.offset, message.own, message.sent_ms):
                self._end([message.offset], "withdrawn")
            else:
                message.state = "delayed" if message.due_ms > message.sent_ms else "ready"
        self.advance(self.now)

    def advance(self, now: Instant) -> None:
        self.now = now = Instant(max(now.lease_ms, self.now.lease_ms), max(now.wall_ms, self.now.wall_ms))
        for message in self.messages.values():
            if not message.is_live:
                continue
            if message.state == "leased" and message.lease_end_ms <= now.lease_ms:
                self._return(message, message.lease_end_wall_ms, None)
            if message.expires_ms is not None and message.expires_ms <= now.wall_ms:
                message.is_lapsed = True
            if message.state == "delayed" and message.due_ms <= now.wall_ms:
                message.state = "ready"
            if message.is_lapsed and message.state in ("ready", "delayed"):
                self._end_life(message)

    def _return(self, message: Message, ended_ms: int, delay_ms: int | None) -> None:
        config = self.config
        if self._is_used_up(message):
            message.state = "dying"
            return
        if delay_ms is None:
            delay_ms = config.backoff.delay_ms(message.attempt) if config.backoff is not None else 0
        message.state = "delayed" if delay_ms else "ready"
        message.due_ms = ended_ms + delay_ms
        if message.is_lapsed:
            self._end_life(message)
        elif delay_ms:
            self._note_delay(message, delay_ms)

    def _end_life(self, message: Message) -> None:
        message.state = "overdue"
        if message.number:  # somebody had it, and retention spares it no longer
            message.late_due_ms = None

    def _is_used_up(self, message: Message) -> bool:
        return self.config.max_deliveries is not None and message.attempt >= self.config.max_deliveries

    def _note_delay(self, message: Message, delay_ms: int) -> None:
        retention_ms = self.config.retention_ms
        if delay_ms >= 3_600_000 or (retention_ms is not None and delay_ms > retention_ms / 100):
            message.late_due_ms = message.due_ms

    def _is_spared(self, message: Message, at: Instant) -> bool:
        """Whether retention leaves it: a delay is not part of it."""
        assert self.config.retention_ms is not None
        if message.late_due_ms is not None and message.late_due_ms <= at.wall_ms - self.config.retention_ms:
            message.late_due_ms = None
        return message.state == "delayed" or message.late_due_ms is not None

    def apply(self, op: Op) -> None:
        self.advance(op.at)
        self._note(op.at)
        match op:
            case Leased():
                self._take_turns(self._those(op.offsets), op.at)
                for message in self._those(op.offsets):
                    message.state = "leased"
                    message.number += 1
                    message.first_ms = op.at.wall_ms if message.number == 1 else message.first_ms
                    message.taken_ms, message.last_ms = op.at
                self._hold(op)
            case Extended():
                for message in self._those(op.offsets):
                    self._resume(message, op.at)
                    message.state = "leased"  # also one whose lease was over
                    message.last_ms = op.at.wall_ms - (op.at.lease_ms - message.taken_ms)
                self._hold(op)
            case Released():
                for message in self._those(op.offsets):
                    self._resume(message, op.at)
                    self._return(message, op.at.wall_ms, op.delay_ms)
            case Returned():
                for message in self._those(op.offsets):
                    message.unused_count += 1
                    message.state = "ready"
                    if self._is_used_up(message):
                        message.state = "dying"
                    elif message.is_lapsed:
                        self._end_life(message)
            case Rejected():
                self.messages[op.offset].state = "dying"
                self.messages[op.offset].reason = op.reason
            case Acked():
                taken = [message for message in self._those(op.offsets) if message in self.visible()]
                if taken and (self.config.ordered or self.config.fair):
                    self._take_turns(taken, op.at)
                self._end(list(op.offsets), "acknowledged")
            case TxnAcked():
                for message in self._those(op.offsets):
                    message.state, message.producer_id = "held", op.producer_id
            case TxnEnded():
                for message in self.live():
                    if message.state == "held" and message.producer_id == op.producer_id:
                        if op.is_commit:
                            self._end([message.offset], "acknowledged")
                        else:
                            self._return(message, op.at.wall_ms, 0)
            case DeadLettered() | Moved():
                self._end(list(op.offsets), "dead_lettered")
            case Dropped():
                self._end(list(op.offsets), "dropped")
            case Expired():
                below = [message for message in self.live() if message.offset < op.upto]
                if op.cause is ExpiryCause.RETENTION:
                    below = [message for message in self.live() if not self._is_spared(message, op.at)]
                    below = [message for message in below if message.offset < op.upto]
                self._end([*op.offsets, *(message.offset for message in below)], "expired")
            case Repeated():
                self.ids = {id_: known for id_, known in self.ids.items() if known.offset not in op.offsets}
                self._end(list(op.offsets), "withdrawn")
            case Purged():
                purged = [message.offset for message in self.live() if message.offset < op.upto]
                self.ids = {id_: known for id_, known in self.ids.items() if known.offset not in purged}
                self._end(purged, "purged")
            case Configured():
                self.config = op.config
                for message in self.live():
                    if message.number and message.state in ("ready", "delayed") and self._is_used_up(message):
                        message.state = "dying"
            case _:
                pass

    def _note(self, at: Instant) -> None:
        self.noted = at
        self.began = self.began or at
        self.ids = {id_: known for id_, known in self.ids.items() if (known.until_ms or 0) > at.wall_ms}
        for move in self.moves.values():
            if move.until_ms is None:
                move.until_ms = at.lease_ms + MOVES_REMEMBERED_MS

    def _those(self, offsets: tuple[int, ...]) -> list[Message]:
        return [self.messages[offset] for offset in offsets if self.messages[offset].is_live]

    def _hold(self, op: Leased | Extended) -> None:
        for message in self._those(op.offsets):
            message.lease_end_ms = op.at.lease_ms + op.length_ms
            message.lease_end_wall_ms = op.at.wall_ms + op.length_ms

    def _resume(self, message: Message, at: Instant) -> None:
        """Take up a lease that was over. The lease clock may have stood still meanwhile, and the other one did not."""
        if message.state == "leased":
            return
        assert self.began is not None
        taken_ms = min(max(at.lease_ms - (at.wall_ms - message.last_ms), self.began.lease_ms), at.lease_ms)
        message.taken_ms, message.last_ms = taken_ms, at.wall_ms - (at.lease_ms - taken_ms)

    def _take_turns(self, messages: list[Message], at: Instant) -> None:
        self.deliveries.append((at.wall_ms, self.arrived_end))
        if not self.config.ordered:
            for message in messages:
                self.turn += 1
                self.turns[message.key or b""] = self.turn
            return
        for key in dict.fromkeys(message.key for message in messages if message.key is not None):
            self.served[key] = (at.wall_ms, self.served.get(key, (0, 0))[1] + 1)

    def _place(self, message: Message) -> tuple[float, int, int, int]:
        """Where it stands among those of its priority: one that was tried, behind what had arrived by then."""
        last_ms, count = message.last_ms, message.number if message.attempt else 0
        if self.config.ordered and message.key is not None:
            last_ms, count = self.served.get(message.key, (0, 0))
        if not count:
            return (message.offset, 0, 0, message.offset)
        before = [delivery for delivery in self.deliveries if delivery[0] <= last_ms]
        _, end = max(before) if before else self.deliveries[0]
        return (end - 0.5, last_ms, count, message.offset)

    def _end(self, offsets: list[int], state: str) -> None:
        for offset in offsets:
            if offset in self.messages and self.messages[offset].is_live:
                self.messages[offset].state = state
        alive = {message.key for message in self.live()}
        self.turns = {key: turn for key, turn in self.turns.items() if key == b"" or key in alive}
        self.served = {key: last for key, last in self.served.items() if key in alive}

    # What may be asked.

    def live(self) -> list[Message]:
        return [message for message in self.messages.values() if message.is_live]

    def count(self, state: str) -> int:
        return sum(message.state == state for message in self.messages.values())

    def visible(self) -> list[Message]:
        """In order of offset."""
        return [message for message in self.live() if message.state == "ready" and self.front_of(message) is message]

    def front_of(self, message: Message) -> Message:
        if message.key is None or not self.config.ordered:
            return message
        return next(other for other in self.live() if other.key == message.key)

    def choose(self, count_max: int, upto: int) -> list[int]:
        """Which messages one receive gets."""
        if self.config.fair:
            return self._choose_in_turns(count_max, upto)
        chosen: list[int] = []
        for front in sorted(self.visible(), key=lambda message: (-message.priority, self._place(message))):
            for message in self._from_the_front(front):
                if message.state != "ready" or message.offset >= upto or len(chosen) == count_max:
                    break
                chosen.append(message.offset)
        return chosen

    def _from_the_front(self, front: Message) -> list[Message]:
        if front.key is None or not self.config.ordered:
            return [front]
        return [message for message in self.live() if message.key == front.key]

    def _choose_in_turns(self, count_max: int, upto: int) -> list[int]:
        turns, turn = {b"": 0, **self.turns}, self.turn
        ready = [message for message in self.visible() if message.offset < upto]
        chosen: list[int] = []
        while ready and len(chosen) < count_max:
            best = min(ready, key=lambda one: (turns[one.key or b""], -one.priority, self._place(one)))
            turn += 1
            turns[best.key or b""] = turn
            ready.remove(best)
            chosen.append(best.offset)
        return chosen

    def find_duplicate(self, id_: bytes) -> int | None:
        known = self.ids.get(id_) if self.config.deduplication_window_ms else None
        return known.offset if known is not None and (known.until_ms or 0) > self.now.wall_ms else None


PLAIN = Properties(priority=PRIORITY_DEFAULT)
