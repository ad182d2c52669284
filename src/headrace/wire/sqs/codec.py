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
from headrace.wire.sqs.error import INVALID_VALUE, MALFORMED, UNKNOWN_OPERATION, SqsError, missing
from headrace.wire.sqs.request import BATCHES, OPERATIONS, SqsRequest

JSON_CONTENT_TYPE = "application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."

Headers = tuple[tuple[str, str], ...]

_decoders = {name: msgspec.json.Decoder(kind) for name, kind in OPERATIONS.items()}
_encoder = msgspec.json.Encoder()
_MISSING = re.compile("missing required field `(.*?)`")


def unknown_operation(name: str) -> SqsError:
    return SqsError(UNKNOWN_OPERATION, f"The action {name[:100]!r} is not valid for this endpoint.")


def _refusal(error: msgspec.ValidationError) -> SqsError:
    """Which parameter is wrong, from what the decoder says about it."""
    absent = _MISSING.search(str(error))
    return missing(absent[1]) if absent else SqsError(INVALID_VALUE, f"The request is not valid: {error}")


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
    except msgspec.ValidationError as error:
        if b"null" in body:
            return _decode_without_nulls(operation, body, error)
        raise _refusal(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SqsError(MALFORMED, f"The body is not valid JSON: {error}") from None
    except RecursionError:
        raise SqsError(MALFORMED, "The body is nested too deeply.") from None


def _decode_without_nulls(operation: str, body: bytes, error: msgspec.ValidationError) -> SqsRequest:
    """A field that is null is one that is not given, whatever its type. Some clients write them all."""
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(body)), OPERATIONS[operation])
    except msgspec.ValidationError as still:
        raise _refusal(still) from None
    except RecursionError:  # nested as no request is
        raise _refusal(error) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def decode_form(form: Mapping[str, str], *, queue_url: str | None) -> tuple[str, SqsRequest]:
    """The operation and its input. A request to a queue's own address need not name the queue again."""
    operation = form.get("Action")
    if not operation:
        raise missing("Action")
    kind = OPERATIONS.get(operation)
    if kind is None:
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
        raise _refusal(error) from None
