"""Sending: messages to batches, batches to leaders, each stored once.

With acks=all the client is an idempotent producer. Each batch carries the producer's id and a sequence number; a retry
sends the same bytes, and a broker that has stored them answers with the first offset. One batch a partition is in
flight at a time, so that order survives retries. When the outcome of a batch stays unknown, the identity is given up:
its next sequence is unknown too, and a new one begins at 0.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from headrace.client.deadline import Deadline
from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.partitioner import Partitioner
from headrace.client.router import Router
from headrace.client.values import Outgoing, Produced, TopicPartition
from headrace.host.rand import Rand
from headrace.model.batch import SEQUENCE_LIMIT, Buffer
from headrace.model.errors import (
    BatchTooLargeError,
    DuplicateSequenceError,
    HeadraceError,
    InvalidPartitionsError,
    InvalidRequestError,
    UnknownProducerError,
)
from headrace.model.ids import NO_PRODUCER_ID
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headrace.wire.kafka.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headrace.wire.kafka.records import Record, encode_batch

PRODUCE, INIT_PRODUCER_ID = 0, 22
ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

# What a record costs beside its key, value and headers, at most.
_RECORD_OVERHEAD_BYTES = 32


class Identity:
    """One run of an idempotent producer: its id, and the next sequence for each partition."""

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequences: dict[TopicPartition, int] = defaultdict(int)


class Producer:
    def __init__(self, router: Router, rand: Rand) -> None:
        self._router = router
        self._partitioner = Partitioner(rand)
        self._locks: dict[TopicPartition, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._identity: asyncio.Task[Identity] | None = None

    async def send(self, topic: str, messages: Iterable[Outgoing], *, compression: str, acks: int) -> list[Produced]:
        """Send messages and wait until all are stored as `acks` asks. In order within each partition."""
        if compression not in CODECS:
            raise InvalidRequestError(f"{compression!r} is no compression codec; choose from {', '.join(CODECS)}")
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise InvalidRequestError(f"acks={acks} means nothing; choose 0, 1 or -1 (all)")
        deadline = self._router.deadline()
        info = await self._router.retrying((topic,), lambda: self._router.topic(topic, deadline), deadline)
        batches: dict[int, list[list[Outgoing]]] = defaultdict(list)
        for partition, batch in self._batches(topic, messages, len(info.partitions)):
            batches[partition].append(batch)

        async def send_all(partition: int) -> list[Produced]:
            at = TopicPartition(topic, partition)
            async with self._locks[at]:
                sent = [await self._send_batch(at, b, CODECS[compression], acks, deadline) for b in batches[partition]]
            return [produced for batch in sent for produced in batch]

        results = await asyncio.gather(*map(send_all, batches), return_exceptions=True)
        produced: list[Produced] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            produced += result
        return produced

    def _batches(
        self, topic: str, messages: Iterable[Outgoing], partition_count: int
    ) -> Iterator[tuple[int, list[Outgoing]]]:
        """Group messages by partition, each group closed when it is large enough for a batch."""
        bytes_max = self._router.config.batch_bytes_max
        open_batches: dict[int, list[Outgoing]] = {}
        sizes: dict[int, int] = {}
        for message in messages:
            partition = message.partition
            if partition is None:
                partition = self._partitioner.choose(topic, message.key, partition_count)
            elif not 0 <= partition < partition_count:
                raise InvalidPartitionsError(
                    f"{topic} has {partition_count} partitions, numbered from 0; there is no {partition}"
                )
            size = _size(message)
            if partition in open_batches and sizes[partition] + size > bytes_max:
                yield partition, open_batches.pop(partition)
                self._partitioner.batch_filled(topic)
            if partition not in open_batches:
                open_batches[partition], sizes[partition] = [], 0
            open_batches[partition].append(message)
            sizes[partition] += size
        yield from open_batches.items()
        self._partitioner.batch_filled(topic)

    async def _send_batch(
        self, at: TopicPartition, messages: list[Outgoing], codec: int, acks: int, deadline: Deadline
    ) -> list[Produced]:
        identity = await self._get_identity(deadline) if acks == ACKS_ALL else None
        now_ms = self._router.clock.wall_ms()
        records = [
            Record(
                timestamp_ms=now_ms if message.timestamp_ms is None else message.timestamp_ms,
                key=message.key,
                value=message.value,
                headers=tuple(message.headers),
            )
            for message in messages
        ]
        batch = encode_batch(
            records,
            codec=codec,
            producer_id=NO_PRODUCER_ID if identity is None else identity.producer_id,
            producer_epoch=-1 if identity is None else identity.epoch,
            base_sequence=-1 if identity is None else identity.sequences[at],
        )
        try:
            offset = await self._router.retrying(
                (at.topic,), lambda: self._attempt(at, batch, acks, deadline), deadline
            )
        except DuplicateSequenceError:
            offset = -1  # stored by an attempt whose answer was lost, too long ago for its offset to be known
        except BatchTooLargeError:
            if len(messages) == 1:
                raise
            # The broker allows less than we gather: halves keep their order, and one message at last says the truth.
            half = len(messages) // 2
            first = await self._send_batch(at, messages[:half], codec, acks, deadline)
            return first + await self._send_batch(at, messages[half:], codec, acks, deadline)
        except UnknownProducerError:
            # Silent for so long that the broker forgot us: it stored nothing of this, and a new identity may send it.
            self._identity = None
            return await self._send_batch(at, messages, codec, acks, deadline)
        except (HeadraceError, asyncio.CancelledError):
            self._identity = None
            raise
        if identity is not None:
            identity.sequences[at] = (identity.sequences[at] + len(messages)) % SEQUENCE_LIMIT
        return [Produced(at, offset, len(messages))]

    async def _attempt(self, at: TopicPartition, batch: Buffer, acks: int, deadline: Deadline) -> int:
        if acks == ACKS_NONE:
            connection = await self._router.leader(at, deadline)
            await connection.post(PRODUCE, _request(at, batch, acks, deadline))
            return -1
        return await store_batch(self._router, at, batch, acks=acks, deadline=deadline)

    async def _get_identity(self, deadline: Deadline) -> Identity:
        """The producer's identity. Callers that come together share one request for it."""
        task = self._identity
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = asyncio.get_running_loop().create_task(self._allocate(deadline))
            self._identity = task
        return await asyncio.shield(task)

    async def _allocate(self, deadline: Deadline) -> Identity:
        async def attempt() -> Identity:
            connection = await self._router.any_connection()
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await connection.call(
                INIT_PRODUCER_ID, request, InitProducerIdResponse, timeout_ms=deadline.left_ms
            )
            if response.error_code != NO_ERROR:
                raise wire_error(response.error_code, subject="a producer id")
            return Identity(response.producer_id, response.producer_epoch)

        return await self._router.retrying((), attempt, deadline)


async def store_batch(
    router: Router,
    at: TopicPartition,
    batch: Buffer,
    *,
    acks: int,
    deadline: Deadline,
    transactional_id: str | None = None,
) -> int:
    """One attempt at having a batch stored; returns the offset that its first message got."""
    connection = await router.leader(at, deadline)
    request = _request(at, batch, acks, deadline, transactional_id)
    response = await connection.call(PRODUCE, request, ProduceResponse, timeout_ms=deadline.left_ms)
    result: PartitionProduceResponse = response.responses[0].partition_responses[0]
    if result.error_code != NO_ERROR:
        raise wire_error(result.error_code, subject=str(at), message=result.error_message)
    return result.base_offset


def _request(
    at: TopicPartition, batch: Buffer, acks: int, deadline: Deadline, transactional_id: str | None = None
) -> ProduceRequest:
    data = PartitionProduceData(index=at.partition, records=batch)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=deadline.left_ms,
        topic_data=(TopicProduceData(name=at.topic, partition_data=(data,)),),
    )


def _size(message: Outgoing) -> int:
    size = _RECORD_OVERHEAD_BYTES + len(message.key or b"") + len(message.value or b"")
    for name, value in message.headers:
        size += len(name) * 3 + len(value or b"") + 10
    return size
