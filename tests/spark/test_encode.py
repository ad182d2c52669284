"""Arrow columns to record batches: every reader of records finds the rows that were given."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.spark.record_rows import records_of

from headrace.model.batch import HEADER_SIZE, read_header
from headrace.model.errors import InvalidRecordError, UnsupportedCodecError
from headrace.spark.arrow.decode import decode_batches
from headrace.spark.arrow.encode import CODECS, encode_batches
from headrace.spark.arrow.schema import FULL_SCHEMA, arrow_schema
from headrace.wire.kafka.records import Record, decode_batch
from headrace.wire.kafka.stamp import stamp

ALL_COLUMNS = arrow_schema(FULL_SCHEMA)
HEADERS = ALL_COLUMNS.field("headers").type

blobs = st.none() | st.binary(max_size=80) | st.sampled_from([b"", b"x" * 300, b"y" * 9000])
some_headers = st.none() | st.lists(st.fixed_dictionaries({"key": st.text(max_size=10), "value": blobs}), max_size=3)
some_rows = st.lists(st.tuples(blobs, blobs, some_headers, st.integers(0, 2**45)), min_size=1, max_size=60)
every_codec = pytest.mark.parametrize("codec", sorted(CODECS))
property_test = settings(max_examples=25, deadline=None, database=None)


def found_in(batches: list[bytearray]) -> list[Record]:
    """What the wire's own reader finds, offsets counted through."""
    records: list[Record] = []
    for batch in batches:
        stamp(batch)
        base = len(records)
        records += [record._replace(offset=base + record.offset) for record in decode_batch(batch)]
    return records


@every_codec
@property_test
@given(rows=some_rows, batch_bytes_max=st.integers(100, 20_000), sliced=st.integers(0, 3))
def test_the_wire_reader_and_the_decoder_find_the_rows(
    codec: str,
    rows: list[tuple[bytes | None, bytes | None, list[dict[str, Any]] | None, int]],
    batch_bytes_max: int,
    sliced: int,
) -> None:
    keys, values, headers, times = (list(column) for column in zip(*rows, strict=True))
    # Arrays that do not begin at their buffers' beginning, as Spark may give them.
    key, value = (pa.array([b"no"] * sliced + column, pa.binary())[sliced:] for column in (keys, values))
    header = pa.array([[{"key": "no", "value": b"no"}]] * sliced + headers, HEADERS)[sliced:]
    time = pa.array([1] * sliced + times, pa.int64())[sliced:]
    batches = encode_batches(key, value, header, time, codec=codec, batch_bytes_max=batch_bytes_max)
    expected = [
        Record(time, key, value, tuple((h["key"], h["value"]) for h in headers or ()), offset)
        for offset, (key, value, headers, time) in enumerate(rows)
    ]
    assert found_in(batches) == expected
    decoded, base = [], 0
    for batch in batches:
        batch[:8] = base.to_bytes(8, "big")
        found, base = decode_batches(batch, topic="t", partition=0, start=base, end=1 << 60, columns=ALL_COLUMNS)
        decoded += records_of(found)
    assert decoded == expected


@property_test
@given(
    values=st.lists(st.text(max_size=40), min_size=1, max_size=200),
    batch_bytes_max=st.integers(HEADER_SIZE + 200, 2_000),
)
def test_batches_keep_to_the_limit(values: list[str], batch_bytes_max: int) -> None:
    value = pa.array(values, pa.string())
    batches = encode_batches(None, value, None, 1_000, codec="none", batch_bytes_max=batch_bytes_max)
    assert max(map(len, batches)) <= batch_bytes_max
    assert [record.value for record in found_in(batches)] == [value.encode() for value in values]
    assert {record.timestamp_ms for record in found_in(batches)} == {1_000}


def test_a_row_above_the_limit_is_a_batch_by_itself() -> None:
    value = pa.array([b"a", bytes(5_000), b"b"], pa.binary())
    batches = encode_batches(None, value, None, 0, codec="none", batch_bytes_max=500)
    assert [read_header(batch).record_count for batch in batches] == [1, 1, 1]
    assert [record.value for record in found_in(batches)] == value.to_pylist()


def test_more_rows_than_are_encoded_together_are_all_there() -> None:
    value = pa.array([bytes([n % 256]) * 1_000_000 for n in range(80)], pa.binary())
    batches = encode_batches(None, value, None, 0, codec="none", batch_bytes_max=3_000_000)
    assert [record.value for record in found_in(batches)] == value.to_pylist()


def test_a_batch_says_its_first_and_its_latest_time() -> None:
    value = pa.array([b"a", b"b", b"c"], pa.binary())
    times = pa.array([500, 900, 100], pa.int64())
    (batch,) = encode_batches(None, value, None, times, codec="none", batch_bytes_max=1_000)
    header = read_header(batch)
    assert (header.base_timestamp_ms, header.max_timestamp_ms) == (500, 900)
    assert [record.timestamp_ms for record in found_in([batch])] == [500, 900, 100]


def test_a_stamp_says_whose_batch_it_is() -> None:
    (batch,) = encode_batches(None, pa.array([b"a", b"b"]), None, 0, codec="lz4", batch_bytes_max=1_000)
    stamp(batch, producer_id=7, epoch=2, base_sequence=40, is_transactional=True)
    header = read_header(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 40)
    assert header.is_transactional
    assert [record.value for record in decode_batch(batch)] == [b"a", b"b"]
    stamp(batch)
    assert not read_header(batch).has_producer
    assert not read_header(batch).is_transactional
    assert [record.value for record in decode_batch(batch)] == [b"a", b"b"]


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("zstd", 1, 22), ("lz4", 1, 12)])
def test_a_level_is_obeyed_and_read_as_any_other(codec: str, low: int, high: int) -> None:
    words = [f"{number % 7} {number * 31 % 101} {number % 13}".encode() for number in range(2_000)]

    def encoded(level: int | None) -> bytearray:
        (batch,) = encode_batches(None, pa.array(words), None, 0, codec=codec, level=level, batch_bytes_max=1_000_000)
        return batch

    assert len(encoded(high)) < len(encoded(low))
    for level in (None, low, high):
        assert [record.value for record in found_in([encoded(level)])] == words


@every_codec
def test_a_large_row_that_compresses_to_nothing_is_read_again(codec: str) -> None:
    (batch,) = encode_batches(None, pa.array([bytes(9 << 20)]), None, 1, codec=codec, batch_bytes_max=1 << 20)
    assert [record.value for record in found_in([batch])] == [bytes(9 << 20)]


def test_no_rows_make_no_batch() -> None:
    assert encode_batches(None, pa.array([], pa.binary()), None, 0, codec="none", batch_bytes_max=1_000) == []


def test_a_codec_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedCodecError, match="'brotli' does not exist; use none, gzip"):
        encode_batches(None, pa.array([b"a"]), None, 0, codec="brotli", batch_bytes_max=1_000)


@pytest.mark.parametrize("headers", [[[None]], [[{"key": None, "value": b"x"}]]])
def test_a_header_without_a_name_is_refused(headers: list[object]) -> None:
    with pytest.raises(InvalidRecordError, match="a header without a name"):
        encode_batches(None, pa.array([b"a"]), pa.array(headers, HEADERS), 0, codec="none", batch_bytes_max=1_000)
