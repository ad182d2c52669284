"""What a task does: its rows become record batches, each for one partition, which are staged.

Rows are gathered for each partition until they fill some batches, and encoded together. How much is gathered in all
is bounded, however many partitions there are.
"""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.values import TopicPartition
from headrace.host.clock import SystemClock
from headrace.model.errors import BatchTooLargeError, InvalidNameError, InvalidPartitionsError
from headrace.spark.arrow.encode import encode_batches
from headrace.spark.errors import ColumnError
from headrace.spark.sink.option import check_target
from headrace.spark.sink.place import NOWHERE, Partitions, partitions_by_key, partitions_of_queue
from headrace.spark.sink.plan import Plan
from headrace.spark.sink.row import HEADER_LIST, KEY, TIME_MS, VALUE, deduplication_ids, to_messages
from headrace.spark.sink.staging import Stage
from headrace.spark.sink.target import Shape, find_shape

# Of one batch before it is compressed, unless the topic takes less.
_BATCH_BYTES = 960 * 1024
# What the header and the varints of a batch may take of a topic's limit.
_MARGIN_BYTES = 1024
_GATHERED_BYTES = 4 * _BATCH_BYTES  # of a partition, before it is encoded
_GATHERED_BYTES_MAX = 64 * 1024 * 1024  # of all partitions


class Gathered:
    """The rows of one partition that are not encoded yet."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.size = 0


class TaskWriter:
    def __init__(self, plan: Plan, stage: Stage, *, turn: int) -> None:
        self._plan = plan
        self._stage = stage
        # Rows that may go anywhere: those of one batch go to one partition, those of the next to the next.
        self._turn = turn
        self._shapes: dict[str, Shape] = {}
        if plan.options.topic is not None and plan.shape is not None:
            self._shapes[plan.options.topic] = plan.shape
        self._gathered: dict[TopicPartition, Gathered] = defaultdict(Gathered)
        self._size = 0
        self._clock = SystemClock()

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        messages = to_messages(batch, self._plan.names, now_ms=self._clock.wall_ms())
        for topic, rows in self._by_topic(batch):
            part = batch if rows is None else batch.take(rows)
            own = messages if rows is None else messages.take(rows)
            for partition, chosen in _split(self._places(topic, part)):
                self._gather(TopicPartition(topic, partition), own if chosen is None else own.take(chosen))
        self._turn += 1
        if self._size > _GATHERED_BYTES_MAX:
            self.finish()

    def finish(self) -> None:
        """Encode what is left."""
        for at in list(self._gathered):
            self._encode(at)

    def _by_topic(self, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array | None]]:
        """Topics, each with the numbers of its rows; None for all of them."""
        if self._plan.options.topic is not None:
            yield self._plan.options.topic, None
            return
        topics = batch.column("topic")
        if topics.null_count:
            raise ColumnError("a row has no topic: the column topic is null, and there is no option topic")
        coded = topics.dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        for code, name in enumerate(coded.dictionary.to_pylist()):
            try:
                check_target(name)
            except InvalidNameError as error:
                raise ColumnError(f"a row's column topic is {name!r}: {error}") from None
            yield name, pa.array(np.flatnonzero(codes == code))

    def _places(self, topic: str, batch: pa.RecordBatch) -> Partitions:
        """The partition of each row: the one that it names, else that of its key, else any."""
        names, count = self._plan.names, self._shape(topic).partition_count
        places = np.full(batch.num_rows, NOWHERE, dtype=np.int64)
        if "key" in names or "deduplication_id" in names:
            places = self._places_by_key(batch, count)
        if "partition" in names:
            column = batch.column("partition").cast(pa.int64())
            named = pc.fill_null(column, NOWHERE).to_numpy(zero_copy_only=False)
            is_named = pc.is_valid(column).to_numpy(zero_copy_only=False)
            wrong = named[is_named & ((named < 0) | (named >= count))]
            if len(wrong):
                raise InvalidPartitionsError(
                    f"{topic} has {count} partitions, numbered from 0; a row's column partition is {wrong[0]}"
                )
            places = np.where(is_named, named, places)
        places[places == NOWHERE] = self._turn % count
        return places

    def _places_by_key(self, batch: pa.RecordBatch, count: int) -> Partitions:
        keys = batch.column("key").cast(pa.binary()) if "key" in self._plan.names else None
        if not self._plan.options.is_queue:
            assert keys is not None
            return partitions_by_key(keys, count)
        ids = deduplication_ids(batch, self._plan.names)
        known = [array for array in (keys, ids) if array is not None]
        return partitions_of_queue(known[0] if len(known) == 1 else pc.coalesce(*known), count)

    def _shape(self, topic: str) -> Shape:
        shape = self._shapes.get(topic)
        if shape is None:
            shape = self._shapes[topic] = find_shape(self._plan.options, topic, waits=True)
        return shape

    def _gather(self, at: TopicPartition, messages: pa.RecordBatch) -> None:
        gathered = self._gathered[at]
        gathered.batches.append(messages)
        gathered.size += messages.nbytes
        self._size += messages.nbytes
        if gathered.size > _GATHERED_BYTES:
            self._encode(at)

    def _encode(self, at: TopicPartition) -> None:
        gathered = self._gathered.pop(at)
        self._size -= gathered.size
        messages = pa.concat_batches(gathered.batches)
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        bytes_max = self._shapes[at.topic].message_bytes_max
        encoded = encode_batches(
            columns.get(KEY),
            columns[VALUE],
            columns.get(HEADER_LIST),
            columns.get(TIME_MS, self._clock.wall_ms()),
            codec=self._plan.options.compression,
            level=self._plan.options.compression_level,
            batch_bytes_max=min(_BATCH_BYTES, max(bytes_max - _MARGIN_BYTES, 1)),
        )
        for batch in encoded:
            if len(batch) > bytes_max:
                raise BatchTooLargeError(
                    f"a row takes {len(batch)} bytes, and {at.topic} takes {bytes_max} at once; "
                    "raise its max.message.bytes, or write less in one row"
                )
            self._stage.add(at, batch)


def _split(places: Partitions) -> Iterator[tuple[int, pa.Array | None]]:
    """Partitions, each with the numbers of its rows in their order; None for all of them."""
    first = int(places[0])
    if (places == first).all():
        yield first, None
        return
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    starts = [0, *(np.flatnonzero(np.diff(ordered)) + 1).tolist(), len(ordered)]
    for start, end in pairwise(starts):
        yield int(ordered[start]), pa.array(order[start:end])
