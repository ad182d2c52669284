"""Messages as text: escapes, kcat's format strings, and JSON that can be read back."""

import base64
import binascii
import json
from collections.abc import Callable
from typing import Any

from headrace.client.values import Headers, Message, Outgoing
from headrace.model.errors import InvalidRequestError

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
        raise InvalidRequestError("a delimiter must not be empty")
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
            raise InvalidRequestError(f"%{field} is no field of a message; there are {known}")
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


def _bytes_from_json(name: str, document: dict[str, Any], fallback: bytes | None) -> bytes | None:
    if f"{name}_base64" in document:
        return base64.b64decode(document[f"{name}_base64"], validate=True)
    if name not in document:
        return fallback
    value = document[name]
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def message_from_json(template: Outgoing, line: bytes) -> Outgoing:
    """A message as `message_to_json` wrote it. Its place (topic, partition, offset) is where it was, and not kept."""
    try:
        document = json.loads(line)
        if not isinstance(document, dict):
            raise InvalidRequestError(f"the line {_short(line)} is JSON and no object")
        headers = tuple(
            (str(header["name"]), _bytes_from_json("value", header, None)) for header in document.get("headers") or ()
        )
        timestamp = document.get("timestamp_ms")
        return template._replace(
            key=_bytes_from_json("key", document, template.key),
            value=_bytes_from_json("value", document, None),
            headers=headers or template.headers,
            timestamp_ms=template.timestamp_ms if timestamp is None or timestamp < 0 else int(timestamp),
        )
    except (json.JSONDecodeError, UnicodeDecodeError, binascii.Error, KeyError, TypeError) as error:
        raise InvalidRequestError(f"the line {_short(line)} is no message in JSON: {error}") from None


def _short(line: bytes) -> str:
    text = line.decode(errors="backslashreplace")
    return repr(text if len(text) <= 60 else text[:60] + "...")
