"""What schemathesis is told beyond the description: how MessagePack is written and read, and what keeps a run short.

Few queues, which so hold messages, and short waits.
"""

import re
from typing import Any

import msgspec
import schemathesis
from schemathesis import GenerationMode
from schemathesis.transport.serialization import Binary

WAIT_SECONDS_MAX = 0.05
PARTITIONS_MAX = 4
QUEUES = ("orders", "jobs")
MSGPACK = "application/msgpack"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@schemathesis.serializer(MSGPACK)
def to_msgpack(context: Any, value: Any) -> bytes:
    """What the description calls binary is bytes."""
    messages = value.get("messages") if isinstance(value, dict) else None
    if isinstance(messages, list):
        value = {**value, "messages": [_with_bytes(one) for one in messages]}
    return msgspec.msgpack.encode(_sendable(value))


def _sendable(value: Any) -> Any:
    """MessagePack has no larger whole numbers, and no text that UTF-8 cannot carry."""
    if isinstance(value, dict):
        return {_sendable(name): _sendable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_sendable(inner) for inner in value]
    if isinstance(value, Binary):
        return value.data
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    return float(value) if isinstance(value, int) and not -(2**63) <= value < 2**64 else value


def _with_bytes(message: Any) -> Any:
    if not isinstance(message, dict):
        return message
    message = message | {name: _bytes(message[name]) for name in ("body", "key") if name in message}
    if isinstance(pairs := message.get("headers"), list):
        message["headers"] = [
            [pair[0], _bytes(pair[1])] if isinstance(pair, list) and len(pair) == 2 else pair for pair in pairs
        ]
    return message


def _bytes(value: Any) -> Any:
    if isinstance(value, Binary):
        return value.data
    return value.encode(errors="replace") if isinstance(value, str) else value


@schemathesis.deserializer(MSGPACK)
def from_msgpack(context: Any, response: Any) -> Any:
    """As text, which is what a schema can look at."""
    return _with_text(msgspec.msgpack.decode(response.content))


def _with_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _with_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_with_text(inner) for inner in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Whatever is valid stays so, and whatever is not stays as it is."""
    path, query, body = case.path_parameters or {}, case.query or {}, case.body
    queue = path.get("queue")
    if isinstance(queue, str) and _NAME.fullmatch(queue) is not None and queue.strip("."):
        path["queue"] = QUEUES[sum(queue.encode()) % len(QUEUES)]
    if isinstance(query, dict) and isinstance(wait := query.get("wait"), int | float) and 0 < wait <= 50:
        query["wait"] = min(wait, WAIT_SECONDS_MAX)
    partitions = body.get("partitions") if isinstance(body, dict) else None
    if isinstance(partitions, int | float) and PARTITIONS_MAX < partitions <= 10_000:
        body["partitions"] = PARTITIONS_MAX
    if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
        return
    if case.method == "POST" and case.media_type in ("application/json", MSGPACK):
        # The options of a message in the query are for bodies that are the message: OpenAPI has no word for that.
        case.query = {}
    if case.method == "GET" and isinstance(queue, str) and len(queue) % 2:
        case.headers = {**(case.headers or {}), "Accept": MSGPACK}
