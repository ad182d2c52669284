"""Record batches: built here and read by others, built by others and read here, and never believed when damaged."""

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.wire.foreign import EVERY_FOREIGN_CODEC, Foreign

from headrace.model.batch import ATTRIBUTE_LOG_APPEND_TIME, CRC_POSITION, CRC_START, HEADER_SIZE, assign, read_header
from headrace.model.errors import BatchTooLargeError, CorruptBatchError, InvalidRequestError, UnsupportedCodecError
from headrace.model.ids import Epoch, Offset
from headrace.wire.crc import crc32c
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.records import Record, control_kind, decode_batch, encode_batch, encode_control_batch

blobs = st.none() | st.binary(max_size=80)
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
quick = settings(max_examples=25, deadline=None, database=None)
every_codec = pytest.mark.parametrize("codec", list(Codec))
every_foreign_codec = pytest.mark.parametrize(
    ("foreign", "codec"), EVERY_FOREIGN_CODEC, ids=lambda value: str(getattr(value, "name", value))
)


def placed(records: list[Record], base_offset: int = 0) -> list[Record]:
    return [record._replace(offset=base_offset + index) for index, record in enumerate(records)]


def resummed(batch: bytearray) -> bytearray:
    """A batch whose CRC agrees with whatever was done to it."""
    batch[CRC_POSITION:CRC_START] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return batch


@every_codec
@quick
@given(records=some_records, base_offset=st.integers(0, 2**60))
def test_records_are_read_back_as_they_were_written(codec: Codec, records: list[Record], base_offset: int) -> None:
    batch = encode_batch(records, codec=codec, base_offset=base_offset)
    assert decode_batch(batch) == placed(records, base_offset)
    assert decode_batch(memoryview(bytes(batch))) == placed(records, base_offset)


@every_foreign_codec
@quick
@given(records=some_records)
def test_other_clients_read_our_batches(foreign: Foreign, codec: Codec, records: list[Record]) -> None:
    batch = foreign.reader(bytes(encode_batch(records, codec=codec, base_offset=7)))
    assert batch.validate_crc()
    found = [
        Record(
            record.timestamp,
            None if record.key is None else bytes(record.key),
            None if record.value is None else bytes(record.value),
            tuple((name, None if value is None else bytes(value)) for name, value in record.headers),
            record.offset,
        )
        for record in batch
    ]
    assert found == placed(records, 7)


@every_foreign_codec
@quick
@given(records=some_records)
def test_we_read_batches_of_other_clients(foreign: Foreign, codec: Codec, records: list[Record]) -> None:
    builder = foreign.builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for index, record in enumerate(records):
        builder.append(index, record.timestamp_ms, record.key, record.value, list(record.headers))
    assert decode_batch(bytes(builder.build())) == placed(records)


@every_codec
def test_large_records_survive_every_codec(codec: Codec) -> None:
    records = [Record(1, b"k", bytes([index]) * 100_000) for index in range(10)]
    assert decode_batch(encode_batch(records, codec=codec)) == placed(records)


def test_a_raw_snappy_block_is_read() -> None:
    records = [Record(5, b"k", b"v" * 100)]
    plain = encode_batch(records)
    raw = plain[:HEADER_SIZE] + bytes(cramjam.snappy.compress_raw(bytes(plain[HEADER_SIZE:])))
    raw[8:12] = (len(raw) - 12).to_bytes(4, "big")
    raw[22] = Codec.SNAPPY
    assert decode_batch(resummed(raw)) == placed(records)


def test_the_header_carries_what_was_asked_for() -> None:
    batch = encode_batch(
        [Record(30, None, b"a"), Record(20, None, b"b")],
        base_offset=100,
        leader_epoch=4,
        producer_id=9,
        producer_epoch=2,
        base_sequence=50,
        is_transactional=True,
    )
    header = read_header(batch)
    assert (header.base_offset, header.last_offset, header.leader_epoch) == (100, 101, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 50)
    assert (header.base_timestamp_ms, header.max_timestamp_ms, header.record_count) == (30, 30, 2)
    assert header.is_transactional
    assert not header.is_control


def test_offsets_assigned_by_the_leader_leave_the_batch_intact() -> None:
    batch = encode_batch([Record(1, None, b"a"), Record(1, None, b"b")])
    assign(batch, 0, Offset(1234), Epoch(7))
    assert [record.offset for record in decode_batch(batch)] == [1234, 1235]


def test_append_time_replaces_the_records_own_time() -> None:
    batch = encode_batch([Record(10, None, b"a"), Record(20, None, b"b")])
    batch[22] |= ATTRIBUTE_LOG_APPEND_TIME
    assert [record.timestamp_ms for record in decode_batch(resummed(batch))] == [20, 20]


