"""Batch builders and readers of other clients."""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from aiokafka.record import default_records as aiokafka_records

from headrace.wire.kafka.compression import Codec

with warnings.catch_warnings():
    # kafka-python reads its own tables through a function that Python 3.11 deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as kafka_python_codec
    from kafka.record import default_records as kafka_python_records


class Foreign(NamedTuple):
    name: str
    builder: Callable[..., Any]
    reader: Callable[[bytes], Any]
    codecs: tuple[Codec, ...]


def _kafka_python_codecs() -> tuple[Codec, ...]:
    """Those whose library is installed: kafka-python brings gzip alone."""
    found = {
        Codec.NONE: True,
        Codec.GZIP: True,
        Codec.SNAPPY: kafka_python_codec.has_snappy(),
        Codec.LZ4: kafka_python_codec.has_lz4(),
        Codec.ZSTD: kafka_python_codec.has_zstd(),
    }
    return tuple(codec for codec, available in found.items() if available)


FOREIGN = [
    Foreign(
        "aiokafka",
        aiokafka_records.DefaultRecordBatchBuilder,
        aiokafka_records.DefaultRecordBatch,
        tuple(Codec),
    ),
    Foreign(
        "kafka-python",
        kafka_python_records.DefaultRecordBatchBuilder,
        kafka_python_records.DefaultRecordBatch,
        _kafka_python_codecs(),
    ),
]
EVERY_FOREIGN_CODEC = [(foreign, codec) for foreign in FOREIGN for codec in foreign.codecs]
