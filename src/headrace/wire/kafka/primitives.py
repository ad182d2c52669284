"""The Kafka protocol's primitive types: what the code of messages is written with.

The protocol has two encodings. The classic one counts with fixed-width integers, the flexible one (KIP-482) with
varints of "count plus one" and ends every struct with tagged fields. A message version uses one of them throughout, so
the choice is made once, by taking `Reader` or `FlexibleReader` (`Writer` or `FlexibleWriter`), and the code of the
messages says `string()` and `end_struct()` without asking which.
"""

from headrace.wire.kafka.reader import INT16, INT32, ZERO_UUID, FlexibleReader, MalformedError, Reader
from headrace.wire.kafka.writer import FlexibleWriter, Writer, required, unwritable

__all__ = [
    "INT16",
    "INT32",
    "ZERO_UUID",
    "FlexibleReader",
    "FlexibleWriter",
    "MalformedError",
    "Reader",
    "Writer",
    "required",
    "unwritable",
]
