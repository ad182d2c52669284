"""What clients did and what they were told, in the order in which it happened.

A client notes each call when it makes it and each answer when it has it; both take the next number of one counter, so
that "before" and "after" mean the same to all clients. An answer is `yes`, `no`, or `maybe`: a connection that broke, a
time-out or a server's error leaves open whether the call was carried out. Nothing here knows headrace.
"""

import itertools
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

Outcome = Literal["yes", "maybe", "no"]
UNANSWERED = 2**62  # later than every moment


@dataclass(slots=True, kw_only=True)
class Call:
    """A call that was made; `maybe` until its answer is noted."""

    asked: int
    answered: int = UNANSWERED
    answered_s: float = 0.0  # by the client's clock
    outcome: Outcome = "maybe"


@dataclass(slots=True, kw_only=True)
class Sent(Call):
    """A message that a client sent, to a queue or to a partition of a topic."""

    channel: str
    body: str
    sender: str
    number: int  # counts up for each sender and partition, and for each sender of a queue
    partition: int | None = None
    offset: int | None = None  # where the client was told that it is; librdkafka does not always know
    transaction: str | None = None


@dataclass(slots=True, kw_only=True)
class Delivered:
    """A message that a receive handed to a worker."""

    queue: str
    body: str
    message_id: str
    attempt: int
    asked: int  # when its receive was made
    answered: int
    asked_s: float  # the same by the client's clock
    acknowledgement: Call | None = None


@dataclass(slots=True, kw_only=True)
class Transaction(Call):
    """How the end of a transaction was answered: `yes` committed, `no` aborted."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A record that a consumer read by offset."""

    topic: str
    partition: int
    offset: int
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """What a queue promises, in the words of its documentation."""

    name: str
    exactly_once: bool = False
    by_key: bool = False  # a sender's messages are one key: handed out in order, the next after the one before is done
    deduplicated: bool = False  # a send that is repeated with its id is stored once
    # How long leases are, where an acknowledgement after its lease is answered with success and may be void, as by SQS.
    quiet_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    name: str
    idempotent: bool  # else a retry may store a record twice, and retries may overtake each other


@dataclass
class History:
    queues: Sequence[Queue] = ()
    topics: Sequence[Topic] = ()
    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    along: list[Read] = field(default_factory=list)  # read while the load went on
    final: list[Read] = field(default_factory=list)  # read by a new consumer when all was over
    trouble: list[str] = field(default_factory=list)  # errors that a client must not see, whatever happens to a node

    def __post_init__(self) -> None:
        self._counter = itertools.count(1)
        self._lock = threading.Lock()

    def fork(self) -> "History":
        """A copy that goes its own way from here: several ends of one beginning."""
        copy = replace(
            self,
            delivered=list(self.delivered),
            along=list(self.along),
            final=list(self.final),
            trouble=list(self.trouble),
        )
        copy._counter = self._counter
        return copy

    def now(self) -> int:
        return next(self._counter)

    def send(
        self,
        channel: str,
        body: str,
        *,
        sender: str,
        number: int,
        partition: int | None = None,
        transaction: str | None = None,
    ) -> Sent:
        call = Sent(
            asked=self.now(),
            channel=channel,
            body=body,
            sender=sender,
            number=number,
            partition=partition,
            transaction=transaction,
        )
        with self._lock:
            self.sent.append(call)
        return call

    def begin(self, id: str) -> Transaction:
        transaction = Transaction(asked=self.now(), id=id)
        with self._lock:
            self.transactions.append(transaction)
        return transaction

    def deliver(self, queue: str, body: str, *, message_id: str, attempt: int, asked: int, asked_s: float) -> Delivered:
        delivery = Delivered(
            queue=queue,
            body=body,
            message_id=message_id,
            attempt=attempt,
            asked=asked,
            answered=self.now(),
            asked_s=asked_s,
        )
        with self._lock:
            self.delivered.append(delivery)
        return delivery

    def acknowledge(self, delivery: Delivered) -> Call:
        delivery.acknowledgement = Call(asked=self.now())
        return delivery.acknowledgement

    def answer(self, call: Call, outcome: Outcome) -> None:
        call.outcome = outcome
        call.answered = self.now()
        call.answered_s = time.monotonic()

    def count(self) -> int:
        """How many calls were answered with success: how far the load has come."""
        with self._lock:
            sent = sum(one.outcome == "yes" for one in self.sent)
            done = sum(
                one.acknowledgement is not None and one.acknowledgement.outcome == "yes" for one in self.delivered
            )
        return sent + done

    def ended_count(self) -> int:
        """How many transactions were committed or aborted."""
        with self._lock:
            return sum(one.answered < UNANSWERED for one in self.transactions)

    def fail(self, what: str) -> None:
        with self._lock:
            self.trouble.append(what)
