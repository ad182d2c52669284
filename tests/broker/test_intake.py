"""What is checked of a record set before it is stored, and which error each fault gets."""

import struct

import msgspec
import pytest

from headrace.broker.intake import check_records
from headrace.model.batch import (
    ATTRIBUTE_CONTROL,
    ATTRIBUTE_LOG_APPEND_TIME,
    ATTRIBUTE_TRANSACTIONAL,
    CRC_POSITION,
    CRC_START,
    HEADER_SIZE,
    read_header,
)
from headrace.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    HeadraceError,
    InvalidRecordError,
    InvalidTimestampError,
    UnsupportedCodecError,
)
from headrace.model.topic import TimestampType, TopicConfig
from headrace.wire.crc import crc32c
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

CONFIG = TopicConfig(message_bytes_max=500)
STAMPING = TopicConfig(timestamp_type=TimestampType.LOG_APPEND_TIME)
NOW_MS = 1_800_000_000_000


def make(*values: bytes, codec: int = 0) -> bytearray:
    return encode_batch([Record(1000 + at, None, value) for at, value in enumerate(values)], codec=codec)


def changed(position: int, form: str, value: int, *, data: bytearray | None = None) -> bytearray:
    """A batch with one field changed and its checksum made right again."""
    data = make(b"a", b"b") if data is None else data
    struct.pack_into(form, data, position, value)
    struct.pack_into(">I", data, CRC_POSITION, crc32c(memoryview(data)[CRC_START:]))
    return data


def check(data: bytes | bytearray, config: TopicConfig = CONFIG) -> list[tuple[int, bytes]]:
    found = check_records(memoryview(bytearray(data)), config, now_ms=NOW_MS)
    return [(batch.header.record_count, bytes(batch.data)) for batch in found]


def test_every_batch_of_a_record_set_is_found() -> None:
    one, two = bytes(make(b"a")), bytes(make(b"b", b"c", codec=4))
    assert check(one + two + one) == [(1, one), (2, two), (1, one)]


def test_a_batch_of_the_largest_size_is_taken_and_one_byte_more_is_not() -> None:
    overhead = len(make(b"x" * 400)) - 400
    assert check(make(b"x" * (500 - overhead)))
    with pytest.raises(BatchTooLargeError, match=r"501 bytes, the topic takes 500.*max\.message\.bytes"):
        check(make(b"x" * (501 - overhead)))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        pytest.param(b"", InvalidRecordError, id="nothing"),
        pytest.param(b"\0" * (HEADER_SIZE - 1), CorruptBatchError, id="less than a header"),
        pytest.param(bytes(make(b"a")) + b"\0", CorruptBatchError, id="a byte after the last batch"),
        pytest.param(bytes(make(b"a"))[:-1], CorruptBatchError, id="a byte less"),
        pytest.param(changed(16, ">b", 0), InvalidRecordError, id="magic 0"),
        pytest.param(changed(16, ">b", 1), InvalidRecordError, id="magic 1"),
        pytest.param(changed(16, ">b", 3), CorruptBatchError, id="magic 3"),
        pytest.param(changed(8, ">i", -1), CorruptBatchError, id="negative length"),
        pytest.param(changed(8, ">i", 48), CorruptBatchError, id="length below a header"),
        pytest.param(changed(8, ">i", 2**31 - 1), CorruptBatchError, id="largest length"),
        pytest.param(changed(57, ">i", 0), InvalidRecordError, id="no records"),
        pytest.param(changed(57, ">i", -1), InvalidRecordError, id="negative count"),
        pytest.param(changed(57, ">i", 3), InvalidRecordError, id="count above the last delta"),
        pytest.param(changed(23, ">i", 5), InvalidRecordError, id="last delta above the count"),
        pytest.param(changed(23, ">i", -1), InvalidRecordError, id="negative last delta"),
        pytest.param(
            changed(23, ">i", 999, data=changed(57, ">i", 1000)), InvalidRecordError, id="more records than bytes"
        ),
        pytest.param(changed(21, ">h", 5), UnsupportedCodecError, id="codec 5"),
        pytest.param(changed(21, ">h", 7), UnsupportedCodecError, id="codec 7"),
        pytest.param(changed(21, ">h", ATTRIBUTE_CONTROL), InvalidRecordError, id="control"),
        pytest.param(changed(21, ">h", ATTRIBUTE_TRANSACTIONAL), InvalidRecordError, id="no producer"),
        pytest.param(changed(21, ">h", ATTRIBUTE_LOG_APPEND_TIME), InvalidTimestampError, id="a broker's time"),
        pytest.param(changed(43, ">q", 5), InvalidRecordError, id="producer without epoch and sequence"),
    ],
)
def test_what_must_not_be_stored_is_refused(data: bytes, error: type[HeadraceError]) -> None:
    with pytest.raises(error) as caught:
        check(data)
    assert type(caught.value) is error
    good = bytes(make(b"good"))
    with pytest.raises(HeadraceError):
        check(good + data if data else data)


