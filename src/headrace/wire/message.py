"""Messages of queues as records of batches, and back.

What a record has no field for travels in the headers that `headrace.model.message` lists. Only what differs from the
default is written, so a plain message is a record without headers, and a queue has nothing to remember of it.

Any Kafka producer may write those headers. What cannot be understood (a priority of "x", a delay below zero) is as if
it were not there: a wrong header never makes a message unreadable.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.message import (
    DEDUPLICATION_HEADER,
    DELAY_HEADER,
    HEADER_PREFIX,
    ID_HEADER,
    MOVE_HEADER,
    PRIORITY_HEADER,
    REQUEST_HEADER,
    TTL_HEADER,
    Headers,
    Message,
    Properties,
    property_headers,
)
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX, SPAN_MS_MAX
from headrace.wire.kafka.fast_records import NewRecord, build_batch, read_batch

# Headers as a record has them: a value may be null.
_RecordHeaders = Iterable[tuple[str, bytes | None]]

_MOMENT_MS_MAX = 2 * SPAN_MS_MAX  # a producer's clock may say anything
_DIGITS_MAX = len(str(SPAN_MS_MAX))
_PROPERTY_HEADERS = frozenset(
    (PRIORITY_HEADER, DELAY_HEADER, TTL_HEADER, DEDUPLICATION_HEADER, REQUEST_HEADER, ID_HEADER, MOVE_HEADER)
)
# A request's id and a message's are remembered in one table, and are not taken for each other.
REQUEST_PREFIX = b"request:"
_has_property = re.compile(HEADER_PREFIX.encode()).search


class Encoded(NamedTuple):
    """A batch to be appended, and what `properties_of` would find in it."""

    batch: bytearray
    properties: dict[int, Properties]


class StoredMessage(NamedTuple):
    """A message as it was read from the log."""

    offset: int
    sent_ms: int  # 0 where its producer gave no time
    key: bytes | None
    body: bytes
    headers: Headers = ()  # without those that are fields here; those of dead letters are among them
    priority: int = PRIORITY_DEFAULT
    delay_ms: int | None = None
    ttl_ms: int | None = None
    deduplication_id: str | None = None
    move_id: bytes | None = None
    id: str | None = None  # of a moved message: the one that it had first


class _Said(NamedTuple):
    """What the headers of one message say of it."""

    priority: int = PRIORITY_DEFAULT
    delay_ms: int | None = None
    ttl_ms: int | None = None
    deduplication_id: bytes | None = None
    move_id: bytes | None = None
    request_id: bytes | None = None
    id: bytes | None = None


_NOTHING = _Said()


def encode_messages(messages: Sequence[Message], now_ms: int, *, keys: bool = False) -> Encoded:
    """One uncompressed batch of messages that are sent now. Its offsets and epoch are the log's to assign."""
    records: list[NewRecord] = []
    properties: dict[int, Properties] = {}
    for body, key, headers, priority, delay_ms, ttl_ms, deduplication_id in messages:
        if deduplication_id and priority == PRIORITY_DEFAULT and delay_ms is None and ttl_ms is None and not headers:
            # What headrace's own clients send: an id and nothing else, for a third of the price.
            data = deduplication_id.encode()
            headers = ((DEDUPLICATION_HEADER, data),)
            properties[len(records)] = Properties(PRIORITY_DEFAULT, None, None, key, data)
        elif (
            headers
            or priority != PRIORITY_DEFAULT
            or delay_ms is not None
            or ttl_ms is not None
            or deduplication_id
            or (keys and key is not None)
        ):
            headers = property_headers(priority, delay_ms, ttl_ms, deduplication_id) + headers
            found = _properties(now_ms, key, headers, keys=keys)
            if found is not None:
                properties[len(records)] = found
        records.append((key, body, headers))
    return Encoded(build_batch(records, now_ms), properties)


