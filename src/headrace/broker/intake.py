"""Checking what a client wants stored, at the edge and once.

Only headers are looked at, except in topics whose settings concern the records: compacted ones, those that limit the
time of a message, and those that store another codec than their producers send.
"""

import struct

from headrace.log.partition_log import Incoming
from headrace.model.batch import (
    ATTRIBUTE_CODEC,
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    LENGTH_PREFIX_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)
from headrace.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from headrace.model.topic import INT64_MAX, PRODUCER, TimestampType, TopicConfig
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.recompress import recompress
from headrace.wire.kafka.records import decode_batch

_NO_KEY = "the message has no key; a compacted topic takes none without"
_RECORD_ERRORS_MAX = 1000  # named in one answer
_CODEC_MAX = 4  # none, gzip, snappy, lz4, zstd
_RECORD_SIZE_MIN = 7
_LENGTH_MIN = HEADER_SIZE - LENGTH_PREFIX_SIZE  # of a batch without records
_NOT_PLAIN = ATTRIBUTE_CODEC | ATTRIBUTE_LOG_APPEND_TIME | ATTRIBUTE_TRANSACTIONAL | ATTRIBUTE_CONTROL

_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")
_ATTRIBUTES_POSITION = 21
_MAX_TIMESTAMP_POSITION = 35


def check_records(records: memoryview, config: TopicConfig, *, now_ms: int) -> list[Incoming]:
    """Split a record set into whole, sound batches that may be stored in a topic."""
    batches = []
    start = 0
    size = len(records)
    if size == 0:
        raise InvalidRecordError("the request holds no record for this partition; send at least one")
    while start < size:
        if size - start < HEADER_SIZE:
            raise CorruptBatchError(
                f"the record set ends inside a batch header: {size - start} bytes where {HEADER_SIZE} are needed"
            )
        header = read_header(records, start)
        # Nearly all batches are plain, and one look at the fields says so; the checks below say what is wrong.
        _, length, _, magic, crc, attributes, last_delta, _, _, producer_id, _, _, count = header
        end = start + LENGTH_PREFIX_SIZE + length
        if magic != MAGIC or length < _LENGTH_MIN or end > size or end - start > config.message_bytes_max:
            _check_shape(header, size - start, config)
        found = crc32c(records[start + CRC_START : end])
        if found != crc:
            raise CorruptBatchError(f"batch CRC-32C is {found:08x}, its header says {crc:08x}; send it again")
        fits = 0 < count * _RECORD_SIZE_MIN <= length - _LENGTH_MIN
        if not fits or last_delta != count - 1 or attributes & _NOT_PLAIN or producer_id >= 0:
            _check_content(header, config)
        batch = records if end - start == size else records[start:end]
        if not config.is_opaque:
            header, batch = _look_inside(header, batch, config, now_ms)
        if config.timestamp_type is TimestampType.LOG_APPEND_TIME:
            header = _stamp(header, batch, now_ms)
        batches.append(tuple.__new__(Incoming, (header, batch)))
        start = end
    return batches


def _check_shape(header: BatchHeader, size_left: int, config: TopicConfig) -> None:
    """What must hold before the batch's bytes may be looked at."""
    if header.magic != MAGIC:
        if header.magic in (0, 1):
            raise InvalidRecordError(
                f"message format {header.magic} is not stored; configure the producer for Kafka 0.11 or later"
            )
        raise CorruptBatchError(f"batch magic is {header.magic}, expected {MAGIC}")
    if header.length < _LENGTH_MIN or header.size > size_left:
        raise CorruptBatchError(f"batch length is {header.length}, with {size_left - LENGTH_PREFIX_SIZE} bytes there")
    if header.size > config.message_bytes_max:
        raise BatchTooLargeError(
            f"batch has {header.size} bytes, the topic takes {config.message_bytes_max}; "
            "send smaller batches or raise the topic's max.message.bytes"
        )


def _check_content(header: BatchHeader, config: TopicConfig) -> None:
    """What an intact batch may still get wrong."""
    if header.record_count < 1 or header.last_offset_delta != header.record_count - 1:
        raise InvalidRecordError(
            f"batch says {header.record_count} records and a last offset delta of {header.last_offset_delta}"
        )
    if header.codec > _CODEC_MAX:
        raise UnsupportedCodecError(f"compression codec {header.codec} is unknown; use none, gzip, snappy, lz4 or zstd")
    if header.codec == 0 and header.record_count * _RECORD_SIZE_MIN > header.size - HEADER_SIZE:
        raise InvalidRecordError(f"{header.record_count} records cannot be in {header.size - HEADER_SIZE} bytes")
    if header.attributes & ATTRIBUTE_LOG_APPEND_TIME and config.timestamp_type is TimestampType.CREATE_TIME:
        raise InvalidTimestampError("the batch says that a broker gave it its time, and this topic keeps the sender's")
    if header.is_control:
        raise InvalidRecordError("control batches are written by brokers only")
    if header.is_transactional and not header.has_producer:
        raise InvalidRecordError("a transactional batch has a producer id; this one has none")
    if header.has_producer and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecordError(
            f"producer {header.producer_id} sent epoch {header.producer_epoch}, sequence {header.base_sequence}"
        )


