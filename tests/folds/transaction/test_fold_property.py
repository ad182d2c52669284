"""Whatever producers ask, in whatever order, with crashes and repetitions: a transaction is all or nothing.

The machine is a coordinator in small: the fold, its log, of which a crash loses the end, and participants that are told
once and again. What it knows beside them is what a careful client writes down: what it was told.
"""

import os
from uuid import UUID

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.folds.producer import ProducerFold, Tentative
from headrace.folds.transaction.codec import Stored, decode_op, encode_op
from headrace.folds.transaction.fold import Producer, TransactionFold
from headrace.folds.transaction.transaction import AT_REST, EPOCH_LAST, PREPARED, State, Transaction
from headrace.model.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, BatchHeader
from headrace.model.errors import (
    ConcurrentTransactionsError,
    ProducerFencedError,
    ProducerMappingError,
    TransactionStateError,
)
from headrace.model.ids import PartitionId
from headrace.wire.kafka.marker import Marker

PLACES = [PartitionId(UUID(int=1), index) for index in range(3)]
REFUSALS = (ConcurrentTransactionsError, ProducerFencedError, ProducerMappingError, TransactionStateError)
ID = "tx"

places = st.sampled_from(PLACES)


class Participant:
    """A partition: who wrote what, and what became of it. Everything here is durable at once."""

    def __init__(self) -> None:
        self.fold = ProducerFold()
        self.open: list[int] = []  # the transactions of which it has something undecided, by their numbers
        self.kept: list[int] = []
        self.dropped: list[int] = []

    def header(self, producer_id: int, epoch: int, sequence: int, attributes: int) -> BatchHeader:
        return BatchHeader(self.fold.end_offset, 100, 0, 2, 0, attributes, 0, 1, 1, producer_id, epoch, sequence, 1)

    def write(self, producer: Producer, number: int) -> None:
        sequence = self.fold.next_sequence(producer.producer_id, producer.epoch)
        header = self.header(producer.producer_id, producer.epoch, sequence, ATTRIBUTE_TRANSACTIONAL)
        self.fold.check(header, base_offset=self.fold.end_offset, is_verified=True)
        self.fold.apply(header, seen_ms=0)
        self.open.append(number)

    def end(self, told: Transaction) -> None:
        header = self.header(told.producer_id, told.epoch, -1, ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL)
        marker, tentative = Marker(told.is_commit, 0), Tentative()
        if not self.fold.check_marker(
            header, marker, base_offset=self.fold.end_offset, tentative=tentative, is_bumped=told.is_bumped
        ):
            return
        self.fold.apply(header, seen_ms=0, marker=marker)
        (self.kept if told.is_commit else self.dropped).extend(self.open)
        self.open = []


class CoordinatorMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.fold = TransactionFold()
        self.log: list[tuple[int, bytes]] = []
        self.durable_count = 0
        self.participants = {place: Participant() for place in PLACES}
        self.producers: list[Producer] = []  # every instance there ever was
        self.now_ms = 0
        self.next_producer_id = 100
        self.number = 0  # of the transaction that is open
        self.written: dict[int, set[PartitionId]] = {}
        self.committed: set[int] = set()  # as producers were told
        self.aborted: set[int] = set()
        self.fenced: set[Producer] = set()  # whose transaction was ended for them
        self.begin(None)

    def store(self, transaction: Transaction, *, is_durable: bool = True) -> None:
        entry = encode_op(Stored(transaction))
        self.log.append(entry)
        self.fold.apply_entry(*entry)
        if is_durable:
            self.durable_count = len(self.log)

    @property
    def known(self) -> Transaction:
        known = self.fold.get(ID)
        assert known is not None
        return known

    def spare(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    # What producers ask.

    @rule(expected=st.one_of(st.none(), st.integers(0, 3)))
    def begin(self, expected: int | None) -> None:
        """A new instance of the producer, or one that says what it has."""
        self.now_ms += 1
        if self.fold.get(ID) is None:
            self.store(self.fold.create(ID, producer_id=self.spare(), timeout_ms=1000, now_ms=self.now_ms))
        else:
            mine = None
            if expected is not None and expected < len(self.producers):
                mine = self.producers[-1 - expected][1:]
            try:
                if mine is not None:
                    self.fold.check_expected(ID, mine)
                if self.known.state is State.ONGOING:
                    self.store(self.fold.fence(ID, now_ms=self.now_ms))
                    mine = None
                if self.known.state in PREPARED:
                    self.tell(0)
                    mine = None
                self.store(
                    self.fold.renew(
                        ID, expected=mine, new_producer_id=self.spare(), timeout_ms=1000, now_ms=self.now_ms
                    )
                )
            except ProducerFencedError:
                assert mine is not None
                return
        self.producers.append(Producer(ID, self.known.producer_id, self.known.epoch))

    @rule(place=places, back=st.integers(0, 2))
    def write(self, place: PartitionId, back: int) -> None:
        """Join a partition and write there. Older instances are refused."""
        producer = self.producers[-1 - min(back, len(self.producers) - 1)]
        was_at_rest = self.known.state in AT_REST
        try:
            joined = self.fold.add(producer, partitions=[place], now_ms=self.now_ms)
        except REFUSALS:
            assert producer[1:] != (self.known.producer_id, self.known.epoch) or self.known.state in PREPARED
            return
        assert producer[1:] == (self.known.producer_id, self.known.epoch), "only the last instance may write"
        assert producer not in self.fenced, "it would go on with a transaction that is over"
        if was_at_rest:
            self.number += 1
        if joined is not None:
            self.store(joined)
        self.fold.verify(producer, partition=place)
        self.participants[place].write(producer, self.number)
        self.written.setdefault(self.number, set()).add(place)

    @rule(place=places)
    def write_late(self, place: PartitionId) -> None:
        """What was sent before the transaction ended and comes after it: no partition takes it unverified."""
        for producer in self.producers[-2:]:
            if self.known.state is State.ONGOING and producer[1:] == (self.known.producer_id, self.known.epoch):
                continue
            try:
                self.fold.verify(producer, partition=place)
            except REFUSALS:
                continue
            raise AssertionError("a late batch was verified")

    @rule(is_commit=st.booleans(), is_bumped=st.booleans(), back=st.integers(0, 1), is_answered=st.booleans())
    def end(self, is_commit: bool, is_bumped: bool, back: int, is_answered: bool) -> None:
        producer = self.producers[-1 - min(back, len(self.producers) - 1)]
        number = self.number if self.known.state is State.ONGOING else None
        try:
            ending = self.fold.end(
                producer,
                is_commit=is_commit,
                is_bumped=is_bumped,
                new_producer_id=self.spare(),
                now_ms=self.now_ms,
            )
        except REFUSALS:
            return
        if ending.is_new:
            self.store(ending.transaction, is_durable=is_answered)
            if not is_answered:
                return  # the crash comes next, or the entry is written after all
        again = self.fold.end(
            producer, is_commit=is_commit, is_bumped=is_bumped, new_producer_id=self.spare(), now_ms=self.now_ms
        )
        assert not again.is_new, "asking again decides nothing"
        assert again.transaction.following == ending.transaction.following
        if ending.is_new and number is not None:
            (self.committed if is_commit else self.aborted).add(number)
        following = Producer(ID, *ending.transaction.following)
        if following != self.producers[-1]:
            self.producers.append(following)

    # What the coordinator does.

    @rule(count=st.integers(0, 3), is_completed=st.booleans())
    def tell_some(self, count: int, is_completed: bool) -> None:
        """Tell some participants and go no further; or tell all of them twice."""
        if self.known.state in PREPARED:
            self.durable_count = len(self.log)  # nobody hears of a decision that is not committed
            self.tell(3 - count if not is_completed else 0, is_completed=is_completed)

    def tell(self, left_out: int, *, is_completed: bool = True) -> None:
        self.durable_count = len(self.log)
        told = self.known
        for place in told.partitions[: len(told.partitions) - left_out or None]:
            for _ in range(2):
                self.participants[place].end(told)
        if is_completed:
            for place in told.partitions:
                self.participants[place].end(told)
            self.store(self.fold.complete(ID, now_ms=self.now_ms), is_durable=False)

    @rule()
    def time_out(self) -> None:
        if self.known.state is State.ONGOING:
            self.fenced.add(Producer(ID, self.known.producer_id, self.known.epoch))
            self.store(self.fold.fence(ID, now_ms=self.now_ms))

    @rule()
    def use_up_epochs(self) -> None:
        if self.known.state in AT_REST and self.known.epoch < 1000:
            self.store(msgspec.structs.replace(self.known, epoch=EPOCH_LAST))
            self.producers.append(Producer(ID, self.known.producer_id, EPOCH_LAST))

    @rule(is_kept=st.booleans())
    def crash(self, is_kept: bool) -> None:
        """The log's end may be lost, as far as nobody was told of it. What is decided is told again."""
        if not is_kept:
            self.log = self.log[: self.durable_count]
        self.durable_count = len(self.log)
        replayed = TransactionFold()
        for kind, value in self.log:
            replayed.apply_entry(kind, value)
        if is_kept:
            assert replayed.snapshot() == self.fold.snapshot()
        self.fold = TransactionFold.restore(replayed.snapshot())
        if self.known.state in PREPARED:
            self.tell(0)

    # What must hold.

    @invariant()
    def every_transaction_is_all_or_nothing(self) -> None:
        if not hasattr(self, "fold"):
            return
        for number, where in self.written.items():
            outcomes = set()
            for place in where:
                participant = self.participants[place]
                if number in participant.kept:
                    outcomes.add("kept")
                if number in participant.dropped:
                    outcomes.add("dropped")
            assert len(outcomes) <= 1, f"transaction {number} was {outcomes}"
            if number in self.committed:
                assert "dropped" not in outcomes
            if number in self.aborted:
                assert "kept" not in outcomes

    @invariant()
    def nothing_is_open_that_nobody_will_end(self) -> None:
        if not hasattr(self, "fold"):
            return
        for place, participant in self.participants.items():
            assert len(set(participant.open)) <= 1, "two transactions of one producer are open in a partition"
            assert self.known.state not in AT_REST or not self.known.partitions
            if participant.open:
                assert place in self.known.partitions
                assert self.known.state not in AT_REST

    @invariant()
    def entries_read_back_as_they_were_written(self) -> None:
        if hasattr(self, "fold"):
            assert decode_op(*encode_op(Stored(self.known))) == Stored(self.known)


TestCoordinatorMachine = CoordinatorMachine.TestCase
TestCoordinatorMachine.settings = settings(
    max_examples=3000 if os.environ.get("HEADRACE_LONG") else 200, stateful_step_count=40, deadline=None
)