def decode_messages(batch: Buffer, header: BatchHeader | None = None) -> list[StoredMessage]:
    """The messages of a buffer that holds one batch, which is no control batch. CorruptBatchError if it cannot be read.

    A null value, with which a Kafka producer deletes a key, is an empty body.
    """
    messages: list[StoredMessage] = []
    make, last_ms, last_sent_ms = tuple.__new__, None, 0
    for offset, timestamp_ms, key, value, headers in read_batch(batch, header):
        if timestamp_ms != last_ms:
            last_ms, last_sent_ms = timestamp_ms, _moment_ms(timestamp_ms)
        if headers:
            messages.append(_with_headers(offset, last_sent_ms, key, value or b"", headers))
        else:  # nearly all: made in half the time of a call of the class
            plain = (offset, last_sent_ms, key, value or b"", (), PRIORITY_DEFAULT, None, None, None, None, None)
            messages.append(make(StoredMessage, plain))
    return messages


def _with_headers(offset: int, sent_ms: int, key: bytes | None, body: bytes, headers: _RecordHeaders) -> StoredMessage:
    others, said = _read(headers)
    if said is _NOTHING:
        return StoredMessage(offset, sent_ms, key, body, others)
    return StoredMessage(
        offset,
        sent_ms,
        key,
        body,
        others,
        said.priority,
        said.delay_ms,
        said.ttl_ms,
        _text(said.deduplication_id),
        said.move_id,
        _text(said.id),
    )


def properties_of(batch: Buffer, header: BatchHeader | None = None, *, keys: bool = False) -> dict[int, Properties]:
    """What a queue must know of the messages in a batch, by offset minus base offset; nothing of plain ones.

    With `keys`, for queues that hand out by key, of each message that has a key. Without, an uncompressed batch in
    which the prefix of the headers does not occur is not taken apart.
    """
    if header is None:
        header = read_header(batch)
    if not keys and not header.codec and not _has_property(batch):
        return {}
    properties = {}
    for offset, timestamp_ms, key, _, headers in read_batch(batch, header):
        if headers or (keys and key is not None):
            found = _properties(_moment_ms(timestamp_ms), key, headers, keys=keys)
            if found is not None:
                properties[offset - header.base_offset] = found
    return properties


def _properties(sent_ms: int, key: bytes | None, headers: _RecordHeaders, *, keys: bool) -> Properties | None:
    """None for a plain message."""
    _, said = _read(headers)
    if said[:-1] == _NOTHING[:-1] and (key is None or not keys):
        return None
    return Properties(
        said.priority,
        None if said.delay_ms is None else min(sent_ms + said.delay_ms, _MOMENT_MS_MAX),
        None if said.ttl_ms is None else min(sent_ms + said.ttl_ms, _MOMENT_MS_MAX),
        key,
        said.deduplication_id or (None if said.request_id is None else REQUEST_PREFIX + said.request_id),
        said.move_id,
    )


def _read(headers: _RecordHeaders) -> tuple[Headers, _Said]:
    """Properties apart from other headers. Of several of one name the last counts, as for Kafka's own clients."""
    others: list[tuple[str, bytes]] = []
    found: dict[str, bytes] = {}
    for name, value in headers:
        if name in _PROPERTY_HEADERS:
            found[name] = value or b""
        else:
            others.append((name, value or b""))
    if not found:
        return tuple(others), _NOTHING
    if len(found) == 1 and found.get(DEDUPLICATION_HEADER):  # what headrace's own clients write
        return tuple(others), _Said(PRIORITY_DEFAULT, None, None, found[DEDUPLICATION_HEADER])
    priority = _number(found.get(PRIORITY_HEADER), 0, PRIORITY_MAX)
    return tuple(others), _Said(
        PRIORITY_DEFAULT if priority is None else priority,
        _number(found.get(DELAY_HEADER), 0, SPAN_MS_MAX),
        _number(found.get(TTL_HEADER), 1, SPAN_MS_MAX),
        found.get(DEDUPLICATION_HEADER) or None,
        found.get(MOVE_HEADER) or None,
        found.get(REQUEST_HEADER) or None,
        found.get(ID_HEADER) or None,
    )


def _number(digits: bytes | None, least: int, most: int) -> int | None:
    if digits is None or len(digits) > _DIGITS_MAX or not digits.isdigit():
        return None
    number = int(digits)
    return number if least <= number <= most else None


def _moment_ms(timestamp_ms: int | None) -> int:
    return min(max(timestamp_ms or 0, 0), _MOMENT_MS_MAX)


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="backslashreplace")
