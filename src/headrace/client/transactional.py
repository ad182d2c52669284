"""A transactional producer: ready-made batches into partitions, offsets into groups, all of it or nothing.

    producer = client.transactional("billing-0")
    await producer.begin()                                  # fences whoever had the id before
    await producer.join([TopicPartition("invoices", 0)])
    await producer.produce(TopicPartition("invoices", 0), batch)
    await producer.commit_offsets("billing", {TopicPartition("orders", 0): 42})
    await producer.commit()

What is done before what:

    begin           the coordinator ends what an earlier instance left behind, aborted where it was open and told to
                    everybody where it was decided, and gives the id's next epoch. Whoever has a lower one is refused
                    from then on, so what is read after `begin` is not changed any more by an earlier instance
    join            the coordinator notes the partitions before they get anything, all in one write
    produce         a batch gets the producer's id, epoch and sequence. One batch a partition is in flight at a time, a
                    retry sends the same bytes, and a node that has stored them says so
    commit, abort   asked until it is answered: the coordinator gives the first answer again

After `commit` or `abort` the next transaction begins with its `join`. An instance of which a call failed can only
`abort`: nobody knows what the coordinator has heard. Another instance of the same id finds that out by its `begin`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress

from headrace.client.connection import Connection
from headrace.client.deadline import Deadline
from headrace.client.errors import NO_ERROR, UnknownOutcomeError, wire_error
from headrace.client.producer import ACKS_ALL, INIT_PRODUCER_ID, Identity, store_batch
from headrace.client.router import COORDINATES_TRANSACTIONS, Router
from headrace.client.values import TopicPartition
from headrace.model.batch import SEQUENCE_LIMIT, read_header
from headrace.model.errors import DuplicateSequenceError, HeadraceError, TransactionStateError
from headrace.wire.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from headrace.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from headrace.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headrace.wire.kafka.stamp import stamp_transactional

ADD_PARTITIONS_TO_TXN, ADD_OFFSETS_TO_TXN, END_TXN, TXN_OFFSET_COMMIT = 24, 25, 26, 28

# From this version of EndTxn each end raises the producer's epoch (KIP-890), and the answer has the new one.
_EPOCH_RAISED = 5
# Another partition of the request was refused, and this one was left alone for it.
_NOT_ATTEMPTED = 55


class TransactionalProducer:
    """One instance of a transactional producer. Several partitions may be sent to at once."""

    def __init__(self, router: Router, transactional_id: str, *, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._router = router
        self._identity: Identity | None = None
        self._locks: dict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def begin(self) -> None:
        """Become the one instance of this id."""
        deadline = self._router.deadline()

        async def attempt() -> Identity:
            connection = await self._coordinator(deadline)
            request = InitProducerIdRequest(
                transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms
            )
            response = await connection.call(
                INIT_PRODUCER_ID, request, InitProducerIdResponse, timeout_ms=deadline.left_ms
            )
            self._check(response.error_code)
            return Identity(response.producer_id, response.producer_epoch)

        self._identity = await self._router.retrying((), attempt, deadline)

    async def join(self, ats: Iterable[TopicPartition]) -> None:
        """Let partitions take part in the transaction; the first ones begin it."""
        identity, deadline = self._current(), self._router.deadline()
        partitions: dict[str, list[int]] = defaultdict(list)
        for at in ats:
            partitions[at.topic].append(at.partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(topic, tuple(sorted(set(numbers)))) for topic, numbers in partitions.items()
            ),
        )

        async def attempt() -> None:
            connection = await self._coordinator(deadline)
            response = await connection.call(
                ADD_PARTITIONS_TO_TXN, request, AddPartitionsToTxnResponse, timeout_ms=deadline.left_ms
            )
            for topic in response.results_by_topic_v3_and_below:
                for one in topic.results_by_partition:
                    if one.partition_error_code not in (NO_ERROR, _NOT_ATTEMPTED):
                        raise wire_error(one.partition_error_code, subject=f"{topic.name}-{one.partition_index}")

        await self._router.retrying((), attempt, deadline)

    async def produce(self, at: TopicPartition, batch: bytearray) -> None:
        """Store a batch that was built without a producer, after those that were given for this partition before."""
        async with self._locks[at]:
            identity, deadline = self._current(), self._router.deadline()
            stamp_transactional(
                batch, producer_id=identity.producer_id, epoch=identity.epoch, sequence=identity.sequences[at]
            )
            # A duplicate was stored by an attempt whose answer was lost.
            with suppress(DuplicateSequenceError):
                await self._router.retrying((at.topic,), lambda: self._store(at, batch, deadline), deadline)
            identity.sequences[at] = (identity.sequences[at] + read_header(batch).record_count) % SEQUENCE_LIMIT

    async def _store(self, at: TopicPartition, batch: bytearray, deadline: Deadline) -> None:
        id = self.transactional_id
        await store_batch(self._router, at, batch, acks=ACKS_ALL, deadline=deadline, transactional_id=id)

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, text: str = "") -> None:
        """Have a group's offsets committed with the transaction, and a text beside each.

        The group has no members, or they are not asked.
        """
        identity, deadline = self._current(), self._router.deadline()
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for at, offset in offsets.items():
            topics[at.topic].append(TxnOffsetCommitRequestPartition(at.partition, offset, committed_metadata=text))
        join = AddOffsetsToTxnRequest(self.transactional_id, identity.producer_id, identity.epoch, group)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=tuple(TxnOffsetCommitRequestTopic(name, tuple(places)) for name, places in topics.items()),
        )

        async def attempt() -> None:
            connection = await self._coordinator(deadline)
            joined = await connection.call(
                ADD_OFFSETS_TO_TXN, join, AddOffsetsToTxnResponse, timeout_ms=deadline.left_ms
            )
            self._check(joined.error_code)
            connection = await self._router.coordinator(group, deadline)
            response = await connection.call(
                TXN_OFFSET_COMMIT, request, TxnOffsetCommitResponse, timeout_ms=deadline.left_ms
            )
            for topic in response.topics:
                for one in topic.partitions:
                    if one.error_code != NO_ERROR:
                        subject = f"group {group} in {topic.name}-{one.partition_index}"
                        raise wire_error(one.error_code, subject=subject)

        await self._router.retrying(topics, attempt, deadline)

    async def commit(self) -> None:
        """Let all of it count. UnknownOutcomeError: no answer came in time, and it counts or it does not."""
        try:
            await self._end(is_commit=True)
        except HeadraceError as error:
            if not error.retriable:
                raise
            raise UnknownOutcomeError(
                f"the transaction of {self.transactional_id} is committed, or it is not; the last answer was: {error}"
            ) from error

    async def abort(self) -> None:
        """Let nothing of it count."""
        await self._end(is_commit=False)

    async def _end(self, *, is_commit: bool) -> None:
        identity, deadline = self._current(), self._router.deadline()
        request = EndTxnRequest(self.transactional_id, identity.producer_id, identity.epoch, is_commit)

        async def attempt() -> None:
            connection = await self._coordinator(deadline)
            response = await connection.call(END_TXN, request, EndTxnResponse, timeout_ms=deadline.left_ms)
            self._check(response.error_code)
            if connection.version(END_TXN) >= _EPOCH_RAISED:
                self._identity = Identity(response.producer_id, response.producer_epoch)

        await self._router.retrying((), attempt, deadline)

    async def _coordinator(self, deadline: Deadline) -> Connection:
        return await self._router.coordinator(self.transactional_id, deadline, kind=COORDINATES_TRANSACTIONS)

    def _current(self) -> Identity:
        if self._identity is None:
            raise TransactionStateError(f"the producer {self.transactional_id} has not begun; call begin first")
        return self._identity

    def _check(self, code: int) -> None:
        if code != NO_ERROR:
            raise wire_error(code, subject=f"transactional id {self.transactional_id}")
