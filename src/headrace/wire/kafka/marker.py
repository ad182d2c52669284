"""The record that ends a transaction in a partition: a control batch of the producer, transactional, of one record.

key     version int16, type int16: 0 abort, 1 commit
value   version int16, the coordinator's epoch int32
"""

import struct
from typing import NamedTuple

from headrace.model.batch import ATTRIBUTE_CONTROL, ATTRIBUTE_TRANSACTIONAL, BatchHeader, Buffer
from headrace.model.errors import CorruptBatchError
from headrace.wire.kafka.records import control_kind, decode_batch, encode_control_batch

ABORT_KIND = 0
COMMIT_KIND = 1

MARKER_ATTRIBUTES = ATTRIBUTE_CONTROL | ATTRIBUTE_TRANSACTIONAL
_VALUE = struct.Struct(">hi")


class Marker(NamedTuple):
    """How a transaction ended, and which coordinator said so."""

    is_commit: bool
    coordinator_epoch: int


def is_marker(header: BatchHeader) -> bool:
    return header.attributes & MARKER_ATTRIBUTES == MARKER_ATTRIBUTES


def encode_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytearray:
    return encode_control_batch(
        COMMIT_KIND if marker.is_commit else ABORT_KIND,
        _VALUE.pack(0, marker.coordinator_epoch),
        timestamp_ms=timestamp_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
    )


def decode_marker(batch: Buffer) -> Marker:
    record = decode_batch(batch)[0]
    kind = control_kind(record)
    try:
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise CorruptBatchError(f"the marker at offset {record.offset} cannot be read: {error}") from error
    if kind not in (ABORT_KIND, COMMIT_KIND):
        raise CorruptBatchError(f"the marker at offset {record.offset} is of type {kind}; only 0 and 1 are known")
    return Marker(kind == COMMIT_KIND, coordinator_epoch)
