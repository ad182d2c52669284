"""The record batch (magic 2): the unit of the log, the same bytes in memory, on disk and on the wire.

    position  field                    under the CRC
           0  base offset      int64   no   assigned by the leader
           8  length           int32   no   bytes after this field
          12  leader epoch     int32   no   assigned by the leader
          16  magic            int8    no
          17  CRC-32C          uint32  -    over everything from position 21
          21  attributes       int16   yes
          23  last delta       int32   yes  last offset minus base offset
          27  base timestamp   int64   yes
          35  max timestamp    int64   yes
          43  producer id      int64   yes
          51  producer epoch   int16   yes
          53  base sequence    int32   yes
          57  record count     int32   yes
          61  records

Nothing in this module looks at a record: a header costs the same for one message and for ten thousand.
"""

import struct
from typing import NamedTuple

from headrace.model.ids import Epoch, Offset

Buffer = bytes | bytearray | memoryview

MAGIC = 2
HEADER_SIZE = 61
LENGTH_PREFIX_SIZE = 12  # base offset and length: what it takes to find the next batch
CRC_POSITION = 17
CRC_START = 21
SEQUENCE_LIMIT = 1 << 31  # sequences are non-negative int32 and wrap to 0

ATTRIBUTE_CODEC = 0x07
ATTRIBUTE_LOG_APPEND_TIME = 0x08
ATTRIBUTE_TRANSACTIONAL = 0x10
ATTRIBUTE_CONTROL = 0x20

NO_TIMESTAMP = -1

_HEADER = struct.Struct(">qiibIhiqqqhii")
_PREFIX = struct.Struct(">qi")
_BASE_OFFSET = struct.Struct(">q")
_EPOCH = struct.Struct(">i")

assert _HEADER.size == HEADER_SIZE


class BatchHeader(NamedTuple):
    """A parsed header. A tuple because it is made once for every batch that passes through."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + LENGTH_PREFIX_SIZE

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record, wrapped as producers wrap it."""
        return (self.base_sequence + self.last_offset_delta) % SEQUENCE_LIMIT

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & ATTRIBUTE_TRANSACTIONAL)

    @property
    def codec(self) -> int:
        return self.attributes & ATTRIBUTE_CODEC

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Parse the header at a position. The caller has made sure that HEADER_SIZE bytes are there."""
    # The tuple's own constructor: that of the named one is a Python function, and this runs for every batch.
    return tuple.__new__(BatchHeader, _HEADER.unpack_from(buffer, position))


def read_prefix(buffer: Buffer, position: int) -> tuple[int, int]:
    """Base offset and whole size of the batch at a position, for walking from batch to batch."""
    base_offset, length = _PREFIX.unpack_from(buffer, position)
    return base_offset, length + LENGTH_PREFIX_SIZE


def assign(buffer: bytearray | memoryview, position: int, base_offset: Offset, epoch: Epoch) -> None:
    """Write what the leader decides into a batch. Neither field is under the CRC, so no byte is summed again."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _EPOCH.pack_into(buffer, position + 12, epoch)
