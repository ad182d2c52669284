"""Produce (key 0) by hand: it runs for every batch that a client sends.

A request becomes a flat list of record sets, each a view into the frame: no byte of a record is copied or looked at
here, and when the frame is a bytearray the leader writes its offsets straight into it. The answer is written from a
flat list in the same order. Everything else about the API (all fields, both directions) is in `messages/produce.py`,
and tests hold the two against each other in every version.

Versions: 3 to 13; the encoding is flexible from 9, and from 13 a topic is named by its uuid.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from headrace.model.batch import Buffer
from headrace.wire.kafka.primitives import INT32, FlexibleReader, FlexibleWriter, MalformedError, Reader, Writer

FLEXIBLE_FROM = 9
TOPIC_IDS_FROM = 13
_LOG_START_FROM = 5
_ERROR_MESSAGE_FROM = 8
_LEADER_FROM = 10

_ACKS_AND_TIMEOUT = Struct(">hi")
_INDEX_AND_SIZE = Struct(">ii")
_RESULT = Struct(">ihqq")
_RESULT_AND_START = Struct(">ihqqq")
_LEADER = Struct(">ii")

# Names up to here have a length of one byte in the flexible encoding.
_SHORT_NAME_MAX = 126
# A single answer, for each length of the name: length, correlation id, tags, topic count, name with its length;
# partition count, the result, no errors of records, no message, tags of partition and topic, throttle time, tags.
# What is always 0 (tags, error code, message) is padding.
_SINGLES = [Struct(f">iixBB{size}sBixxqqqBxxxix") for size in range(_SHORT_NAME_MAX + 1)]


class RecordSet(NamedTuple):
    topic: str | UUID  # the name up to version 12, the id from 13
    partition: int
    records: memoryview  # one or more batches; empty when the client sent null


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    record_sets: list[RecordSet]


class SingleRequest(NamedTuple):
    """A request of one record set for one partition, without a transactional id."""

    acks: int
    timeout_ms: int
    topic: str
    partition: int
    records: memoryview


class ProduceResult(NamedTuple):
    """The answer for one partition."""

    topic: str | UUID
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    leader_id: int = -1  # with a wrong-leader error, who leads instead (10+)
    leader_epoch: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()  # places in the batch, and what is wrong there (8+)


class Endpoint(NamedTuple):
    """Where a leader named in the answer is reached."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def read_request(frame: Buffer, position: int, version: int) -> ProduceRequest:
    """Parse the body that begins at a position of the frame."""
    if FLEXIBLE_FROM <= version < TOPIC_IDS_FROM:
        single = read_single(frame, position)
        if single is not None:
            acks, timeout_ms, topic, partition, records = single
            return ProduceRequest(None, acks, timeout_ms, [RecordSet(topic, partition, records)])
    reader = FlexibleReader(frame, position) if version >= FLEXIBLE_FROM else Reader(frame, position)
    transactional_id = reader.nullable_string()
    acks, timeout_ms = reader.fixed(_ACKS_AND_TIMEOUT)
    record_sets: list[RecordSet] = []
    if version >= FLEXIBLE_FROM:
        _read_flexible(reader, memoryview(frame), version, record_sets)
    else:
        _read_classic(reader, memoryview(frame), record_sets)
    reader.end_message()
    return ProduceRequest(transactional_id, acks, timeout_ms, record_sets)


def read_single(frame: Buffer, position: int) -> SingleRequest | None:
    """What librdkafka sends for each batch, in the versions with flexible encoding and topic names.

    None for anything else, and for anything odd: the general way will parse it, or say what is wrong with it.
    """
    size = len(frame)
    if size < position + 15 or frame[position] != 0 or frame[position + 7] != 2:
        return None
    acks, timeout_ms = _ACKS_AND_TIMEOUT.unpack_from(frame, position + 1)
    name_size = frame[position + 8] - 1
    name_at = position + 9
    at = name_at + name_size
    if not 0 < name_size <= _SHORT_NAME_MAX or size < at + 9 or frame[at] != 2:
        return None
    (index,) = INT32.unpack_from(frame, at + 1)
    at += 5
    records_size, shift = 0, 0
    while True:
        byte = frame[at]
        at += 1
        records_size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28 or at >= size:
            return None
    end = at + records_size - 1
    if records_size < 1 or end + 3 != size or frame[end : end + 3] != b"\x00\x00\x00":
        return None
    try:
        topic = str(frame[name_at : name_at + name_size], "utf-8")
    except UnicodeDecodeError:
        return None
    # The tuple's own constructor: that of the named one is a Python function and takes twice the time.
    return tuple.__new__(SingleRequest, (acks, timeout_ms, topic, index, memoryview(frame)[at:end]))


def _read_classic(reader: Reader, view: memoryview, record_sets: list[RecordSet]) -> None:
    for _ in range(reader.count(6)):
        topic = reader.string()
        for _ in range(reader.count(8)):
            index, size = reader.fixed(_INDEX_AND_SIZE)
            record_sets.append(RecordSet(topic, index, _take(reader, view, size)))


