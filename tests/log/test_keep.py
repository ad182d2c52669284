"""Records are taken out of a batch, and nothing else about it changes."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.keep import empty_batch, keep_records, newest_ms
from headrace.model.batch import BatchHeader, assign, read_header
from headrace.model.ids import Epoch, Offset
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

record = st.builds(
    Record,
    timestamp_ms=st.integers(1_000_000, 1_000_500),
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2).map(tuple),
)

FIXED = (
    "base_offset",
    "leader_epoch",
    "magic",
    "attributes",
    "last_offset_delta",
    "base_timestamp_ms",
    "producer_id",
    "producer_epoch",
    "base_sequence",
)


def fixed(header: BatchHeader) -> list[int]:
    return [getattr(header, name) for name in FIXED]


@given(
    records=st.lists(record, min_size=1, max_size=200),
    codec=st.sampled_from(list(Codec)),
    chosen=st.sets(st.integers(0, 199)),
)
def test_the_records_that_stay_are_as_they_were_whatever_the_codec(
    records: list[Record], codec: Codec, chosen: set[int]
) -> None:
    batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=2, base_sequence=50)
    assign(batch, 0, Offset(1000), Epoch(3))
    header = read_header(batch)
    live = {1000 + delta for delta in chosen}
    kept = keep_records(header, bytes(batch), live)
    expected = [one for one in decode_batch(batch) if one.offset in live]
    after = read_header(kept)
    assert decode_batch(kept) == expected
    assert after.record_count == len(expected)
    assert after.size == len(kept)
    if expected:
        assert fixed(after) == fixed(header)
        assert after.max_timestamp_ms == max(one.timestamp_ms for one in expected)
    assert after.next_offset == header.next_offset
    assert after.last_sequence == header.last_sequence


@given(records=st.lists(record, min_size=1, max_size=20), start=st.integers(0, 21), codec=st.sampled_from(list(Codec)))
def test_the_newest_time_is_that_of_the_records_from_an_offset_on(
    records: list[Record], start: int, codec: Codec
) -> None:
    batch = encode_batch(records, codec=codec)
    found = newest_ms(read_header(batch), batch, from_offset=start)
    assert found == max((one.timestamp_ms for one in records[start:]), default=-1)


def test_an_empty_batch_still_stands_for_its_offsets() -> None:
    batch = encode_batch([Record(5, None, b"a"), Record(6, None, b"b")], codec=Codec.ZSTD)
    empty = empty_batch(read_header(batch), batch)
    assert decode_batch(empty) == []
    assert (read_header(empty).next_offset, read_header(empty).codec, len(empty)) == (2, Codec.NONE, 61)


def test_a_batch_that_cannot_be_read_stays_whole() -> None:
    for damage in (b"\x00" * 40, b"\xff" * 40, b"\x28\xb5\x2f\xfd" + b"\x00" * 36):
        for codec in (0, 1, 2, 3, 4, 7):
            batch = encode_batch([Record(5, None, b"a" * 33), Record(6, None, b"b")])
            header = read_header(batch)._replace(attributes=codec)
            data = bytes(batch[:61]) + damage
            header = header._replace(length=len(data) - 12)
            assert keep_records(header, data, {0}) == data