def test_a_flip_of_any_bit_under_or_of_the_checksum_is_found() -> None:
    data = make(b"some value", b"other")
    for bit in range(16 * 8, len(data) * 8):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises((CorruptBatchError, InvalidRecordError)):
            check(damaged)


def test_where_the_broker_gives_the_time_it_does_not_matter_who_a_batch_says_gave_it() -> None:
    data = changed(21, ">h", ATTRIBUTE_LOG_APPEND_TIME)
    (batch,) = check_records(memoryview(data), STAMPING, now_ms=NOW_MS)
    assert batch.header.max_timestamp_ms == NOW_MS


def test_arrival_time_is_stamped_under_a_checksum_made_anew() -> None:
    for codec in range(5):
        (batch,) = check_records(memoryview(make(b"a", b"b", codec=codec)), STAMPING, now_ms=NOW_MS)
        assert batch.header == read_header(batch.data)
        assert batch.header.attributes & ATTRIBUTE_LOG_APPEND_TIME
        assert [record.timestamp_ms for record in decode_batch(batch.data)] == [NOW_MS, NOW_MS]
        assert [record.value for record in decode_batch(batch.data)] == [b"a", b"b"]


@pytest.mark.parametrize("codec", [0, 4])
def test_a_compacted_topic_takes_no_message_without_a_key(codec: int) -> None:
    compacted = TopicConfig(cleanup_policy="compact")
    whole = encode_batch([Record(1, b"k", b"v"), Record(1, b"", None)], codec=codec)
    assert check(whole, compacted) == [(2, bytes(whole))]
    lacking = encode_batch([Record(1, b"k", b"v"), Record(1, None, b"v")], codec=codec)
    assert check(lacking)
    with pytest.raises(InvalidRecordError, match="message 1 of the batch has no key"):
        check(lacking, compacted)
    with pytest.raises(InvalidRecordError, match="message 1 of the batch has no key"):
        check(bytes(whole) + bytes(lacking), compacted)
    several = encode_batch([Record(1, key, b"v") for key in (None, b"k", None)], codec=codec)
    with pytest.raises(InvalidRecordError) as refused:
        check(several, compacted)
    assert [at for at, _ in refused.value.records] == [0, 2]
    many = encode_batch([Record(1, None, b"v")] * 5000, codec=codec)
    with pytest.raises(InvalidRecordError) as refused:
        check(many, compacted)
    assert len(refused.value.records) == 1000, "an answer names so many and no more"


CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("came_as", CODECS.values())
@pytest.mark.parametrize("compression_type", CODECS)
def test_a_batch_is_stored_in_the_codec_of_its_topic(compression_type: str, came_as: int) -> None:
    records = [Record(5, b"k", b"v" * 99, (("h", b"x"),)), Record(3, None, None)]
    data = encode_batch(records, codec=came_as, producer_id=7, producer_epoch=1, base_sequence=4)
    config = TopicConfig(compression_type=compression_type)
    (stored,) = check_records(memoryview(bytearray(data)), config, now_ms=NOW_MS)
    assert stored.header == read_header(stored.data)
    assert stored.header.codec == CODECS[compression_type]
    assert [record._replace(offset=-1) for record in decode_batch(stored.data)] == records
    same = ("producer_id", "producer_epoch", "base_sequence", "record_count", "base_timestamp_ms", "max_timestamp_ms")
    came = read_header(data)
    assert [getattr(stored.header, name) for name in same] == [getattr(came, name) for name in same]
    if came_as == CODECS[compression_type]:
        assert bytes(stored.data) == bytes(data)
    stored.data[0] = 1  # the log writes its offset there


