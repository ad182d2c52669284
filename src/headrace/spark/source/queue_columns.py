"""A queue's own columns: a message's id and priority, which travel with it, and its state, which the node knows.

Id and priority are in the record, in headers where they are not the default. State and attempt are no part of the
message: the node is asked for them by browsing, which takes nothing from the workers. They are those of the moment in
which the task reads. A message that the node no longer tracks is done: acknowledged, dead-lettered, expired or purged;
its state is `acknowledged` and its attempt null, as `headrace queue explain` has it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from headrace.client.queue.sync import Client, Queue
from headrace.model.message import PRIORITY_HEADER, message_id
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX
from headrace.spark.arrow.schema import FULL_SCHEMA, arrow_schema
from headrace.spark.source.column import ATTEMPT, ID, PRIORITY, QUEUE_COLUMNS, STATE
from headrace.spark.source.reading import Range

_PAGE_COUNT = 1000
_OFFSET_MAX = 10**18 - 1

Headers = list[dict[str, object]] | None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a message is, and how often it was handed out."""

    state: str
    attempt: int | None


_DONE = Standing("acknowledged", None)


def base_schema(schema: StructType) -> StructType:
    """The columns that must be decoded so that those of a queue can be told."""
    asked = {field.name for field in schema.fields}
    needed = {"partition", "offset"} | ({"headers"} if PRIORITY in asked else set())
    fields: list[StructField] = [field for field in FULL_SCHEMA.fields if field.name in asked | needed]
    return StructType(fields)


def with_queue_columns(
    batches: Iterable[pa.RecordBatch], schema: StructType, stand: Callable[[int, int, int], dict[int, Standing]]
) -> Iterator[pa.RecordBatch]:
    """Batches of `base_schema` with the columns that were asked for. `stand` tells of a partition's offsets."""
    columns = arrow_schema(schema)
    asked = set(columns.names)
    for batch in batches:
        partitions = batch.column("partition").to_pylist()
        offsets = batch.column("offset").to_pylist()
        own: dict[str, list[object]] = {}
        if ID in asked:
            own[ID] = [message_id(*place) for place in zip(partitions, offsets, strict=True)]
        if PRIORITY in asked:
            headers: list[Headers] = batch.column("headers").to_pylist()
            own[PRIORITY] = [_priority(one) for one in headers]
        if asked & {ATTEMPT, STATE}:
            standings = _standings(partitions, offsets, stand)
            own[ATTEMPT] = [one.attempt for one in standings]
            own[STATE] = [one.state for one in standings]
        arrays = [
            pa.array(own[field.name], field.type) if field.name in QUEUE_COLUMNS else batch.column(field.name)
            for field in columns
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)


def _standings(
    partitions: Sequence[int], offsets: Sequence[int], stand: Callable[[int, int, int], dict[int, Standing]]
) -> list[Standing]:
    known = {}
    for partition in set(partitions):
        own = [offset for at, offset in zip(partitions, offsets, strict=True) if at == partition]
        known[partition] = stand(partition, min(own), max(own) + 1)
    return [known[at].get(offset, _DONE) for at, offset in zip(partitions, offsets, strict=True)]


def _priority(headers: Headers) -> int:
    said = _header(headers, PRIORITY_HEADER)
    return int(said) if said is not None and said.isdigit() and int(said) <= PRIORITY_MAX else PRIORITY_DEFAULT


def _header(headers: Headers, name: str) -> bytes | None:
    for header in headers or ():
        if header["key"] == name:
            value = header["value"]
            return value if isinstance(value, bytes) else None
    return None


class Standings:
    """Asks a node where messages are. The answers have the messages' bodies: this is for looking closely."""

    def __init__(self, http: str, queue: str) -> None:
        self._client = Client(http)
        self._queue: Queue = self._client.queue(queue)

    def close(self) -> None:
        self._client.close()

    def __call__(self, partition: int, start: int, end: int) -> dict[int, Standing]:
        after = _just_before(partition, start)
        found: dict[int, Standing] = {}
        while True:
            page = self._queue.browse(limit=_PAGE_COUNT, after=after)
            for one in page.messages:
                if (one.partition, one.offset) >= (partition, end):
                    return found
                found[one.offset] = Standing(one.state, one.attempt)
            after = page.next
            if after is None:
                return found


def _just_before(partition: int, offset: int) -> str | None:
    """The place after which a page begins with an offset."""
    if offset > 0:
        return f"{partition}-{offset - 1}"
    return f"{partition - 1}-{_OFFSET_MAX}" if partition > 0 else None


def read_queue(
    ranges: Sequence[Range],
    schema: StructType,
    *,
    http: str,
    queue: str,
    read: Callable[[Sequence[Range], pa.Schema], Iterator[pa.RecordBatch]],
) -> Iterator[pa.RecordBatch]:
    """Rows of a queue with some of its own columns. `read` reads the columns that records have."""
    standings = Standings(http, queue)
    try:
        yield from with_queue_columns(read(ranges, arrow_schema(base_schema(schema))), schema, standings)
    finally:
        standings.close()
