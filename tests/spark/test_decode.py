"""Record batches to Arrow columns: the rows that the wire's own reader finds, and nothing believed that is damaged."""

import os
import struct
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.spark.record_rows import records_of

from headrace.model.batch import ATTRIBUTE_LOG_APPEND_TIME, CRC_POSITION, CRC_START, HEADER_SIZE, read_header
from headrace.model.errors import CorruptBatchError
from headrace.spark.arrow.decode import COLUMNS_BYTES_MAX, decode_batches
from headrace.spark.arrow.schema import BASE_SCHEMA, FULL_SCHEMA, arrow_schema
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.marker import Marker, encode_marker
from headrace.wire.kafka.records import Record, decode_batch, encode_batch, encode_control_batch

ALL_COLUMNS = arrow_schema(FULL_SCHEMA)
END = 1 << 62

blobs = st.none() | st.binary(max_size=80) | st.sampled_from([b"x" * 300, b"y" * 9000])
some_records = st.lists(
    st.builds(
        Record,
        timestamp_ms=st.integers(0, 2**45),
        key=blobs,
        value=blobs,
        headers=st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=20,
)
some_batches = st.lists(st.tuples(some_records, st.sampled_from(list(Codec))), min_size=1, max_size=6)
property_test = settings(max_examples=60, deadline=None, database=None)


def decoded(
    data: bytes | bytearray | memoryview,
    *,
    start: int = 0,
    end: int = END,
    columns: pa.Schema = ALL_COLUMNS,
    aborted: Sequence[tuple[int, int]] = (),
) -> tuple[list[pa.RecordBatch], int]:
    return decode_batches(data, topic="orders", partition=3, start=start, end=end, columns=columns, aborted=aborted)


def resummed(batch: bytearray) -> bytearray:
    """A batch whose CRC agrees with whatever was done to it."""
    batch[CRC_POSITION:CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return batch


def joined(batches: Sequence[tuple[list[Record], Codec]]) -> tuple[bytearray, list[Record]]:
    """Batches one after another, and what the wire's reader finds in them."""
    data = bytearray()
    records: list[Record] = []
    for some, codec in batches:
        batch = encode_batch(some, codec=codec, base_offset=len(records))
        data += batch
        records += decode_batch(batch)
    return data, records


@property_test
@given(batches=some_batches, bounds=st.tuples(st.integers(0, 130), st.integers(0, 130)))
def test_rows_are_those_that_the_wire_reader_finds_between_two_offsets(
    batches: list[tuple[list[Record], Codec]], bounds: tuple[int, int]
) -> None:
    data, records = joined(batches)
    start, end = sorted(bounds)
    found, next_offset = decoded(data, start=start, end=end)
    assert records_of(found) == [record for record in records if start <= record.offset < end]
    assert next_offset == max(start, len(records))
    for batch in found:
        batch.validate(full=True)
        assert batch.schema.equals(ALL_COLUMNS)


@property_test
@given(batches=some_batches)
def test_a_view_into_a_frame_is_decoded_as_its_own_bytes_are(batches: list[tuple[list[Record], Codec]]) -> None:
    data, records = joined(batches)
    frame = bytearray(b"before") + data + b"after"
    assert records_of(decoded(memoryview(frame)[6:-5])[0]) == records
    assert records_of(decoded(memoryview(bytes(data)))[0]) == records


@property_test
@given(batches=some_batches)
def test_columns_do_not_look_at_the_bytes_that_they_came_from(batches: list[tuple[list[Record], Codec]]) -> None:
    data, records = joined(batches)
    found, _ = decoded(data)
    data[:] = bytes(len(data))  # the memory is used for the next answer
    assert records_of(found) == records


@property_test
@given(batches=some_batches, names=st.permutations(ALL_COLUMNS.names), count=st.integers(1, 8))
def test_columns_are_those_that_were_asked_for_in_their_order(
    batches: list[tuple[list[Record], Codec]], names: list[str], count: int
) -> None:
    data, _ = joined(batches)
    asked = pa.schema([ALL_COLUMNS.field(name) for name in names[:count]])
    pruned = pa.Table.from_batches(decoded(data, columns=asked)[0], asked)
    assert pruned.equals(pa.Table.from_batches(decoded(data)[0], ALL_COLUMNS).select(names[:count]))


def wire_records(batch: bytes | bytearray) -> list[Record] | None:
    """None for the one thing that the wire refuses and the source tells as far as it goes: a name that is no text."""
    try:
        return decode_batch(batch)
    except CorruptBatchError as error:
        if "a header's name that is not UTF-8" not in str(error):
            raise
        return None


@property_test
@given(
    records=some_records,
    codec=st.sampled_from(list(Codec)),
    damage=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4),
)
def test_whatever_a_producer_sent_is_read_as_the_wire_reads_it_or_refused(
    records: list[Record], codec: Codec, damage: list[tuple[int, int]]
) -> None:
    batch = encode_batch(records, codec=codec)
    for place, byte in damage:
        batch[HEADER_SIZE + place % (len(batch) - HEADER_SIZE)] = byte
    resummed(batch)
    try:
        found = records_of(decoded(batch)[0])
    except CorruptBatchError:
        return
    wired = wire_records(batch)
    if wired is None:
        assert any("\ufffd" in name for record in found for name, _ in record.headers)
        return
    assume(all(abs(record.timestamp_ms) < 2**50 for record in wired))
    assert found == wired


def test_records_of_one_size_and_of_many_sizes_are_found_alike() -> None:
    same = [Record(1000 + n, b"key", b"%010d" % n) for n in range(9000)]
    other = [Record(1000 + n, b"key", bytes(n % 97)) for n in range(3000)]
    large = [Record(1000, None, bytes(size)) for size in (10, 20_000, 30, 3_000_000, 10, 10)]
    last_differs = [*(Record(1000, None, bytes(50)) for _ in range(60)), Record(1000, None, bytes(51))]
    for records in (same, other, large, last_differs, same + other + large):
        batch = encode_batch(records)
        assert records_of(decoded(batch)[0]) == decode_batch(batch)


def test_many_small_batches_make_few_record_batches() -> None:
    data, records = joined([([Record(n, None, b"x" * 1000)], Codec.NONE) for n in range(3000)])
    found, next_offset = decoded(data)
    assert len(found) == 1
    assert records_of(found) == records
    assert next_offset == 3000


def test_a_batch_that_unpacks_to_much_is_given_in_several_parts() -> None:
    records = [Record(n, None, os.urandom(4096) * 256) for n in range(40)]
    found, _ = decoded(encode_batch(records, codec=Codec.ZSTD))
    assert len(found) >= 3
    assert max(batch.nbytes for batch in found) < COLUMNS_BYTES_MAX + (2 << 20)
    assert sum(batch.num_rows for batch in found) == 40


def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch() -> None:
    data, records = joined([([Record(1, b"k", b"v")] * 3, Codec.NONE)] * 2)
    found, next_offset = decoded(data[:-1])
    assert records_of(found) == records[:3]
    assert next_offset == 3
    assert decoded(data[: HEADER_SIZE - 1], start=7) == ([], 7)


def test_control_batches_have_no_rows_and_are_gone_past() -> None:
    data = encode_batch([Record(1, None, b"one")])
    data += encode_control_batch(7, b"a lease", timestamp_ms=5, base_offset=1)
    found, next_offset = decoded(data)
    assert [record.value for record in records_of(found)] == [b"one"]
    assert next_offset == 2
    assert decoded(data, start=1) == ([], 2)


def test_what_an_aborted_transaction_sent_is_left_out() -> None:
    def sent(text: bytes, offset: int, producer: int, *, transactional: bool = True) -> bytearray:
        return encode_batch(
            [Record(1, None, text)],
            base_offset=offset,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=transactional,
        )

    def ended(offset: int, producer: int, *, commit: bool) -> bytearray:
        marker = encode_marker(Marker(commit, 0), producer_id=producer, producer_epoch=0, timestamp_ms=1)
        struct.pack_into(">q", marker, 0, offset)
        return marker

    data = sent(b"a aborted", 0, 1) + sent(b"b", 1, 2) + sent(b"plain", 2, 1, transactional=False)
    data += sent(b"a aborted too", 3, 1) + ended(4, 1, commit=False) + sent(b"a again", 5, 1)
    data += ended(6, 2, commit=True) + ended(7, 1, commit=True) + sent(b"b aborted", 8, 2) + ended(9, 2, commit=False)
    found, next_offset = decoded(data, aborted=[(2, 8), (1, 0)])
    assert [record.value for record in records_of(found)] == [b"b", b"plain", b"a again"]
    assert next_offset == 10
    assert len(records_of(decoded(data)[0])) == 6  # read_uncommitted


def test_a_log_append_time_is_the_time_of_all_records_of_a_batch() -> None:
    batch = encode_batch([Record(1000, None, b"a"), Record(2000, None, b"b")])
    struct.pack_into(">h", batch, 21, ATTRIBUTE_LOG_APPEND_TIME)
    struct.pack_into(">q", batch, 35, 5_000)
    data = resummed(batch) + encode_batch([Record(3000, None, b"c")], base_offset=2)
    table = pa.Table.from_batches(decoded(data)[0])
    assert table["timestampType"].to_pylist() == [1, 1, 0]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [5_000_000, 5_000_000, 3_000_000]


def test_a_time_beyond_what_spark_knows_becomes_the_last_that_it_knows() -> None:
    table = pa.Table.from_batches(decoded(encode_batch([Record((1 << 62), None, b"a")]))[0])
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [(2**63 // 1000 - 1) * 1000]


def test_compacted_batches_keep_the_offsets_that_are_left() -> None:
    batch = encode_batch([Record(1, None, b"a"), Record(1, None, b"b")], base_offset=10)
    start = HEADER_SIZE + (len(batch) - HEADER_SIZE) // 2
    assert batch[start + 3] == 2  # the second record's delta, in zigzag form
    batch[start + 3] = 9 << 1
    struct.pack_into(">i", batch, 23, 15)
    found, next_offset = decoded(resummed(batch), start=11)
    assert [record.offset for record in records_of(found)] == [19]
    assert next_offset == 26
    emptied = batch[:HEADER_SIZE]
    struct.pack_into(">i", emptied, 8, HEADER_SIZE - 12)
    struct.pack_into(">i", emptied, 57, 0)
    assert decoded(resummed(emptied)) == ([], 26)


def test_a_record_may_have_more_headers_than_are_read_together() -> None:
    headers = tuple((f"name-{n}", None if n % 3 else b"%d" % n) for n in range(1000))
    batch = encode_batch([Record(1, None, b"few", (("a", b"b"),)), Record(1, b"k", b"many", headers)])
    assert records_of(decoded(batch)[0]) == decode_batch(batch)


def test_damage_is_told_with_the_partition_and_the_offset() -> None:
    data, _ = joined([([Record(1, b"k", b"v")] * 10, Codec.NONE)] * 10)
    data[-1] ^= 1
    with pytest.raises(CorruptBatchError, match=r"orders-3 sent a damaged batch at offset 90: .*CRC"):
        decoded(data)
    data[-1] ^= 1
    # A record that says it is longer than it is, in a batch with the right CRC.
    batch_size = read_header(data).size
    fifth = bytearray(data[5 * batch_size : 6 * batch_size])
    fifth[HEADER_SIZE] += 2
    data[5 * batch_size : 6 * batch_size] = resummed(fifth)
    with pytest.raises(CorruptBatchError, match="orders-3 sent a damaged batch at offset 50: "):
        decoded(data)


def test_a_name_that_is_not_text_is_told_as_far_as_it_is() -> None:
    batch = encode_batch([Record(1, None, b"v", (("abc", b"x"), ("\u00e9", None)))])
    place = batch.index(b"abc")
    batch[place] = 0xFF
    (rows,) = decoded(resummed(batch))[0]
    assert rows["headers"].to_pylist() == [[{"key": "\ufffdbc", "value": b"x"}, {"key": "\u00e9", "value": None}]]


def test_a_column_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="no column is named colour"):
        decoded(b"", columns=pa.schema([("colour", pa.string())]))


def test_headers_are_not_among_the_columns_unless_asked_for() -> None:
    assert BASE_SCHEMA.fieldNames() == FULL_SCHEMA.fieldNames()[:-1]
