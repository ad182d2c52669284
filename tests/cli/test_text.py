"""Messages as text and back."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.moment import parse_moment, show_moment
from headrace.cli.output import WrongUseError
from headrace.cli.text import compile_format, message_from_json, message_to_json, unescape
from headrace.client.values import Message, Outgoing
from headrace.model.errors import InvalidRequestError

MESSAGE = Message("orders", 2, 42, 1_700_000_000_123, b"alice", b"one tea", (("shop", b"north"), ("gift", None)))

anything = st.none() | st.binary(max_size=30)


def test_a_format_knows_the_fields_of_kcat() -> None:
    render = compile_format(r"%t %p %o %T %k=%s [%h] %K %S %%\n")
    assert render(MESSAGE) == b"orders 2 42 1700000000123 alice=one tea [shop=north,gift=NULL] 5 7 %\n"


def test_a_format_shows_null_as_nothing_and_its_size_as_minus_one() -> None:
    assert compile_format("%k|%s|%K|%S")(MESSAGE._replace(key=None, value=None)) == b"||-1|-1"


def test_a_format_refuses_a_field_that_messages_do_not_have() -> None:
    with pytest.raises(InvalidRequestError, match="%x is no field"):
        compile_format("%x")


def test_escapes_are_read_as_kcat_reads_them() -> None:
    assert unescape(r"a\tb\nc\0d\\e\q") == b"a\tb\nc\0d\\e\\q"
    with pytest.raises(InvalidRequestError, match="empty"):
        unescape("")


def test_what_is_text_is_text_in_json_and_what_is_not_is_base64() -> None:
    document = json.loads(message_to_json(MESSAGE._replace(key=b"\xff")))
    assert document["value"] == "one tea"
    assert document["key_base64"] == "/w=="
    assert "key" not in document
    assert document["headers"] == [{"name": "shop", "value": "north"}, {"name": "gift", "value": None}]


@given(anything, anything, st.lists(st.tuples(st.text(max_size=5), anything), max_size=3))
def test_a_message_survives_json(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    message = MESSAGE._replace(key=key, value=value, headers=tuple(headers))
    back = message_from_json(Outgoing(None), message_to_json(message))
    assert back == Outgoing(value, key, tuple(headers), message.timestamp_ms)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "Expecting value"),
        (b"[]", "no object"),
        (b"{", "Expecting"),
        (b"[" * 100_000, "no message in JSON"),
        (b"\xff", "decode"),
        (b'{"value_base64":"?"}', "value_base64"),
        (b'{"value_base64":5}', "value_base64 is text"),
        (b'{"value":"\\ud800"}', "encode"),
        (b'{"headers":[{}]}', 'written [{"name": "a", "value": "b"}]'),
        (b'{"headers":{"a":"b"}}', 'written [{"name": "a", "value": "b"}]'),
        (b'{"headers":[{"name":"\\ud800"}]}', "encode"),
        (b'{"headers":[{"name":"a","valeu":"b"}]}', "did you mean value?"),
        (b'{"timestamp":5}', "did you mean timestamp_ms?"),
        (b'{"colour":"red"}', "there are topic, partition"),
        (b'{"timestamp_ms":"5"}', "whole number"),
        (b'{"timestamp_ms":1e30}', "whole number"),
        (b'{"timestamp_ms":9223372036854775808}', "whole number"),
        (b'{"value":"a","partition":8}', "--partition"),
    ],
)
def test_a_line_that_is_no_message_is_refused_and_shown(line: bytes, words: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(words)):
        message_from_json(Outgoing(None), line)


def test_times_are_read_as_iso_and_as_milliseconds() -> None:
    assert parse_moment("1700000000123") == 1_700_000_000_123
    assert parse_moment("2023-11-14T22:13:20.123Z") == 1_700_000_000_123
    assert parse_moment("2023-11-14T23:13:20.123+01:00") == 1_700_000_000_123
    assert show_moment(1_700_000_000_123) == "2023-11-14T22:13:20.123Z"
    assert show_moment(-1) == "-"
    assert parse_moment("9999-12-31T23:59:59.999Z") == 253_402_300_799_999
    assert show_moment(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"


def test_a_time_after_the_year_9999_is_shown_as_its_number() -> None:
    assert show_moment(253_402_300_800_000) == "253402300800000"
    assert show_moment(2**63 - 1) == "9223372036854775807"


@pytest.mark.parametrize(
    "text",
    [
        *("yesterday", "-5", "1969-01-01T00:00:00Z", "", "0001-01-01", "0001-01-01T00:00:00+10:00"),
        *("253402300800000", "99999999999999999999", "9" * 5_000, "9999-12-31T23:59:59-23:00"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(WrongUseError):
        parse_moment(text)
