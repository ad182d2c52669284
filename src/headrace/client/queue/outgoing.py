"""From what a program gives to what is sent."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from itertools import chain
from math import inf, isfinite

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


def several(messages: Iterable[object]) -> list[object]:
    """The messages of a `send_many`. Of a text, each character would become one."""
    given: object = messages
    if isinstance(given, str | bytes | bytearray | memoryview | Mapping | OutgoingMessage) or not isinstance(
        given, Iterable
    ):
        raise InvalidRequestError(
            f"send_many takes a list of messages, not one {type(given).__name__}; send it alone with send, or in a list"
        )
    return list(given)


def seconds(span: Span | None) -> float | None:
    return None if span is None else needed_seconds(span)


def needed_seconds(span: Span) -> float:
    length: object = span.total_seconds() if isinstance(span, timedelta) else span
    if not isinstance(length, int | float) or not 0 <= length < inf:
        raise InvalidRequestError(f"{span!r} is no length of time; give seconds from 0 on, or a timedelta")
    return length


def checked_text(what: str, value: object) -> str:
    """A text that UTF-8 can say."""
    if not isinstance(value, str):
        raise InvalidRequestError(f"{what} is {value!r}; give a text")
    _bytes(what, value)
    return value


def key_bytes(key: Key | None) -> bytes | None:
    return None if key is None else _bytes("the key", key)


def _bytes(what: str, value: object) -> bytes:
    """Text as its UTF-8, bytes as they are."""
    if isinstance(value, str):
        try:
            return value.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(
                f"{what} is a text with half of a surrogate pair, which UTF-8 has not; send it as bytes"
            ) from None
    if not isinstance(value, bytes):
        raise InvalidRequestError(f"{what} is {value!r}; give a text or bytes")
    return value


def to_send(message: OutgoingMessage) -> Send:
    """A message as it goes over the wire. Anything that is neither text nor bytes becomes JSON, and says so."""
    headers = _headers(message.headers)
    body = message.body
    if isinstance(body, bytes):
        data = body
    elif isinstance(body, str):
        data = _bytes("the body", body)
    elif isinstance(body, bytearray | memoryview):
        data = bytes(body)
    else:
        data = _json(body)
        if not any(name.lower() == CONTENT_TYPE for name, _ in headers):
            headers = (*headers, _JSON_HEADER)
    priority: object = message.priority
    deduplication_id = message.deduplication_id
    if not isinstance(priority, int) or not 0 <= priority <= PRIORITY_MAX:
        raise InvalidRequestError(
            f"priority {priority!r} is no whole number between 0 and {PRIORITY_MAX}, the most urgent"
        )
    if deduplication_id is not None:
        checked_text("the deduplication id", deduplication_id)
    return Send(
        data,
        key_bytes(message.key),
        headers,
        priority,
        seconds(message.delay),
        seconds(message.ttl),
        deduplication_id,
    )


def size_bytes(send: Send) -> int:
    """About what it takes in a request."""
    size = len(send.body) + OVERHEAD_BYTES + len(send.key or b"")
    for name, value in send.headers:
        size += len(name) + len(value)
    return size


def _json(body: object) -> bytes:
    try:
        data = msgspec.json.encode(body)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequestError(f"the body is neither text nor bytes nor something for JSON: {error}") from None
    # A number that JSON cannot say is written as null. So only where there is a null is it worth a look.
    if b"null" in data and (found := _unsayable(msgspec.to_builtins(body))) is not None:
        raise InvalidRequestError(f"the body has the number {found}, which JSON has not; send None or a text instead")
    return data


def _unsayable(value: object) -> float | None:
    """The first number in a value that is none, or is infinite."""
    if isinstance(value, float):
        return None if isfinite(value) else value
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = chain(value.keys(), value.values())
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    return next((found for one in inner if (found := _unsayable(one)) is not None), None)


def _headers(given: HeaderValues | None) -> Headers:
    if given is None:
        return ()
    try:
        pairs = [(name, value) for name, value in (given.items() if isinstance(given, Mapping) else given)]
    except (TypeError, ValueError):
        raise InvalidRequestError(f"headers are {given!r}; give a dict, or pairs of name and value") from None
    headers = tuple((name, _bytes(f"the header {name!r}", value)) for name, value in pairs)
    for name, _ in headers:
        checked_text("a header's name", name)
        if name.startswith(HEADER_PREFIX):
            raise InvalidRequestError(f"{name} is a header of headrace's own; choose a name that begins otherwise")
    return headers