@pytest.mark.parametrize(
    ("compression_type", "setting", "levels"),
    [("gzip", "gzip_level", (1, -1)), ("lz4", "lz4_level", (9, 17)), ("zstd", "zstd_level", (-100, 3))],
)
def test_a_level_decides_how_hard_compression_tries(
    compression_type: str, setting: str, levels: tuple[int, int]
) -> None:
    data = make(b"".join(b"%d " % (n * n % 977) for n in range(5000)))
    sizes = []
    for level in levels:
        config = msgspec.structs.replace(TopicConfig(compression_type=compression_type), **{setting: level})
        (stored,) = check_records(memoryview(bytearray(data)), config, now_ms=NOW_MS)
        sizes.append(len(stored.data))
    assert sizes[0] > sizes[1]


def test_a_batch_that_is_too_large_once_it_is_stored_uncompressed_is_refused() -> None:
    config = TopicConfig(message_bytes_max=500, compression_type="uncompressed")
    with pytest.raises(BatchTooLargeError, match=r"compression\.type=uncompressed, the topic takes 500"):
        check(make(b"x" * 5000, codec=4), config)


def test_records_that_cannot_be_decompressed_are_refused_where_the_topic_has_a_codec() -> None:
    data = make(b"a" * 100, codec=4)
    data[HEADER_SIZE] ^= 0xFF
    broken = changed(57, ">i", 1, data=data)
    assert check(broken)
    with pytest.raises(CorruptBatchError):
        check(broken, TopicConfig(compression_type="gzip"))


def test_the_time_of_arrival_is_given_to_a_batch_that_is_compressed_again() -> None:
    config = TopicConfig(compression_type="lz4", timestamp_type=TimestampType.LOG_APPEND_TIME)
    (stored,) = check_records(memoryview(make(b"a", b"b")), config, now_ms=NOW_MS)
    assert stored.header == read_header(stored.data)
    assert [record.timestamp_ms for record in decode_batch(stored.data)] == [NOW_MS, NOW_MS]


@pytest.mark.parametrize("codec", [0, 4])
@pytest.mark.parametrize("times", [(NOW_MS - 100, NOW_MS + 100), (NOW_MS + 100, NOW_MS, NOW_MS - 100), (-1,)])
def test_times_within_a_topics_limits_are_taken(times: tuple[int, ...], codec: int) -> None:
    config = TopicConfig(timestamp_before_ms_max=100, timestamp_after_ms_max=100)
    data = encode_batch([Record(time_ms, None, b"v") for time_ms in times], codec=codec)
    assert check(data, config) == [(len(times), bytes(data))]


@pytest.mark.parametrize(
    ("time_ms", "setting"),
    [(NOW_MS - 101, "message.timestamp.before.max.ms"), (NOW_MS + 101, "message.timestamp.after.max.ms")],
)
def test_a_time_outside_a_topics_limits_is_refused(time_ms: int, setting: str) -> None:
    config = TopicConfig(timestamp_before_ms_max=100, timestamp_after_ms_max=100)
    data = encode_batch([Record(NOW_MS, None, b"v"), Record(time_ms, None, b"v")])
    assert check(data)
    with pytest.raises(InvalidTimestampError, match=f"101 ms .* {setting} allows 100") as refused:
        check(data, config)
    assert [at for at, _ in refused.value.records] == [1]
    stamping = msgspec.structs.replace(config, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert check_records(memoryview(data), stamping, now_ms=NOW_MS)