def _look_inside(header: BatchHeader, batch: memoryview, config: TopicConfig, now_ms: int) -> Incoming:
    """Check the records of a batch as the topic's settings ask, and give them the topic's codec."""
    if config.is_compacted:
        _check_keys(batch)
    if config.timestamp_type is TimestampType.CREATE_TIME:
        _check_times(header, batch, config, now_ms)
    stored = with_codec(Incoming(header, batch), config)
    if len(stored.data) > config.message_bytes_max:
        raise BatchTooLargeError(
            f"batch has {len(stored.data)} bytes with compression.type={config.compression_type}, the topic takes "
            f"{config.message_bytes_max}; send smaller batches or raise the topic's max.message.bytes"
        )
    return stored


def _check_times(header: BatchHeader, batch: memoryview, config: TopicConfig, now_ms: int) -> None:
    """Refuse a message that claims to be older or newer than the topic allows. -1 claims nothing."""
    oldest_ms, newest_ms = now_ms - config.timestamp_before_ms_max, now_ms + config.timestamp_after_ms_max
    is_ahead = header.max_timestamp_ms > newest_ms
    if not is_ahead and config.timestamp_before_ms_max == INT64_MAX:
        return
    outside = [
        (number, _outside(record.timestamp_ms - now_ms, config))
        for number, record in enumerate(decode_batch(batch))
        if record.timestamp_ms != NO_TIMESTAMP and not oldest_ms <= record.timestamp_ms <= newest_ms
    ]
    if is_ahead or outside:
        why = _outside(header.max_timestamp_ms - now_ms, config) if is_ahead else outside[0][1]
        raise InvalidTimestampError(why, records=outside[:_RECORD_ERRORS_MAX])


def _outside(ahead_ms: int, config: TopicConfig) -> str:
    if ahead_ms > 0:
        side, setting, limit_ms = "ahead of", "after", config.timestamp_after_ms_max
    else:
        side, setting, limit_ms = "behind", "before", config.timestamp_before_ms_max
    return (
        f"a message's time is {abs(ahead_ms)} ms {side} this node's clock; the topic's "
        f"message.timestamp.{setting}.max.ms allows {limit_ms}"
    )


def with_codec(incoming: Incoming, config: TopicConfig) -> Incoming:
    """The batch in the codec that the topic stores, as a copy unless it comes in that one."""
    if config.compression_type == PRODUCER:
        return incoming
    header, batch = incoming
    codec, level = _stored_codec(config)
    if header.codec == codec:
        return incoming
    made = recompress(header, batch, codec, level)
    return Incoming(read_header(made), memoryview(made))


def _stored_codec(config: TopicConfig) -> tuple[Codec, int]:
    match config.compression_type:
        case "gzip":
            return Codec.GZIP, config.gzip_level
        case "lz4":
            return Codec.LZ4, config.lz4_level
        case "zstd":
            return Codec.ZSTD, config.zstd_level
        case "snappy":
            return Codec.SNAPPY, 0
        case _:
            return Codec.NONE, 0


def _check_keys(batch: memoryview) -> None:
    """In a compacted topic a message without a key is nobody's last, so it would be dropped at once."""
    keyless = [number for number, record in enumerate(decode_batch(batch)) if record.key is None]
    if keyless:
        raise InvalidRecordError(
            f"message {keyless[0]} of the batch has no key; a compacted topic takes none without, "
            "and a batch is stored whole or not at all",
            records=[(number, _NO_KEY) for number in keyless[:_RECORD_ERRORS_MAX]],
        )


def _stamp(header: BatchHeader, batch: memoryview, now_ms: int) -> BatchHeader:
    """Give a batch the time of its arrival. Both fields are under the CRC, which is made anew."""
    attributes = header.attributes | ATTRIBUTE_LOG_APPEND_TIME
    _ATTRIBUTES.pack_into(batch, _ATTRIBUTES_POSITION, attributes)
    _MAX_TIMESTAMP.pack_into(batch, _MAX_TIMESTAMP_POSITION, now_ms)
    crc = crc32c(batch[CRC_START:])
    _CRC.pack_into(batch, CRC_POSITION, crc)
    return header._replace(attributes=attributes, max_timestamp_ms=now_ms, crc=crc)