@pytest.mark.parametrize("kind", [0, 1, 100, 101, 102])
def test_a_control_batch_says_its_kind(kind: int) -> None:
    batch = encode_control_batch(kind, b"value", timestamp_ms=5, producer_id=3, producer_epoch=1)
    header = read_header(batch)
    assert header.is_control
    assert header.record_count == 1
    (record,) = decode_batch(batch)
    assert control_kind(record) == kind
    assert record.value == b"value"


def test_a_control_record_without_a_key_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError):
        control_kind(Record(0, None, b""))


def test_an_empty_batch_is_not_built() -> None:
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])


@every_codec
def test_a_batch_cut_at_any_byte_is_corrupt(codec: Codec) -> None:
    batch = encode_batch([Record(1, b"key", b"value", (("h", b"x"),)) for _ in range(3)], codec=codec)
    for size in range(len(batch)):
        with pytest.raises(CorruptBatchError):
            decode_batch(batch[:size])


def test_a_flipped_bit_is_corrupt_wherever_the_crc_looks() -> None:
    batch = encode_batch([Record(1, b"key", b"value")])
    for at in range(CRC_POSITION, len(batch)):
        damaged = bytearray(batch)
        damaged[at] ^= 0x10
        with pytest.raises(CorruptBatchError, match="CRC"):
            decode_batch(damaged)


@every_codec
@settings(max_examples=60, deadline=None, database=None)
@given(records=some_records, at=st.integers(0, 10**6), noise=st.binary(min_size=1, max_size=8))
def test_records_with_a_right_crc_and_wrong_bytes_are_read_or_refused(
    codec: Codec, records: list[Record], at: int, noise: bytes
) -> None:
    batch = encode_batch(records, codec=codec)
    at = HEADER_SIZE + at % (len(batch) - HEADER_SIZE)
    batch[at : at + len(noise)] = noise[: len(batch) - at]
    try:
        found = decode_batch(resummed(batch))
    except InvalidRequestError:
        return
    assert len(found) == len(records)


@pytest.mark.parametrize("count", [0, 2, 4, 2**31 - 1, -1, -(2**31)])
def test_a_record_count_that_lies_is_corrupt(count: int) -> None:
    batch = encode_batch([Record(1, b"key", b"value")] * 3)
    batch[57:61] = count.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError):
        decode_batch(resummed(batch))


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"\x80" * 30, id="a varint without an end"),
        pytest.param(b"\xff" * 9 + b"\x7f" + b"\x00" * 20, id="a varint of 70 bits"),
        pytest.param(b"\x0c\x00\x00\x00\x03\x00\x00", id="a key of length -2"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\xfe\xff\xff\x0f", id="headers without number"),
        pytest.param(b"\x0c\x00\x00\x00\xfe\xff\xff\xff\x0f\x00\x00", id="a key of a gigabyte"),
        pytest.param(b"\x0e\x00\x00\x00\x01\x01\x00", id="a record longer than the batch"),
        pytest.param(b"\x0c\x00\x00\x02\x01\x01\x00", id="an offset after the batch's last"),
        pytest.param(b"\x0c\x00\x00\x00\x01\x01\x00\x00", id="bytes after the last record"),
        pytest.param(b"\x10\x00\x00\x00\x01\x01\x02\x01\x01", id="a header without a name"),
    ],
)
def test_records_that_cannot_be_are_corrupt(payload: bytes) -> None:
    batch = encode_batch([Record(1, None, None)])[:HEADER_SIZE] + payload
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        decode_batch(resummed(batch))


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_decompression_stops_at_the_bound(codec: Codec) -> None:
    batch = encode_batch([Record(1, None, bytes(9 << 20))], codec=codec)
    with pytest.raises(BatchTooLargeError):
        decode_batch(batch, output_bytes_max=9 << 20)
    with pytest.raises(BatchTooLargeError):
        decode_batch(batch, ratio_max=2)
    assert len(decode_batch(batch, ratio_max=50_000)) == 1


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_some_megabytes_of_zeros_are_no_bomb(codec: Codec) -> None:
    batch = encode_batch([Record(1, None, bytes(4 << 20))], codec=codec)
    assert len(decode_batch(batch)) == 1


def test_an_uncompressed_batch_is_bounded_too() -> None:
    with pytest.raises(BatchTooLargeError):
        decode_batch(encode_batch([Record(1, None, bytes(1000))]), output_bytes_max=999)


def test_a_codec_that_does_not_exist_is_said_so() -> None:
    with pytest.raises(UnsupportedCodecError):
        encode_batch([Record(1, None, b"")], codec=5)
    batch = encode_batch([Record(1, None, b"")])
    batch[22] = 7
    with pytest.raises(UnsupportedCodecError):
        decode_batch(resummed(batch))
