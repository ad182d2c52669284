"""Queue messages as text and as JSON."""

from typing import Any

from headrace.cli.moment import show_moment
from headrace.cli.output import as_text
from headrace.cli.text import bytes_to_json
from headrace.client.queue.description import BrowsedMessage
from headrace.client.queue.sync import Message
from headrace.model.message import DEAD_ERROR_HEADER, DEAD_REASON_HEADER, DEAD_SOURCE_HEADER

BODY_SHOWN = 80

# Of a dead-lettered message, and the headers that say so.
DEATH_COLUMNS = ("source", "reason", "error")
_DEATH_HEADERS = (DEAD_SOURCE_HEADER, DEAD_REASON_HEADER, DEAD_ERROR_HEADER)


def message_to_json(message: Message) -> dict[str, Any]:
    return {
        **_common_json(message),
        "deduplication_id": message.deduplication_id,
        "first_received_ms": message.first_received_ms,
        "lease": message.lease,
        "receipt_handle": message.receipt,
    }


def browsed_to_json(message: BrowsedMessage) -> dict[str, Any]:
    return {
        **_common_json(message),
        "state": message.state,
        "due_ms": message.due_ms,
        "expires_ms": message.expires_ms,
        "dead": death_of(message) or None,
    }


def death_of(message: BrowsedMessage) -> dict[str, str]:
    """Where a dead-lettered message came from, why, and what its last attempt failed with; empty for any other."""
    headers = dict(message.headers)
    found = zip(DEATH_COLUMNS, map(headers.get, _DEATH_HEADERS), strict=True)
    return {column: short_body(value) for column, value in found if value is not None}


def _common_json(message: Message | BrowsedMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "first_id": message.first_id or message.id,
        **bytes_to_json("key", message.key),
        **bytes_to_json("body", message.body),
        "headers": [{"name": name, **bytes_to_json("value", value)} for name, value in message.headers],
        "priority": message.priority,
        "attempt": message.attempt,
        "sent_ms": message.sent_ms,
        "partition": message.partition,
        "offset": message.offset,
    }


def short_body(body: bytes) -> str:
    text = as_text(body).replace("\n", "\\n")
    return text if len(text) <= BODY_SHOWN else text[:BODY_SHOWN] + "..."


def show_optional_moment(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else show_moment(moment_ms)
