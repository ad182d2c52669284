"""Bytes to requests and answers to bytes, for both protocols, behind one small interface.

JSON    POST /, X-Amz-Target: AmazonSQS.<operation>, a JSON body
query   POST or GET to / or to a queue's own path, Action=<operation> in a form or in the query
"""

import re
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from headrace.wire.sqs import query
from headrace.wire.sqs.answer import Answer
from headrace.wire.sqs.check import TAG_KEY_LENGTH
from headrace.wire.sqs.error import (
    INVALID_VALUE,
    MALFORMED,
    MISSING_ACTION,
    UNKNOWN_OPERATION,
    SqsError,
    invalid,
    missing,
)
from headrace.wire.sqs.request import BATCHES, OPERATIONS, SqsRequest

_SHOWN_MAX = 100  # characters of an unknown operation in an error
JSON_CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."

Headers = tuple[tuple[str, str], ...]

_decoders = {name: msgspec.json.Decoder(kind) for name, kind in OPERATIONS.items()}
_encoder = msgspec.json.Encoder()
_MISSING = re.compile(r"missing required field `(.*?)`(?: - at `\$\.Entries\[(\d+)\]`)?")
_EXPECTED = re.compile("Expected `(.*?)`, got `(.*?)`")
# Required parameters for whose absence SQS has other words.
_NO_NAME = invalid("QueueName", "Must specify a queue name.")
_ABSENT = {
    ("CreateQueue", "QueueName"): _NO_NAME,
    ("GetQueueUrl", "QueueName"): _NO_NAME,
    ("SetQueueAttributes", "Attributes"): missing("Attribute.Name"),
    ("UntagQueue", "TagKeys"): SqsError(INVALID_VALUE, TAG_KEY_LENGTH),
}
_OF_TYPE = {
    "array": "Start of list found where not expected",
    "object": "Start of structure or map found where not expected.",
}
# A queue's own address serves what is about a queue.
_NOT_OF_A_QUEUE = frozenset({"CreateQueue", "ListQueues"})


def unknown_operation(name: str) -> SqsError:
    return SqsError(UNKNOWN_OPERATION, f"The action {name[:_SHOWN_MAX]} is not valid for this endpoint.")


def _refusal(operation: str, error: msgspec.ValidationError) -> SqsError:
    """Which parameter is wrong, from what the decoder says about it, in SQS's words."""
    if absent := _MISSING.search(str(error)):
        name, place = absent.groups()
        if place is not None:
            return missing(f"{operation}RequestEntry.{int(place) + 1}.{name}")
        known = _ABSENT.get((operation, name))
        return missing(name) if known is None else SqsError(known.kind, known.message)
    expected, got = found.groups() if (found := _EXPECTED.search(str(error))) else ("", "")
    if got in _OF_TYPE:
        return SqsError(MALFORMED, _OF_TYPE[got])
    if expected.startswith("array"):
        return SqsError(MALFORMED, "Expected list or null")
    if expected.startswith("object"):
        return SqsError(MALFORMED, "Expected map or null")
    if expected.startswith("int"):
        return SqsError(MALFORMED, "STRING_VALUE can not be converted to an Integer")
    return SqsError(MALFORMED, "A parameter has a value that is not of its type.")


class Codec(Protocol):
    """One protocol."""

    content_type: str

    def answer(self, operation: str, answer: Answer, request_id: str) -> bytes: ...

    def error(self, error: SqsError, request_id: str) -> tuple[bytes, Headers]: ...


class JsonCodec:
    content_type = JSON_CONTENT_TYPE

    def answer(self, operation: str, answer: Answer, request_id: str) -> bytes:
        return _encoder.encode(answer)

    def error(self, error: SqsError, request_id: str) -> tuple[bytes, Headers]:
        kind = error.kind
        body = _encoder.encode({"__type": kind.type, "message": error.message})
        # On every error: the JavaScript SDK fails without it.
        return body, (("x-amzn-query-error", f"{kind.code};{kind.fault}"),)


class QueryCodec:
    content_type = query.CONTENT_TYPE

    def answer(self, operation: str, answer: Answer, request_id: str) -> bytes:
        return query.render(operation, answer, request_id)

    def error(self, error: SqsError, request_id: str) -> tuple[bytes, Headers]:
        return query.render_error(error, request_id), ()


JSON = JsonCodec()
QUERY = QueryCodec()


def decode_json(operation: str, body: bytes) -> SqsRequest:
    decoder = _decoders.get(operation)
    if decoder is None:
        raise unknown_operation(operation)
    try:
        # Operations whose every parameter is optional are sent without a body by some.
        return decoder.decode(body or b"{}")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _decode_leniently(operation, body)


def _decode_leniently(operation: str, body: bytes) -> SqsRequest:
    """As AWS does: a field that is null is one that is not given, and a number or a boolean is taken for its text."""
    try:
        return msgspec.convert(_as_form(msgspec.json.decode(body)), OPERATIONS[operation], strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(operation, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise SqsError(MALFORMED, "The body is not valid JSON in UTF-8.") from None
    except RecursionError:
        raise SqsError(MALFORMED, "The body is nested too deeply.") from None


def _as_form(value: Any) -> Any:
    """Without nulls, and with every scalar as a form has it."""
    if isinstance(value, dict):
        return {name: _as_form(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_as_form(inner) for inner in value]
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None or isinstance(value, str) else str(value)


def decode_form(form: Mapping[str, str], *, queue_url: str | None) -> tuple[str, SqsRequest]:
    """The operation and its input. A request to a queue's own address need not name the queue again."""
    operation = form.get("Action")
    if not operation:
        raise SqsError(MISSING_ACTION, "The request is missing an action or a required parameter.")
    kind = OPERATIONS.get(operation)
    if kind is None or (queue_url is not None and operation in _NOT_OF_A_QUEUE):
        raise unknown_operation(operation)
    fields = query.to_request(operation, form)
    if queue_url is not None:
        fields.setdefault("QueueUrl", queue_url)
    if issubclass(kind, BATCHES):
        # A form has no way to write an empty list but to leave it out, and SQS calls that an empty batch.
        fields.setdefault("Entries", [])
    try:
        return operation, msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _refusal(operation, error) from None
