"""Messages survive the way into a batch and back, and a strange header harms nobody."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.batch import assign
from headrace.model.ids import Epoch, Offset
from headrace.model.message import (
    DEAD_REASON_HEADER,
    DEDUPLICATION_HEADER,
    DELAY_HEADER,
    ID_HEADER,
    MOVE_HEADER,
    PRIORITY_HEADER,
    TTL_HEADER,
    Message,
    Properties,
)
from headrace.model.queue import SPAN_MS_MAX
from headrace.wire.kafka.compression import Codec
from headrace.wire.kafka.records import Headers, Record, decode_batch, encode_batch
from headrace.wire.message import StoredMessage, decode_messages, encode_messages, properties_of

NOW_MS = 1_750_000_000_000

quick = settings(max_examples=60, deadline=None, database=None)
spans = st.none() | st.integers(1, SPAN_MS_MAX)
some_messages = st.lists(
    st.builds(
        Message,
        body=st.binary(max_size=50),
        key=st.none() | st.binary(max_size=10),
        headers=st.lists(
            st.tuples(st.text(max_size=8) | st.just(DEAD_REASON_HEADER), st.binary(max_size=8)), max_size=2
        ).map(tuple),
        priority=st.integers(0, 9),
        delay_ms=st.just(0) | spans,
        ttl_ms=spans,
        deduplication_id=st.none() | st.text(min_size=1, max_size=10),
    ),
    min_size=1,
    max_size=10,
)


def sent(*headers: tuple[str, bytes | None], value: bytes | None = b"body", timestamp_ms: int = NOW_MS) -> bytearray:
    """A message from a Kafka producer with such headers."""
    return encode_batch([Record(timestamp_ms, None, value, headers)])


@quick
@given(messages=some_messages)
def test_messages_come_back_as_they_were_sent(messages: list[Message]) -> None:
    batch = encode_messages(messages, NOW_MS).batch
    assign(batch, 0, Offset(500), Epoch(1))
    assert decode_messages(batch) == [
        StoredMessage(
            500 + index,
            NOW_MS,
            message.key,
            message.body,
            message.headers,
            message.priority,
            message.delay_ms,
            message.ttl_ms,
            message.deduplication_id,
        )
        for index, message in enumerate(messages)
    ]


@quick
@given(messages=some_messages, keys=st.booleans(), codec=st.sampled_from(Codec))
def test_what_the_sender_knows_is_what_a_replay_finds(messages: list[Message], keys: bool, codec: Codec) -> None:
    encoded = encode_messages(messages, NOW_MS, keys=keys)
    assert properties_of(encoded.batch, keys=keys) == encoded.properties
    repacked = encode_batch(decode_batch(encoded.batch), codec=codec)
    assign(repacked, 0, Offset(77), Epoch(0))
    assert properties_of(memoryview(repacked), keys=keys) == encoded.properties


def test_a_plain_message_has_no_headers_and_no_properties() -> None:
    encoded = encode_messages([Message(b"one"), Message(b"two", b"key", (("trace", b"1"),))], NOW_MS)
    assert [record.headers for record in decode_batch(encoded.batch)] == [(), (("trace", b"1"),)]
    assert encoded.properties == {}
    assert properties_of(encoded.batch) == {}


def test_a_body_that_mentions_the_prefix_is_still_plain() -> None:
    assert properties_of(encode_messages([Message(b"see headrace-priority")], NOW_MS).batch) == {}


def test_with_keys_each_message_that_has_one_is_told() -> None:
    encoded = encode_messages([Message(b"a"), Message(b"b", b"k"), Message(b"c", b"")], NOW_MS, keys=True)
    assert encoded.properties == {
        1: Properties(5, None, None, b"k", None, None),
        2: Properties(5, None, None, b"", None, None),
    }


def test_delay_and_life_count_from_the_message_itself() -> None:
    batch = sent((DELAY_HEADER, b"1000"), (TTL_HEADER, b"5000"), timestamp_ms=NOW_MS - 10)
    assert properties_of(batch) == {
        0: Properties(5, NOW_MS + 990, NOW_MS + 4990, None, None, None),
    }


def test_a_delay_of_nothing_is_said_because_the_queue_may_have_another() -> None:
    encoded = encode_messages([Message(b"now", delay_ms=0)], NOW_MS)
    assert encoded.properties[0].due_ms == NOW_MS
    assert decode_messages(encoded.batch)[0].delay_ms == 0


def test_a_moved_message_keeps_its_id_and_its_story() -> None:
    headers = ((ID_HEADER, b"3-17"), (MOVE_HEADER, b"m1"), (DEAD_REASON_HEADER, b"tired"), ("trace", b"1"))
    encoded = encode_messages([Message(b"x", headers=headers)], NOW_MS)
    assert encoded.properties[0].move_id == b"m1"
    (message,) = decode_messages(encoded.batch)
    assert (message.id, message.move_id) == ("3-17", b"m1")
    assert message.headers == ((DEAD_REASON_HEADER, b"tired"), ("trace", b"1"))


def test_an_id_alone_is_nothing_that_a_queue_must_remember() -> None:
    assert properties_of(sent((ID_HEADER, b"3-17"))) == {}


@pytest.mark.parametrize("name", [PRIORITY_HEADER, DELAY_HEADER, TTL_HEADER])
@pytest.mark.parametrize(
    "value", [None, b"", b"x", b"-1", b"+1", b" 1", b"1.5", b"\xd9\xa1", b"9" * 19, b"9" * 5000, b"\xff"]
)
def test_a_number_that_is_none_is_as_if_it_were_not_there(name: str, value: bytes | None) -> None:
    batch = sent((name, value), ("kept", b"yes"))
    assert properties_of(batch) == {}
    assert decode_messages(batch) == [StoredMessage(0, NOW_MS, None, b"body", (("kept", b"yes"),))]


@pytest.mark.parametrize(("value", "priority"), [(b"0", 0), (b"9", 9), (b"10", 5), (b"007", 7)])
def test_priorities_are_from_nought_to_nine(value: bytes, priority: int) -> None:
    assert decode_messages(sent((PRIORITY_HEADER, value)))[0].priority == priority


def test_a_life_of_nothing_is_no_limit() -> None:
    assert properties_of(sent((TTL_HEADER, b"0"))) == {}


def test_of_two_headers_of_one_name_the_last_counts() -> None:
    assert decode_messages(sent((PRIORITY_HEADER, b"1"), (PRIORITY_HEADER, b"2")))[0].priority == 2


def test_a_deduplication_id_need_not_be_text() -> None:
    batch = sent((DEDUPLICATION_HEADER, b"\xff\x00a"))
    assert properties_of(batch)[0].deduplication_id == b"\xff\x00a"
    assert decode_messages(batch)[0].deduplication_id == "\\xff\x00a"


def test_a_tombstone_is_an_empty_body() -> None:
    assert decode_messages(sent(value=None))[0].body == b""


@pytest.mark.parametrize("headers", [(), ((DELAY_HEADER, b"1"),)])
@pytest.mark.parametrize("timestamp_ms", [-1, -(2**60), 0, 2**63 - 1])
def test_a_clock_that_says_anything_leaves_moments_within_64_bits(headers: Headers, timestamp_ms: int) -> None:
    batch = encode_batch([Record(timestamp_ms, b"k", b"", headers)])
    (message,) = decode_messages(batch)
    (found,) = properties_of(batch, keys=True).values()
    assert 0 <= message.sent_ms < 2**62
    assert found.due_ms is None or found.due_ms < 2**62
