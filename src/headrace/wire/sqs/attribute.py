"""Message attributes: what SQS allows, the MD5 that SDKs compare, and how a record's headers hold them.

An attribute travels as the record header `sqs-attr-<name>` whose value is `<type>:<value>`, for example
`String:blue`, so that consumers of every protocol see it. A type has no colon, so the first one ends it.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from unicodedata import category

from headrace.model.message import Headers
from headrace.wire.sqs.check import is_xml_text, no_xml_text
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


def _is_name(name: str) -> bool:
    """Whether a name has only letters and digits of any script, '_', '-', and single periods inside."""
    if _NAME.fullmatch(name) is not None:
        return True
    if name.isascii() or ".." in name or name.startswith(".") or name.endswith("."):
        return False
    # Many scripts write a letter with marks behind it, which are characters of their own.
    return all(one.isalnum() or one in "_-." or category(one).startswith("M") for one in name)


def _check_name(name: str) -> None:
    if not name:
        raise _refuse("The request must contain non-empty message (user) attribute names.")
    if len(name) > _LENGTH_MAX:
        raise _refuse(f"Message (user) attribute name must be shorter than {_LENGTH_MAX} bytes.")
    if name.lower().startswith(_RESERVED):
        raise _refuse(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These strings are reserved for "
            "internal use."
        )
    if not _is_name(name):
        raise _refuse(
            f"The message (user) attribute name '{name}' is invalid. Attribute name can contain A-Z, a-z, 0-9, "
            "underscore (_), hyphen (-), and period (.) characters."
        )


def _check_value(name: str, value: AttributeValue) -> None:
    kind = value.data_type
    if value.string_list_values or value.binary_list_values:
        raise _refuse("Message attribute list values in SendMessage operation are not supported.")
    if not kind:
        raise _refuse(f"The message (user) attribute '{name}' must contain a non-empty message attribute value.")
    if len(kind) > _LENGTH_MAX:
        raise _refuse(f"Message (user) attribute type must be shorter than {_LENGTH_MAX} bytes.")
    if _TYPE.fullmatch(kind) is None:
        raise _refuse(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported "
            "type prefixes: Binary, Number, String."
        )
    is_binary = kind.startswith("Binary")
    if not (value.binary_value if is_binary else value.string_value):
        raise _refuse(f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'.")
    if (value.string_value if is_binary else value.binary_value) is not None:
        raise _refuse(f"The message (user) attribute '{name}' has a value that is not of its type '{kind}'.")
    if is_binary or value.string_value is None:
        return
    if not is_xml_text(value.string_value.encode()):
        raise _refuse(no_xml_text(value.string_value, f"value of message (user) attribute '{name}'"))
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
            raise _refuse(f"Message system attribute name '{name[:_LENGTH_MAX]}' is invalid.")
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


def _order(name: str) -> bytes:
    """Names sort by UTF-16, as SQS and the SDKs that check the digest have them."""
    return name.encode("utf-16-be")


def md5_of(attributes: Mapping[str, AttributeValue]) -> str:
    """See "Calculating the MD5 message digest for message attributes" in the SQS Developer Guide."""
    digest = hashlib.md5(usedforsecurity=False)
    for name in sorted(attributes, key=_order):
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


def trace_header(trace: str) -> Headers:
    """The system attribute of a message whose request carried an X-Ray trace in a header of its own."""
    if not is_xml_text(trace.encode()):
        return ()
    return to_headers({TRACE_HEADER: AttributeValue(string_value=trace, data_type="String")}, SYSTEM_HEADER_PREFIX)


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
