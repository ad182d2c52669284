"""Messages as text: escapes, kcat's format strings, and JSON that can be read back."""

import base64
import difflib
import json
from collections.abc import Callable, Sequence
from typing import Any

from headrace.cli.output import WrongUseError
from headrace.client.values import Headers, Message, Outgoing
from headrace.model.errors import InvalidRequestError
from headrace.model.topic import INT64_MAX

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def unescape(text: str) -> bytes:
    r"""Read \n, \t, \r, \0 and \\ in an argument; anything else stands for itself."""
    out, characters = [], iter(text)
    for character in characters:
        if character != "\\":
            out.append(character)
            continue
        following = next(characters, "")
        out.append(_ESCAPES.get(following, "\\" + following))
    data = "".join(out).encode()
    if not data:
        raise WrongUseError("a delimiter must not be empty")
    return data


def headers_text(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in headers)


_FIELDS: dict[str, Callable[[Message], bytes]] = {
    "s": lambda m: m.value or b"",
    "k": lambda m: m.key or b"",
    "S": lambda m: b"%d" % (-1 if m.value is None else len(m.value)),
    "K": lambda m: b"%d" % (-1 if m.key is None else len(m.key)),
    "o": lambda m: b"%d" % m.offset,
    "p": lambda m: b"%d" % m.partition,
    "t": lambda m: m.topic.encode(),
    "T": lambda m: b"%d" % m.timestamp_ms,
    "h": lambda m: headers_text(m.headers),
    "%": lambda m: b"%",
}


def compile_format(text: str) -> Callable[[Message], bytes]:
    """A renderer for a format string: %s value, %k key, %o offset, and the others of kcat."""
    parts: list[bytes | Callable[[Message], bytes]] = []
    literal = ""
    characters = iter(text)
    for character in characters:
        if character != "%":
            literal += character
            continue
        field = next(characters, "")
        if field not in _FIELDS:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise WrongUseError(f"%{field} is no field of a message; there are {known}")
        if literal:
            parts.append(unescape(literal))
            literal = ""
        parts.append(_FIELDS[field])
    if literal:
        parts.append(unescape(literal))
    return lambda message: b"".join(part if isinstance(part, bytes) else part(message) for part in parts)


def bytes_to_json(name: str, data: bytes | None) -> dict[str, Any]:
    """Text as text; what is no text as base64, under a name that says so."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def message_to_json(message: Message) -> bytes:
    document = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **bytes_to_json("key", message.key),
        **bytes_to_json("value", message.value),
        "headers": [{"name": name, **bytes_to_json("value", value)} for name, value in message.headers],
    }
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


# What `message_to_json` writes. The place is where the message was, and not kept: where it goes is said to the command.
_PLACE = ("topic", "partition", "offset")
_VALUES = ("key", "key_base64", "value", "value_base64")
_KNOWN = (*_PLACE, *_VALUES, "timestamp_ms", "headers")
_KNOWN_OF_HEADERS = ("name", "value", "value_base64")


def message_from_json(template: Outgoing, line: bytes) -> Outgoing:
    """A message as `message_to_json` wrote it."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        _check_fields(document, _KNOWN)
        if "partition" in document and "offset" not in document:
            raise ValueError("partition is where a message was, beside its offset; say where it goes with --partition")
        headers = _headers_from_json(document.get("headers"))
        timestamp_ms = _timestamp_from_json(document.get("timestamp_ms"))
        return template._replace(
            key=_bytes_from_json("key", document, template.key),
            value=_bytes_from_json("value", document, None),
            headers=headers or template.headers,
            timestamp_ms=template.timestamp_ms if timestamp_ms is None else timestamp_ms,
        )
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the line {_short(line)} is no message in JSON: {error}") from None


def _check_fields(document: dict[str, Any], known: Sequence[str]) -> None:
    """A field that would be left out in silence is a message that was not meant."""
    for name in document:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "there are " + ", ".join(known)
            raise ValueError(f"{name!r} is no field; {hint}")


def _headers_from_json(headers: Any) -> Headers:
    if headers is None:
        return ()
    form = 'headers are written [{"name": "a", "value": "b"}]'
    if not isinstance(headers, list):
        raise ValueError(form)
    found = []
    for header in headers:
        if not isinstance(header, dict) or not isinstance(header.get("name"), str):
            raise ValueError(form)
        _check_fields(header, _KNOWN_OF_HEADERS)
        header["name"].encode()  # which refuses what is no text
        found.append((header["name"], _bytes_from_json("value", header, None)))
    return tuple(found)


def _timestamp_from_json(timestamp_ms: Any) -> int | None:
    """None for none, which `message_to_json` writes as -1."""
    if timestamp_ms is None:
        return None
    if isinstance(timestamp_ms, bool) or not isinstance(timestamp_ms, int) or not -1 <= timestamp_ms <= INT64_MAX:
        raise ValueError(f"timestamp_ms is a whole number of milliseconds since 1970, not {timestamp_ms!r}")
    return None if timestamp_ms < 0 else timestamp_ms


def _bytes_from_json(name: str, document: dict[str, Any], fallback: bytes | None) -> bytes | None:
    encoded = document.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise ValueError(f"{name}_base64 is text, not {encoded!r}")
        try:
            return base64.b64decode(encoded, validate=True)
        except ValueError as error:
            raise ValueError(f"{name}_base64: {error}") from None
    if name not in document:
        return fallback
    value = document[name]
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _short(line: bytes) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= 60 else text[:60] + "...")
