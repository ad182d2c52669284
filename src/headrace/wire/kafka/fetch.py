"""Fetch (key 1) by hand: it runs for every read, and its answer carries everything that was stored.

A request becomes a flat list of partitions. An answer is a list of buffers for a gathering write: header pieces made
here, interleaved with record buffers that are passed through untouched. A record set or an array in it is empty, never
null: librdkafka drops a response with null, and the Java client throws.

Versions: 4 to 18; the encoding is flexible from 12, and from 13 a topic is named by its uuid. Everything else about the
API is in `messages/fetch.py`, and tests hold the two against each other in every version.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.model.batch import Buffer
from headrace.wire.kafka.primitives import INT32, FlexibleReader, FlexibleWriter, Reader, Writer
from headrace.wire.kafka.produce import Endpoint, endpoints_field, write_topic

FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
_LOG_START_FROM = 5
_SESSIONS_FROM = 7
_LEADER_EPOCH_FROM = 9
_RACK_FROM = 11
_REPLICA_STATE_FROM = 15
_ENDPOINTS_FROM = 16
_DIRECTORY_FROM = 17
_HIGH_WATERMARK_FROM = 18

_LIMITS = Struct(">iiib")
_SESSION = Struct(">ii")
_REPLICA_STATE = Struct(">iq")
_PARTITION_4 = Struct(">iqi")
_PARTITION_5 = Struct(">iqqi")
_PARTITION_9 = Struct(">iiqqi")
_PARTITION_12 = Struct(">iiqiqi")
_FRAME_START = Struct(">ii")
_ERROR_AND_SESSION = Struct(">hi")
_DATA_4 = Struct(">ihqq")
_DATA_5 = Struct(">ihqqq")
_ABORTED = Struct(">qq")
_EPOCH_END = Struct(">iq")
_LEADER = Struct(">ii")


class FetchPartition(NamedTuple):
    topic: str | UUID  # the name up to version 12, the id from 13
    partition: int
    leader_epoch: int  # what the client believes; -1 when it does not say
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int  # of a follower; -1 for consumers
    bytes_max: int


class ForgottenTopic(NamedTuple):
    topic: str | UUID
    partitions: tuple[int, ...]


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    partitions: list[FetchPartition]
    forgotten: list[ForgottenTopic]
    rack_id: str


class FetchedPartition(NamedTuple):
    """The answer for one partition."""

    topic: str | UUID
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()  # stored bytes, in order, sent as they are
    aborted: Sequence[tuple[int, int]] = ()  # producer id, first offset of the aborted transaction
    preferred_read_replica: int = -1  # 11+
    diverging_epoch: int = -1  # 12+, with the offset where it ends
    diverging_end_offset: int = -1
    leader_id: int = -1  # 12+, with a wrong-leader error
    leader_epoch: int = -1


def read_request(frame: Buffer, position: int, version: int) -> FetchRequest:
    """Parse the body that begins at a position of the frame."""
    reader = FlexibleReader(frame, position) if version >= FLEXIBLE_FROM else Reader(frame, position)
    replica_id, replica_epoch = -1, -1
    if version < _REPLICA_STATE_FROM:
        replica_id = reader.int32()
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.fixed(_LIMITS)
    session_id, session_epoch = reader.fixed(_SESSION) if version >= _SESSIONS_FROM else (0, -1)
    partitions = _read_flexible(reader, version) if version >= FLEXIBLE_FROM else _read_classic(reader, version)
    forgotten = _read_forgotten(reader, version) if version >= _SESSIONS_FROM else []
    rack_id = reader.string() if version >= _RACK_FROM else ""
    for tag in reader.tags():
        if tag == 0:
            reader.nullable_string()  # the cluster's id, which only voters of Kafka's own quorum send
        elif tag == 1 and version >= _REPLICA_STATE_FROM:
            replica_id, replica_epoch = reader.fixed(_REPLICA_STATE)
            reader.end_struct()
    reader.end_message()
    return FetchRequest(
        replica_id,
        replica_epoch,
        max_wait_ms,
        min_bytes,
        max_bytes,
        isolation_level,
        session_id,
        session_epoch,
        partitions,
        forgotten,
        rack_id,
    )


def _read_classic(reader: Reader, version: int) -> list[FetchPartition]:
    partitions: list[FetchPartition] = []
    for _ in range(reader.count(6)):
        topic = reader.string()
        if version >= _LEADER_EPOCH_FROM:
            for _ in range(reader.count(_PARTITION_9.size)):
                index, epoch, offset, start, bytes_max = reader.fixed(_PARTITION_9)
                partitions.append(FetchPartition(topic, index, epoch, offset, -1, start, bytes_max))
        elif version >= _LOG_START_FROM:
            for _ in range(reader.count(_PARTITION_5.size)):
                index, offset, start, bytes_max = reader.fixed(_PARTITION_5)
                partitions.append(FetchPartition(topic, index, -1, offset, -1, start, bytes_max))
        else:
            for _ in range(reader.count(_PARTITION_4.size)):
                index, offset, bytes_max = reader.fixed(_PARTITION_4)
                partitions.append(FetchPartition(topic, index, -1, offset, -1, -1, bytes_max))
    return partitions


def _read_flexible(reader: Reader, version: int) -> list[FetchPartition]:
    partitions: list[FetchPartition] = []
    for _ in range(reader.count(3)):
        topic = reader.topic_id() if version >= TOPIC_IDS_FROM else reader.string()
        for _ in range(reader.count(_PARTITION_12.size + 1)):
            index, epoch, offset, last_epoch, start, bytes_max = reader.fixed(_PARTITION_12)
            partitions.append(FetchPartition(topic, index, epoch, offset, last_epoch, start, bytes_max))
            _skip_partition_tags(reader, version)
        reader.end_struct()
    return partitions


def _skip_partition_tags(reader: Reader, version: int) -> None:
    """Both tags are for replicas of Kafka's own kind; they are held to their types all the same."""
    at = reader.position
    if at < reader.end and reader.buffer[at] == 0:
        reader.position = at + 1
        return
    for tag in reader.tags():
        if tag == 0 and version >= _DIRECTORY_FROM:
            reader.uuid()
        elif tag == 1 and version >= _HIGH_WATERMARK_FROM:
            reader.int64()


