"""Message attributes: their digest, their limits, their way through a record's headers."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.sqs import attribute
from headrace.wire.sqs.error import SqsError
from headrace.wire.sqs.request import AttributeValue

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")), min_size=1, max_size=40)
NAMES = st.from_regex(r"[\w-]{1,20}(\.[\w-]{1,5})?", fullmatch=True).filter(
    lambda name: not name.lower().startswith(("aws.", "amazon."))
)
VALUES = st.one_of(
    st.builds(lambda text: AttributeValue(string_value=text, data_type="String"), TEXTS),
    st.builds(lambda text: AttributeValue(string_value=text, data_type="String.note"), TEXTS),
    st.builds(lambda number: AttributeValue(string_value=str(number), data_type="Number.int"), st.integers()),
    st.builds(lambda data: AttributeValue(binary_value=data, data_type="Binary"), st.binary(min_size=1, max_size=40)),
)


def string(value: str, kind: str = "String") -> AttributeValue:
    return AttributeValue(string_value=value, data_type=kind)


def test_the_digest_is_the_one_that_aws_publishes() -> None:
    # The values are those of a message sent to SQS itself, which SDKs carry in their own tests.
    attributes = {"timestamp": string("1493147359900", "Number")}
    assert attribute.md5_of(attributes) == "235c5c510d26fb653d073faed50ae77c"


def test_the_digest_is_over_names_types_and_values_in_order_of_names() -> None:
    expected = hashlib.md5()
    for name, kind, mark, value in ((b"a", b"Binary", b"\x02", b"\x00\xff"), (b"b", b"String", b"\x01", "ö".encode())):
        expected.update(len(name).to_bytes(4, "big") + name + len(kind).to_bytes(4, "big") + kind)
        expected.update(mark + len(value).to_bytes(4, "big") + value)
    found = attribute.md5_of({"b": string("ö"), "a": AttributeValue(binary_value=b"\x00\xff", data_type="Binary")})
    assert found == expected.hexdigest()


@given(st.dictionaries(NAMES, VALUES, max_size=10))
def test_attributes_survive_the_way_through_headers(attributes: dict[str, AttributeValue]) -> None:
    attribute.check_attributes(attributes)
    headers = attribute.to_headers(attributes)
    assert attribute.wanted_attributes(headers, ["All"]) == attributes
    assert attribute.md5_of(attribute.wanted_attributes(headers, [".*"])) == attribute.md5_of(attributes)
    assert attribute.size_of(attributes) == sum(
        len(name.removeprefix("sqs-attr-").encode()) + len(value) - 1 for name, value in headers
    )


def test_a_receive_gets_the_attributes_that_it_names() -> None:
    headers = attribute.to_headers({"color": string("blue"), "trace.id": string("1"), "trace.span": string("2")})
    headers += (("sqs-attr-foreign", b"no type"), ("other", b"String:x"))
    assert set(attribute.wanted_attributes(headers, ["color", "absent"])) == {"color"}
    assert set(attribute.wanted_attributes(headers, ["trace.*"])) == {"trace.id", "trace.span"}
    assert attribute.wanted_attributes(headers, []) == {}
    for everything in ("All", "*", ".*"):
        assert set(attribute.wanted_attributes(headers, [everything])) == {"color", "trace.id", "trace.span"}


def test_a_prefix_is_all_that_stands_before_its_dot_and_star() -> None:
    names = ("Hello", "Help.Me", "General")
    headers = attribute.to_headers({name: string("x") for name in names})
    assert set(attribute.wanted_attributes(headers, ["Hel.*"])) == {"Hello", "Help.Me"}
    assert set(attribute.wanted_attributes(headers, ["Help.*", "General"])) == {"Help.Me", "General"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS.x", string("x")),
        ("amazon.x", string("x")),
        (".x", string("x")),
        ("x.", string("x")),
        ("x..y", string("x")),
        ("x y", string("x")),
        ("x" * 257, string("x")),
        ("größe.", string("x")),
        ("grö..ße", string("x")),
        ("grö ße", string("x")),
        ("größe€", string("x")),
        ("", string("x")),
        ("x", string("")),
        ("x", string("x", "Text")),
        ("x", string("x", "")),
        ("x", string("twelve", "Number")),
        ("x", string("bell \a")),
        ("x", string("x", "Binary")),
        ("x", AttributeValue(binary_value=b"x", data_type="String")),
        ("x", AttributeValue(string_value="x", binary_value=b"x", data_type="String")),
        ("x", AttributeValue(string_value="x", string_list_values=["y"], data_type="String")),
    ],
)
def test_an_attribute_that_sqs_refuses_is_refused(name: str, value: AttributeValue) -> None:
    with pytest.raises(SqsError) as refused:
        attribute.check_attributes({name: value})
    assert refused.value.kind.code == "InvalidParameterValue"


@pytest.mark.parametrize("name", ["größe", "名前", "имя.поля", "नाम", "a\u0301-e", "\U00010400_1", "٣"])
def test_a_name_may_have_letters_and_digits_of_any_script(name: str) -> None:
    attribute.check_attributes({name: string("x")})


def test_the_digest_takes_names_in_the_order_of_utf_16() -> None:
    # By code points the first of these is the smaller one; by the units of UTF-16 it begins with a surrogate.
    names = ("\uff21", "\U00010400")
    (small, large), values = sorted(names, key=lambda name: name.encode("utf-16-be")), dict.fromkeys(names, string("x"))
    assert (small, large) == (names[1], names[0])
    expected = hashlib.md5()
    for name in (small.encode(), large.encode()):
        expected.update(len(name).to_bytes(4, "big") + name)
        expected.update(b"\x00\x00\x00\x06String\x01\x00\x00\x00\x01x")
    assert attribute.md5_of(values) == expected.hexdigest()


def test_eleven_attributes_are_refused() -> None:
    with pytest.raises(SqsError, match=r"\[11\] exceeds the allowed maximum \[10\]"):
        attribute.check_attributes({f"a{n}": string("x") for n in range(11)})


def test_the_trace_header_is_the_only_system_attribute() -> None:
    attribute.check_system_attributes({"AWSTraceHeader": string("Root=1")})
    with pytest.raises(SqsError):
        attribute.check_system_attributes({"Other": string("x")})
    with pytest.raises(SqsError):
        attribute.check_system_attributes({"AWSTraceHeader": string("1", "Number")})
