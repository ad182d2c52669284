"""Reading record batches as they are stored, for who decodes them in bulk.

What comes back are the bytes of a partition, undecoded and uncopied, with what it takes to go on: where the next fetch
begins, and, for who reads what is committed, which transactions among them were aborted.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headrace.client.connection import Connection
from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.router import Router
from headrace.client.values import TopicPartition
from headrace.model.batch import HEADER_SIZE, Buffer, read_header, read_prefix
from headrace.model.errors import OffsetOutOfRangeError
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

FETCH = 1
READ_UNCOMMITTED, READ_COMMITTED = 0, 1


class Position(NamedTuple):
    """Where to read in a partition, and how much at most (one batch comes whole, however large it is)."""

    offset: int
    bytes_max: int


class RawFetched(NamedTuple):
    """What one partition had at a position."""

    at: TopicPartition
    records: Buffer  # whole batches; the first may begin before the position, the last may be cut off
    next_offset: int  # where to go on; the position itself where no whole batch came
    readable_end: int  # below it is what this reader may see: the high watermark, or the last stable offset
    high_watermark: int
    start_offset: int
    aborted: Sequence[tuple[int, int]]  # producer id and first offset of each aborted transaction
    error: OffsetOutOfRangeError | None = None


class RawFetcher:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def fetch(
        self, positions: Mapping[TopicPartition, Position], *, committed: bool, wait_ms: int, bytes_max: int
    ) -> list[RawFetched]:
        """One answer of each leader, in any order of partitions. With nothing there, waits up to `wait_ms`.

        An answer has at most about `bytes_max`, so some partitions may come back empty because others were full. Where
        every partition comes back empty, there is nothing.
        """
        deadline = self._router.deadline()

        async def ask(connection: Connection, ats: Sequence[TopicPartition]) -> list[RawFetched]:
            request = FetchRequest(
                max_wait_ms=wait_ms,
                min_bytes=1,
                max_bytes=bytes_max,
                isolation_level=READ_COMMITTED if committed else READ_UNCOMMITTED,
                topics=_topics(ats, positions),
            )
            timeout_ms = wait_ms + self._router.config.deadline_ms
            response = await connection.call(FETCH, request, FetchResponse, timeout_ms=timeout_ms)
            if response.error_code != NO_ERROR:
                raise wire_error(response.error_code, subject=str(connection.address))
            return [
                _fetched(at, positions[at].offset, data, committed=committed)
                for topic in response.responses
                for data in topic.partitions
                if (at := TopicPartition(topic.topic, data.partition_index)) in positions
            ]

        async def attempt() -> list[RawFetched]:
            leaders: dict[Connection, list[TopicPartition]] = defaultdict(list)
            for at in positions:
                leaders[await self._router.leader(at, deadline)].append(at)
            answers = await asyncio.gather(*(ask(connection, ats) for connection, ats in leaders.items()))
            return [fetched for answer in answers for fetched in answer]

        return await self._router.retrying({at.topic for at in positions}, attempt, deadline)


def _topics(ats: Sequence[TopicPartition], positions: Mapping[TopicPartition, Position]) -> tuple[FetchTopic, ...]:
    topics: dict[str, list[FetchPartition]] = defaultdict(list)
    for at in ats:
        offset, bytes_max = positions[at]
        topics[at.topic].append(
            FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=bytes_max)
        )
    return tuple(FetchTopic(topic=name, partitions=tuple(own)) for name, own in topics.items())


def _fetched(at: TopicPartition, position: int, data: PartitionData, *, committed: bool) -> RawFetched:
    error = None
    if data.error_code != NO_ERROR:
        found = wire_error(data.error_code, subject=str(at), start=data.log_start_offset, end=data.high_watermark)
        if not isinstance(found, OffsetOutOfRangeError):
            raise found
        error = found
    records = data.records or b""
    return RawFetched(
        at,
        records,
        next_offset(records, position),
        data.last_stable_offset if committed else data.high_watermark,
        data.high_watermark,
        data.log_start_offset,
        [(one.producer_id, one.first_offset) for one in data.aborted_transactions or ()],
        error,
    )


def next_offset(records: Buffer, position: int) -> int:
    """Where to go on after these batches; the position itself where no batch is whole."""
    at, size_total, last = 0, len(records), -1
    while size_total - at >= HEADER_SIZE:
        _, size = read_prefix(records, at)
        if size < HEADER_SIZE or at + size > size_total:
            break
        last = at
        at += size
    return position if last < 0 else max(position, int(read_header(records, last).next_offset))
