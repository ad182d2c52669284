"""The fast way of building and reading batches agrees with the plain one, and believes no more than that does."""

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.batch import (
    ATTRIBUTE_LOG_APPEND_TIME,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    BatchHeader,
    assign,
    read_header,
)
from headrace.model.errors import CorruptBatchError, InvalidRequestError, UnsupportedCodecError
from headrace.model.ids import Epoch, Offset
from headrace.wire.crc import crc32c
from headrace.wire.kafka import fast_records
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.fast_records import NewRecord, build_batch, read_batch
from headrace.wire.kafka.records import Record, check_batch, decode_batch, encode_batch, encode_control_batch

NOW_MS = 1_750_000_000_000

blobs = st.none() | st.binary(max_size=80)
new_records = st.lists(
    st.tuples(blobs, blobs, st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3).map(tuple)),
    min_size=1,
    max_size=90,
)
quick = settings(max_examples=40, deadline=None, database=None)
every_codec = pytest.mark.parametrize("codec", list(Codec))


@pytest.fixture(params=["compiled", "pure"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both readers, the second as on a machine where aiokafka has no compiled classes."""
    if request.param == "pure":
        monkeypatch.setattr(fast_records, "DefaultRecordBatch", None)
    return str(request.param)


def plainly(batch: bytes | bytearray | memoryview) -> list[tuple[object, ...]]:
    """The records as the plain reader finds them, in the form of the fast one."""
    return [
        (record.offset, record.timestamp_ms, record.key, record.value, list(record.headers))
        for record in decode_batch(batch)
    ]


def found(batch: bytes | bytearray | memoryview) -> list[tuple[object, ...]]:
    return [
        (offset, -1 if timestamp_ms is None else timestamp_ms, key, value, list(headers))
        for offset, timestamp_ms, key, value, headers in read_batch(batch)
    ]


def with_header(batch: bytearray, **changes: int) -> bytearray:
    header = read_header(batch)._replace(**changes)
    changed = bytearray(batch)
    fast_records._HEADER.pack_into(changed, 0, *header)
    return changed


def resum(batch: bytearray) -> None:
    batch[CRC_POSITION:CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")


def test_the_compiled_reader_is_there() -> None:
    assert fast_records.IS_COMPILED


@quick
@given(records=new_records)
def test_a_batch_is_the_same_bytes_as_the_plain_encoder_makes(records: list[NewRecord]) -> None:
    expected = encode_batch([Record(NOW_MS, key, value, headers) for key, value, headers in records])
    assert build_batch(records, NOW_MS) == expected


@pytest.mark.parametrize("size", [0, 1, 57, 63, 64, 4096, 8191, 8192, 70_000])
@pytest.mark.parametrize("count", [1, 64, 65, 130])
def test_lengths_and_indexes_where_a_varint_grows_are_right(size: int, count: int) -> None:
    body = bytes(size)
    batch = build_batch([(None, body, ())] * count, NOW_MS)
    assert batch == encode_batch([Record(NOW_MS, None, body)] * count)


def test_more_records_than_two_bytes_can_count_are_right() -> None:
    batch = build_batch([(None, b"x", ())] * 8300, NOW_MS)
    assert batch == encode_batch([Record(NOW_MS, None, b"x")] * 8300)
    assert found(batch) == plainly(batch)


def test_a_built_batch_takes_offset_and_epoch_without_a_new_sum() -> None:
    batch = build_batch([(None, b"a", ()), (b"k", None, ())], NOW_MS)
    assign(batch, 0, Offset(70), Epoch(3))
    assert check_batch(batch).leader_epoch == 3
    assert [record[0] for record in read_batch(batch)] == [70, 71]


def test_control_batches_are_the_same_too() -> None:
    expected = encode_control_batch(101, b"value", timestamp_ms=NOW_MS)
    assert build_batch([(b"\x00\x00\x00\x65", b"value", ())], NOW_MS, is_control=True) == expected


def test_a_batch_without_records_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        build_batch([], NOW_MS)


@every_codec
@quick
@given(
    records=st.lists(
        st.builds(
            Record,
            timestamp_ms=st.integers(-1, 2**45),
            key=blobs,
            value=blobs,
            headers=st.lists(st.tuples(st.text(max_size=10), blobs), max_size=3).map(tuple),
        ),
        min_size=1,
        max_size=20,
    ),
    base_offset=st.integers(0, 2**60),
)
def test_batches_of_any_codec_are_read_as_the_plain_reader_reads_them(
    codec: Codec, records: list[Record], base_offset: int
) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    assert found(batch) == plainly(batch)
    assert found(bytes(batch)) == plainly(batch)
    assert found(memoryview(bytearray(b"before" + batch + b"after"))[6:-5]) == plainly(batch)


def test_both_readers_give_the_same(reader: str) -> None:
    batch = encode_batch([Record(5, b"k", None, (("h", None), ("h", b"2"))), Record(9, None, b"v")], base_offset=3)
    assert found(batch) == [(3, 5, b"k", None, [("h", None), ("h", b"2")]), (4, 9, None, b"v", [])]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_headers_name_that_is_no_text_keeps_no_message_from_being_read(reader: str, codec: Codec) -> None:
    sent = [Record(5, b"k", b"v", ((chr(0xE9), b"1"), ("h", b"2"))), Record(9, None, b"w")]
    records = bytes(encode_batch(sent)[HEADER_SIZE:]).replace(chr(0xE9).encode(), b"\xff\xfe")
    compressed = records if codec is Codec.NONE else bytes(cramjam.zstd.compress(records))
    batch = encode_batch(sent, codec=codec)[:HEADER_SIZE] + compressed
    batch = with_header(batch, length=len(batch) - 12)
    resum(batch)
    unreadable = chr(0xFFFD) * 2
    assert found(batch) == [(0, 5, b"k", b"v", [(unreadable, b"1"), ("h", b"2")]), (1, 9, None, b"w", [])]
    assert decode_batch(batch)[0].headers == ((unreadable, b"1"), ("h", b"2"))


@pytest.mark.parametrize("size", [50_000, 70_000, 2 << 20, 3 << 20])
def test_batches_of_every_size_are_read_whole(size: int) -> None:
    bodies = [bytes([number]) * (size // 5) for number in range(5)]
    batch = build_batch([(None, body, ()) for body in bodies], NOW_MS)
    for _ in range(2):  # the second time in memory that has been used
        assert [record[3] for record in read_batch(batch)] == bodies


def test_append_time_replaces_the_records_own(reader: str) -> None:
    batch = encode_batch([Record(10, None, b"a"), Record(20, None, b"b")])
    header = check_batch(batch)
    changed = with_header(batch, attributes=header.attributes | ATTRIBUTE_LOG_APPEND_TIME)
    resum(changed)
    assert [record[1] for record in read_batch(changed)] == [20, 20]


def gapped(*, last_delta: int, count: int = 2) -> bytearray:
    """Records at the deltas 0 and 2, as after a cleaner."""
    whole = encode_batch([Record(1, None, b"a"), Record(1, None, b"b"), Record(1, None, b"c")], base_offset=10)
    size = (len(whole) - HEADER_SIZE) // 3
    batch = whole[: HEADER_SIZE + size] + whole[HEADER_SIZE + 2 * size :]
    changed = with_header(batch, length=len(batch) - 12, record_count=count, last_offset_delta=last_delta)
    resum(changed)
    return changed


@pytest.mark.parametrize("last_delta", [2, 3, 2**31 - 1])
def test_a_batch_with_gaps_keeps_its_offsets(reader: str, last_delta: int) -> None:
    assert [(record[0], record[3]) for record in read_batch(gapped(last_delta=last_delta))] == [(10, b"a"), (12, b"c")]


def test_an_offset_beyond_the_last_is_corrupt(reader: str) -> None:
    with pytest.raises(CorruptBatchError):
        read_batch(gapped(last_delta=1))


@pytest.mark.parametrize("count", [0, 1, 3, -1, 2**31 - 1])
def test_a_record_count_that_lies_is_corrupt(reader: str, count: int) -> None:
    with pytest.raises(CorruptBatchError):
        read_batch(gapped(last_delta=2, count=count))


def test_offsets_that_do_not_ascend_are_corrupt(reader: str) -> None:
    batch = encode_batch([Record(1, None, b"a"), Record(1, None, b"b")])
    size = (len(batch) - HEADER_SIZE) // 2
    swapped = batch[:HEADER_SIZE] + batch[HEADER_SIZE + size :] + batch[HEADER_SIZE : HEADER_SIZE + size]
    resum(swapped)
    with pytest.raises(CorruptBatchError):
        read_batch(swapped)


def test_a_codec_that_does_not_exist_is_said_so(reader: str) -> None:
    batch = with_header(build_batch([(None, b"a", ())], NOW_MS), attributes=7)
    resum(batch)
    with pytest.raises(UnsupportedCodecError):
        read_batch(batch)


def test_a_batch_cut_at_any_byte_is_corrupt(reader: str) -> None:
    batch = encode_batch([Record(1, b"key", b"value", (("h", b"x"),)) for _ in range(3)])
    for size in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            read_batch(batch[:size])


@settings(max_examples=300, deadline=None, database=None)
@given(records=new_records, at=st.integers(0, 10**6), noise=st.binary(min_size=1, max_size=30))
def test_wrong_bytes_are_read_or_refused(records: list[NewRecord], at: int, noise: bytes) -> None:
    batch = build_batch(records, NOW_MS)
    at = HEADER_SIZE + at % (len(batch) - HEADER_SIZE)
    batch[at : at + len(noise)] = noise[: len(batch) - at]
    try:
        read = read_batch(batch)
    except InvalidRequestError:
        return
    assert len(read) == len(records)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x80" * 30, id="a varint without an end"),
        pytest.param(b"\x14\x00\x00\x00\x01\x01\x04\x02h", id="headers after the end"),
        pytest.param(b"\x14\x00\x00\x00\x01\x01\x04\x02h\x01", id="the second header after the end"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7f", id="headers without number"),
        pytest.param(b"\x0c\x00\x00\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", id="a key beyond all memory"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00", id="a record longer than the batch"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00\x00", id="bytes after the last record"),
    ],
)
def test_records_that_cannot_be_are_corrupt(payload: bytes) -> None:
    batch = encode_batch([Record(1, None, None)])[:HEADER_SIZE] + payload
    with pytest.raises(CorruptBatchError):
        read_batch(with_header(batch, length=len(batch) - 12))


def test_a_header_that_was_read_before_is_not_read_again() -> None:
    batch = build_batch([(None, b"a", ())], NOW_MS)
    header: BatchHeader = read_header(batch)._replace(base_offset=0)
    assert read_batch(batch, header) == read_batch(batch)