def _read_flexible(reader: Reader, view: memoryview, version: int, record_sets: list[RecordSet]) -> None:
    for _ in range(reader.count(3)):
        topic = reader.topic_id() if version >= TOPIC_IDS_FROM else reader.string()
        for _ in range(reader.count(6)):
            (index,) = reader.fixed(INT32)
            size = reader.uvarint() - 1
            record_sets.append(RecordSet(topic, index, _take(reader, view, size)))
            reader.end_struct()
        reader.end_struct()
    reader.end_struct()


def _take(reader: Reader, view: memoryview, size: int) -> memoryview:
    at = reader.position
    if size == -1:
        return view[:0]
    if size < 0 or size > reader.end - at:
        raise MalformedError(f"a record set of {size} bytes at byte {at}, where {reader.end - at} remain")
    reader.position = at + size
    return view[at : at + size]


def write_response(
    results: Sequence[ProduceResult],
    version: int,
    correlation_id: int,
    *,
    throttle_ms: int = 0,
    endpoints: Sequence[Endpoint] = (),
) -> bytes:
    """A whole response frame, length and header included.

    Neighbouring results of one topic are answered under one topic, as they were asked.
    """
    if len(results) == 1 and FLEXIBLE_FROM <= version < TOPIC_IDS_FROM and not endpoints:
        topic, index, error_code, base_offset, append_time_ms, start, message, leader_id, leader_epoch, why = results[0]
        is_plain = not error_code and message is None and not why and (leader_id, leader_epoch) == (-1, -1)
        if is_plain and isinstance(topic, str) and len(topic.encode()) <= _SHORT_NAME_MAX:
            return write_single(topic, index, base_offset, append_time_ms, start, correlation_id, throttle_ms)
    flexible = version >= FLEXIBLE_FROM
    writer = FlexibleWriter() if flexible else Writer()
    writer.put(b"")  # the length's place
    topics = [(topic, list(group)) for topic, group in groupby(results, key=itemgetter(0))]
    writer.count(len(topics))
    for topic, group in topics:
        write_topic(writer, topic, by_id=version >= TOPIC_IDS_FROM)
        writer.count(len(group))
        for result in group:
            _write_result(writer, result, version)
        writer.end_struct()
    writer.put(INT32.pack(throttle_ms))
    if endpoints and version >= _LEADER_FROM:
        writer.tags(((0, endpoints_field(endpoints)),))
    else:
        writer.end_struct()
    header = INT32.pack(correlation_id) + (b"\x00" if flexible else b"")
    writer.pieces[0] = INT32.pack(len(header) + sum(map(len, writer.pieces))) + header
    return writer.getvalue()


def write_single(
    topic: str,
    partition: int,
    base_offset: int,
    time_ms: int,
    start: int,
    correlation_id: int,
    throttle_ms: int = 0,
) -> bytes:
    """The whole answer to a `SingleRequest` whose batch was stored."""
    name = topic.encode()
    size = len(name)
    layout = _SINGLES[size]
    return layout.pack(
        layout.size - 4, correlation_id, 2, size + 1, name, 2, partition, base_offset, time_ms, start, 1, throttle_ms
    )


def write_topic(writer: Writer, topic: str | UUID, *, by_id: bool) -> None:
    """A topic's name or id, as the version has it. The caller answers with what it was asked with."""
    if isinstance(topic, UUID):
        assert by_id, "this version names topics by their names"
        writer.put(topic.bytes)
    else:
        assert not by_id, "this version names topics by their ids"
        writer.string(topic)


def _write_result(writer: Writer, result: ProduceResult, version: int) -> None:
    _, index, error_code, base_offset, append_time_ms, start, message, leader_id, leader_epoch, errors = result
    if version >= _LOG_START_FROM:
        writer.put(_RESULT_AND_START.pack(index, error_code, base_offset, append_time_ms, start))
    else:
        writer.put(_RESULT.pack(index, error_code, base_offset, append_time_ms))
    if version >= _ERROR_MESSAGE_FROM:
        writer.count(len(errors))
        for at, what in errors:
            writer.put(INT32.pack(at))
            writer.nullable_string(what)
            writer.end_struct()
        writer.nullable_string(message)
    if version >= _LEADER_FROM and (leader_id, leader_epoch) != (-1, -1):
        field = FlexibleWriter()
        field.put(_LEADER.pack(leader_id, leader_epoch))
        field.end_struct()
        writer.tags(((0, field),))
    else:
        writer.end_struct()


def endpoints_field(endpoints: Sequence[Endpoint]) -> Writer:
    """The value of the tagged field that says where leaders are reached, the same in Produce and Fetch."""
    field = FlexibleWriter()
    field.count(len(endpoints))
    for node_id, host, port, rack in endpoints:
        field.put(INT32.pack(node_id))
        field.string(host)
        field.put(INT32.pack(port))
        field.nullable_string(rack)
        field.end_struct()
    return field
