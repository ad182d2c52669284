"""Message attributes: what SQS allows, the MD5 that SDKs compare, and how a record's headers hold them.

An attribute travels as the record header `sqs-attr-<name>` whose value is `<type>:<value>`, for example
`String:blue`, so that consumers of every protocol see it. A type has no colon, so the first one ends it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct

from headrace.model.message import Headers
from headrace.wire.sqs.check import is_xml_text
from headrace.wire.sqs.error import INVALID_VALUE, SqsError
from headrace.wire.sqs.request import Attributes, AttributeValue

HEADER_PREFIX = "sqs-attr-"
SYSTEM_HEADER_PREFIX = "sqs-system-"
TRACE_HEADER = "AWSTraceHeader"
COUNT_MAX = 10

_LENGTH_MAX = 256
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", re.ASCII)
_TYPE = re.compile(r"(String|Number|Binary)(\.[^:\x00-\x1f\x7f]+)?")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_RESERVED = ("aws.", "amazon.")
_INT32 = Struct(">I")
_STRING_KIND, _BINARY_KIND = b"\x01", b"\x02"


def _refuse(message: str) -> SqsError:
    return SqsError(INVALID_VALUE, message)


def _check_name(name: str) -> None:
    if len(name) > _LENGTH_MAX or _NAME.fullmatch(name) is None or name.lower().startswith(_RESERVED):
        raise _refuse(
            f"Message (user) attribute name '{name[:_LENGTH_MAX]}' is invalid. It has letters, digits, '_', '-' and "
            "single dots inside, up to 256 of them, and does not begin with 'AWS.' or 'Amazon.'"
        )


def _check_value(name: str, value: AttributeValue) -> None:
    kind = value.data_type
    if not kind:
        raise _refuse(f"The message attribute '{name}' must contain a non-empty message attribute type.")
    if len(kind) > _LENGTH_MAX or _TYPE.fullmatch(kind) is None:
        raise _refuse(
            f"The message attribute '{name}' has an invalid message attribute type, the set of supported type "
            "prefixes is Binary, Number, and String."
        )
    if value.string_list_values or value.binary_list_values:
        raise _refuse(f"Message attribute list values in the message attribute '{name}' are not supported.")
    is_binary = kind.startswith("Binary")
    if not (value.binary_value if is_binary else value.string_value):
        raise _refuse(
            f"The message attribute '{name}' must contain a non-empty message attribute value for message attribute "
            f"type '{kind}'."
        )
    if (value.string_value if is_binary else value.binary_value) is not None:
        raise _refuse(f"The message attribute '{name}' has a value that is not of its type '{kind}'.")
    if is_binary or value.string_value is None:
        return
    if not is_xml_text(value.string_value.encode()):
        raise _refuse(f"The message attribute '{name}' contains characters outside of the XML 1.0 set.")
    if kind.startswith("Number") and _NUMBER.fullmatch(value.string_value) is None:
        raise _refuse(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def check_attributes(attributes: Attributes) -> None:
    if len(attributes) > COUNT_MAX:
        raise _refuse(f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{COUNT_MAX}].")
    for name, value in attributes.items():
        _check_name(name)
        _check_value(name, value)


def check_system_attributes(attributes: Attributes) -> None:
    for name, value in attributes.items():
        if name != TRACE_HEADER:
            raise _refuse(f"Message system attribute name '{name[:_LENGTH_MAX]}' is invalid. {TRACE_HEADER} is known.")
        if value.data_type != "String":
            raise _refuse(f"The message system attribute '{name}' must be of the type String.")
        _check_value(name, value)


def _bytes_of(value: AttributeValue) -> bytes:
    return value.binary_value if value.binary_value is not None else (value.string_value or "").encode()


def size_of(attributes: Attributes) -> int:
    """What they count towards the limit of a message."""
    return sum(
        len(name.encode()) + len(value.data_type.encode()) + len(_bytes_of(value)) for name, value in attributes.items()
    )


def md5_of(attributes: Mapping[str, AttributeValue]) -> str:
    """See "Calculating the MD5 message digest for message attributes" in the SQS Developer Guide."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes):
        value = attributes[name]
        content = _bytes_of(value)
        kind = _BINARY_KIND if value.data_type.startswith("Binary") else _STRING_KIND
        for text in (name.encode(), value.data_type.encode()):
            digest.update(_INT32.pack(len(text)) + text)
        digest.update(kind + _INT32.pack(len(content)) + content)
    return digest.hexdigest()


def to_headers(attributes: Attributes, prefix: str = HEADER_PREFIX) -> Headers:
    return tuple(
        (prefix + name, value.data_type.encode() + b":" + _bytes_of(value)) for name, value in attributes.items()
    )


def from_header(content: bytes) -> AttributeValue | None:
    """An attribute again; None where somebody else wrote a header of this name in another form."""
    kind, colon, value = content.partition(b":")
    try:
        data_type = kind.decode()
        if not colon or not value or _TYPE.fullmatch(data_type) is None:
            return None
        if data_type.startswith("Binary"):
            return AttributeValue(binary_value=value, data_type=data_type)
        return AttributeValue(string_value=value.decode(), data_type=data_type)
    except UnicodeDecodeError:
        return None


def is_wanted(name: str, wanted: Iterable[str]) -> bool:
    """Whether a receive that asks for these gets an attribute: by its name, by how it begins (`col.*`), or by all."""
    return any(
        one == name or one in ("All", "*") or (one.endswith(".*") and name.startswith(one[:-2])) for one in wanted
    )


def wanted_attributes(headers: Headers, names: Sequence[str]) -> dict[str, AttributeValue]:
    """The attributes of a message that a receive asks for."""
    found = {}
    for header, content in headers:
        if not header.startswith(HEADER_PREFIX):
            continue
        name = header[len(HEADER_PREFIX) :]
        if is_wanted(name, names):
            value = from_header(content)
            if value is not None:
                found[name] = value
    return found
