"""Between a message's bytes and what JSON can say.

A JSON string is stored as its UTF-8 text. Any other value is stored as the JSON that was sent, unchanged, with the
header `content-type: application/json`, and given back as that value. Bytes that are no UTF-8 come back in base64.
"""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.gateways.http.message import RefusedError
from headrace.gateways.rest.decode import decode, in_field
from headrace.gateways.rest.form import Base64, HeaderValue, NewMessage, PackedMessage, Send, milliseconds_or_none
from headrace.model.message import Headers, Message

CONTENT_TYPE = "content-type"
_JSON = b"application/json"
_JSON_PAIR = (CONTENT_TYPE, _JSON)
_STRING = msgspec.json.Decoder(str)
_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def message_of(entry: NewMessage | Send) -> Message:
    """A message from JSON."""
    assert isinstance(entry.message, msgspec.Raw)
    raw = bytes(entry.message)
    headers = _stored_headers(entry.headers) if entry.headers else ()
    if raw.startswith(b'"'):
        body = decode(_STRING, raw).encode()
    else:
        decode(_ANY, raw)  # the outer decoder has looked at its shape only
        body = raw
        if not any(name == CONTENT_TYPE for name, _ in headers):
            headers = (*headers, _JSON_PAIR)
    return Message(
        body,
        None if entry.key is None else entry.key.encode(),
        headers,
        int(entry.priority),
        milliseconds_or_none(entry.delay),
        milliseconds_or_none(entry.ttl),
        entry.deduplication_id,
    )


def messages_of(entries: Sequence[NewMessage]) -> list[Message]:
    """Several messages from JSON."""
    try:
        return [message_of(entry) for entry in entries]
    except RefusedError:
        for at, entry in enumerate(entries):
            try:
                message_of(entry)
            except RefusedError as error:
                raise in_field(error, f"messages[{at}].message") from None
        raise


def message_of_packed(entry: PackedMessage) -> Message:
    return Message(
        entry.body,
        entry.key,
        entry.headers,
        int(entry.priority),
        milliseconds_or_none(entry.delay),
        milliseconds_or_none(entry.ttl),
        entry.deduplication_id,
    )


def _stored_headers(headers: Mapping[str, HeaderValue]) -> Headers:
    pairs: list[tuple[str, bytes]] = []
    for name, value in headers.items():
        for one in value if isinstance(value, list) else (value,):
            pairs.append((name, one.encode() if isinstance(one, str) else one.base64))
    return tuple(pairs)


def shown_text(data: bytes) -> str | Base64:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64(data)


def shown_headers(headers: Headers) -> dict[str, HeaderValue]:
    """A header that is there several times is shown as a list."""
    shown: dict[str, HeaderValue] = {}
    for name, data in headers:
        value = shown_text(data)
        earlier = shown.get(name)
        if earlier is None:
            shown[name] = value
        elif isinstance(earlier, list):
            earlier.append(value)
        else:
            shown[name] = [earlier, value]
    return shown


def shown_body(body: bytes, headers: Headers) -> tuple[Any, str | None]:
    """A body as JSON shows it, and its encoding where it is none of JSON's own."""
    if headers and any(name == CONTENT_TYPE and data.startswith(_JSON) for name, data in headers):
        try:
            decode(_ANY, body)
            return msgspec.Raw(body), None
        except RefusedError:
            pass  # it says that it is JSON and is not, which any Kafka producer can do
    try:
        return body.decode(), None
    except UnicodeDecodeError:
        return b64encode(body).decode(), "base64"