def _read_forgotten(reader: Reader, version: int) -> list[ForgottenTopic]:
    forgotten = []
    for _ in range(reader.count(3)):
        topic = reader.topic_id() if version >= TOPIC_IDS_FROM else reader.string()
        forgotten.append(ForgottenTopic(topic, reader.int32_array()))
        reader.end_struct()
    return forgotten


def write_response(
    partitions: Sequence[FetchedPartition],
    version: int,
    correlation_id: int,
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> list[Buffer]:
    """A whole response frame, length and header included, as buffers to be sent one after another."""
    flexible = version >= FLEXIBLE_FROM
    writer = FlexibleWriter() if flexible else Writer()
    writer.put(b"")  # the length's place
    writer.put(INT32.pack(throttle_ms))
    if version >= _SESSIONS_FROM:
        writer.put(_ERROR_AND_SESSION.pack(error_code, session_id))
    topics = [(topic, list(group)) for topic, group in groupby(partitions, key=itemgetter(0))]
    writer.count(len(topics))
    for topic, group in topics:
        write_topic(writer, topic, by_id=version >= TOPIC_IDS_FROM)
        writer.count(len(group))
        for partition in group:
            _write_partition(writer, partition, version)
        writer.end_struct()
    if endpoints and version >= _ENDPOINTS_FROM:
        writer.tags(((0, endpoints_field(endpoints)),))
    else:
        writer.end_struct()
    header = INT32.pack(correlation_id) + (b"\x00" if flexible else b"")
    size = len(header) + sum(map(len, writer.pieces))
    writer.pieces[0] = INT32.pack(size) + header
    return _coalesced(writer.pieces)


def _write_partition(writer: Writer, partition: FetchedPartition, version: int) -> None:
    _, index, error_code, high_watermark, stable, start, records, aborted, replica, *tagged = partition
    if version >= _LOG_START_FROM:
        writer.put(_DATA_5.pack(index, error_code, high_watermark, stable, start))
    else:
        writer.put(_DATA_4.pack(index, error_code, high_watermark, stable))
    writer.count(len(aborted))
    for producer_id, first_offset in aborted:
        writer.put(_ABORTED.pack(producer_id, first_offset))
        writer.end_struct()
    if version >= _RACK_FROM:
        writer.put(INT32.pack(replica))
    writer.byte_string_size(sum(map(len, records)))
    writer.pieces += records
    if tagged == _NO_TAGGED:
        writer.end_struct()
    elif version >= FLEXIBLE_FROM:
        writer.tags(_partition_tags(partition))


_NO_TAGGED = [-1, -1, -1, -1]


def _partition_tags(partition: FetchedPartition) -> list[tuple[int, Writer]]:
    fields: list[tuple[int, Writer]] = []
    if partition.diverging_epoch != -1 or partition.diverging_end_offset != -1:
        diverging = FlexibleWriter()
        diverging.put(_EPOCH_END.pack(partition.diverging_epoch, partition.diverging_end_offset))
        diverging.end_struct()
        fields.append((0, diverging))
    if partition.leader_id != -1 or partition.leader_epoch != -1:
        leader = FlexibleWriter()
        leader.put(_LEADER.pack(partition.leader_id, partition.leader_epoch))
        leader.end_struct()
        fields.append((1, leader))
    return fields


_COALESCE_BELOW = 512  # a separate buffer in a gathering write costs more than copying this much


def _coalesced(pieces: list[Buffer]) -> list[Buffer]:
    """Join runs of small pieces; large ones, which hold stored records, stay what they are."""
    buffers: list[Buffer] = []
    small: list[Buffer] = []
    for piece in pieces:
        if len(piece) < _COALESCE_BELOW:
            small.append(piece)
            continue
        if small:
            buffers.append(b"".join(small))
            small = []
        buffers.append(piece)
    if small:
        buffers.append(b"".join(small))
    return buffers
