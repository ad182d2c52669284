"""Reading: offsets by place and by time, and messages from a position on."""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

from headrace.client.connection import Connection
from headrace.client.deadline import Deadline
from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.router import Router
from headrace.client.values import Fetched, Located, Message, TopicPartition
from headrace.model.batch import HEADER_SIZE, BatchHeader, Buffer, read_header, read_prefix
from headrace.model.errors import CorruptBatchError
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from headrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headrace.wire.kafka.records import Record, decode_batch

T = TypeVar("T")

FETCH, LIST_OFFSETS = 1, 2

# Places that ListOffsets knows by a timestamp that cannot be.
EARLIEST, LATEST, NEWEST = -2, -1, -3

READ_UNCOMMITTED, READ_COMMITTED = 0, 1

_CONSUMER = -1


class Fetcher:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_offsets(
        self, questions: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, Located]:
        """For each partition the first offset at or after a timestamp, or a place: EARLIEST, LATEST, NEWEST.

        To a reader of committed messages, LATEST is the last stable offset: below it every transaction is over.
        """
        deadline = self._router.deadline()

        async def ask(connection: Connection, ats: list[TopicPartition]) -> dict[TopicPartition, Located]:
            topics = tuple(
                ListOffsetsTopic(
                    name=name,
                    partitions=tuple(
                        ListOffsetsPartition(partition_index=at.partition, timestamp=questions[at]) for at in own
                    ),
                )
                for name, own in _by_topic(ats).items()
            )
            request = ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=isolation, topics=topics)
            response = await connection.call(LIST_OFFSETS, request, ListOffsetsResponse, timeout_ms=deadline.left_ms)
            found = {}
            for topic in response.topics:
                for partition in topic.partitions:
                    at = TopicPartition(topic.name, partition.partition_index)
                    if partition.error_code != NO_ERROR:
                        raise wire_error(partition.error_code, subject=str(at))
                    found[at] = Located(partition.offset, partition.timestamp)
            return found

        async def attempt() -> dict[TopicPartition, Located]:
            groups = await self._by_leader(questions, deadline)
            answers = await asyncio.gather(*(ask(connection, ats) for connection, ats in groups.items()))
            return {at: located for answer in answers for at, located in answer.items()}

        return await self._router.retrying({at.topic for at in questions}, attempt, deadline)

    async def fetch(
        self, positions: Mapping[TopicPartition, int], *, wait_ms: int, bytes_min: int, bytes_max: int
    ) -> list[Fetched]:
        """Messages from each position on. With nothing there, each leader is waited for up to `wait_ms`."""
        deadline = self._router.deadline()
        partition_bytes_max = min(bytes_max, self._router.config.partition_fetch_bytes_max)

        async def ask(connection: Connection, ats: list[TopicPartition]) -> list[Fetched]:
            topics = tuple(
                FetchTopic(
                    topic=name,
                    partitions=tuple(
                        FetchPartition(
                            partition=at.partition, fetch_offset=positions[at], partition_max_bytes=partition_bytes_max
                        )
                        for at in own
                    ),
                )
                for name, own in _by_topic(ats).items()
            )
            request = FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=bytes_max, topics=topics)
            response = await connection.call(
                FETCH, request, FetchResponse, timeout_ms=wait_ms + self._router.config.deadline_ms
            )
            if response.error_code != NO_ERROR:
                raise wire_error(response.error_code, subject=str(connection.address))
            fetched = []
            for topic in response.responses:
                for partition in topic.partitions:
                    at = TopicPartition(topic.topic, partition.partition_index)
                    fetched.append(_decode(at, positions[at], partition))
            return fetched

        async def attempt() -> list[Fetched]:
            groups = await self._by_leader(positions, deadline)
            answers = await asyncio.gather(*(ask(connection, ats) for connection, ats in groups.items()))
            return [fetched for answer in answers for fetched in answer]

        return await self._router.retrying({at.topic for at in positions}, attempt, deadline)

    async def _by_leader(
        self, ats: Iterable[TopicPartition], deadline: Deadline
    ) -> dict[Connection, list[TopicPartition]]:
        groups: dict[Connection, list[TopicPartition]] = defaultdict(list)
        for at in ats:
            groups[await self._router.leader(at, deadline)].append(at)
        return groups


def _by_topic(ats: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = defaultdict(list)
    for at in ats:
        topics[at.topic].append(at)
    return topics


def _decode(at: TopicPartition, position: int, data: PartitionData) -> Fetched:
    if data.error_code != NO_ERROR:
        raise wire_error(data.error_code, subject=str(at), start=data.log_start_offset, end=data.high_watermark)
    messages, next_offset = decode_messages(at, position, data.records or b"")
    return Fetched(at, messages, next_offset, data.high_watermark, data.log_start_offset)


def decode_messages(at: TopicPartition, position: int, records: Buffer) -> tuple[list[Message], int]:
    """The messages at and after a position, and where to go on.

    A broker sends whole batches: the first may begin before the position, the last may be cut off by the byte limit,
    and control batches hold nothing for a reader.
    """
    messages: list[Message] = []
    next_offset = position
    start, size_total = 0, len(records)
    while size_total - start >= HEADER_SIZE:
        _, size = read_prefix(records, start)
        if start + size > size_total:
            break
        header = read_header(records, start)
        if not header.is_control and header.next_offset > position:
            messages += [
                Message(at.topic, at.partition, r.offset, r.timestamp_ms, r.key, r.value, r.headers)
                for r in _records(at, header, memoryview(records)[start : start + size])
                if r.offset >= position
            ]
        next_offset = max(next_offset, header.next_offset)
        start += size
    return messages, next_offset


def _records(at: TopicPartition, header: BatchHeader, batch: memoryview) -> list[Record]:
    try:
        return decode_batch(batch)
    except CorruptBatchError as error:
        raise CorruptBatchError(f"{at} sent a damaged batch at offset {header.base_offset}: {error}") from error
