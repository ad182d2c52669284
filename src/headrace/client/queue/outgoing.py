"""From what a program gives to what is sent."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from headrace.client.queue.wire import Send
from headrace.model.errors import InvalidRequestError
from headrace.model.message import HEADER_PREFIX, Headers
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX

Span = float | timedelta  # seconds, or as Python has them
Key = str | bytes
HeaderValues = Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]

CONTENT_TYPE = "content-type"
_JSON_HEADER = (CONTENT_TYPE, b"application/json")
# What a message costs in a request beside its body, roughly: enough to keep a request under its size.
OVERHEAD_BYTES = 100


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message for `send_many`, where bodies alone do not say enough. The fields are those of `send`."""

    body: object
    key: Key | None = None
    priority: int = PRIORITY_DEFAULT
    delay: Span | None = None
    ttl: Span | None = None
    headers: HeaderValues | None = None
    deduplication_id: str | None = None


def seconds(span: Span | None) -> float | None:
    if span is None:
        return None
    length = span.total_seconds() if isinstance(span, timedelta) else span
    if length < 0:
        raise InvalidRequestError(f"{span} is no length of time; give seconds from 0 on, or a timedelta")
    return length


def key_bytes(key: Key | None) -> bytes | None:
    return key.encode() if isinstance(key, str) else key


def to_send(message: OutgoingMessage) -> Send:
    """A message as it goes over the wire. Anything that is neither text nor bytes becomes JSON, and says so."""
    headers = _headers(message.headers)
    body = message.body
    if isinstance(body, bytes):
        data = body
    elif isinstance(body, str):
        data = body.encode()
    elif isinstance(body, bytearray | memoryview):
        data = bytes(body)
    else:
        data = _json(body)
        if not any(name.lower() == CONTENT_TYPE for name, _ in headers):
            headers = (*headers, _JSON_HEADER)
    if not 0 <= message.priority <= PRIORITY_MAX:
        raise InvalidRequestError(f"priority {message.priority} is not between 0 and {PRIORITY_MAX}, the most urgent")
    return Send(
        data,
        key_bytes(message.key),
        headers,
        message.priority,
        seconds(message.delay),
        seconds(message.ttl),
        message.deduplication_id,
    )


def size_bytes(send: Send) -> int:
    """About what it takes in a request."""
    size = len(send.body) + OVERHEAD_BYTES + len(send.key or b"")
    for name, value in send.headers:
        size += len(name) + len(value)
    return size


def _json(body: object) -> bytes:
    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"the body is neither text nor bytes nor something for JSON: {error}") from None


def _headers(given: HeaderValues | None) -> Headers:
    if given is None:
        return ()
    pairs = given.items() if isinstance(given, Mapping) else given
    headers = tuple((name, value.encode() if isinstance(value, str) else value) for name, value in pairs)
    for name, _ in headers:
        if name.startswith(HEADER_PREFIX):
            raise InvalidRequestError(f"{name} is a header of headrace's own; choose a name that begins otherwise")
    return headers
