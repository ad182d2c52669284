"""The routes of every message, answered close to the parser: send, receive, acknowledge, and what moves a lease.

Each handler reads its request, makes one call of the broker, and gives back a Later whose promise is rendered in the
turn in which it is kept. No task and no framework is on this road.

Most sends are one text in JSON and no options. That is decoded by itself; whatever else was sent, or is wrong, is read
by `read_send`, which knows every form. How an answer is written depends on two headers, and is remembered by them.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import msgspec

from headrace.broker.queue.port import Extension, Queues, Rejection, Release
from headrace.gateways.answers import SMALL_BYTES
from headrace.gateways.http.message import JSON, RefusedError, Request, Response
from headrace.gateways.http.router import Later, Route, Sized
from headrace.gateways.rest import form
from headrace.gateways.rest.decode import (
    Body,
    Form,
    answer_form,
    answer_form_of,
    decode,
    form_of,
    in_field,
    invalid_field,
    read_count,
    read_query,
    read_seconds,
    unsupported_type,
    wrong_shape,
)
from headrace.gateways.rest.form import milliseconds, milliseconds_or_none
from headrace.gateways.rest.raw import raw_message
from headrace.gateways.rest.value import (
    message_of,
    message_of_packed,
    messages_of,
    shown_body,
    shown_headers,
    shown_text,
)
from headrace.model.errors import HeadraceError
from headrace.model.message import HEADER_PREFIX, Message, Received, Sent, plain_message

MSGPACK = "application/msgpack"
WAIT_SECONDS_MAX = 50
MESSAGES = "/queues/{queue}/messages"
MESSAGE = "/queues/{queue}/messages/{receipt_handle}"

_decode_text = msgspec.json.Decoder(form.TextAlone).decode
_SEND = msgspec.json.Decoder(form.Send)
_PACKED = msgspec.msgpack.Decoder(form.PackedMessages)
_ACKNOWLEDGEMENTS = Body(form.Acknowledgements)
_EXTENSIONS = Body(form.Extensions)
_RELEASES = Body(form.Releases)
_REJECTIONS = Body(form.Rejections)
_CHANGE = Body(form.LeaseChange)
_RECEIVE_FIELDS = frozenset({"batch_size", "wait", "lease", "attempt_id"})
_NO_FIELDS: frozenset[str] = frozenset()
_DONE = form.Result()
_NO_CONTENT = Response(status=204)
# By a name of its own: a member of an enumeration is looked up through its class, for the price of two calls.
_MSGPACK = Form.MSGPACK

to_json = msgspec.json.Encoder().encode
to_msgpack = msgspec.msgpack.Encoder().encode


def message_routes(queues: Queues, *, wait_seconds_max: float = WAIT_SECONDS_MAX) -> list[Route]:
    """The routes of every message."""
    messages = MessageRoutes(queues, wait_seconds_max=wait_seconds_max)
    return [
        Route("POST", MESSAGES, messages.send),
        Route("GET", MESSAGES, messages.receive, is_safe=False),
        Route("DELETE", MESSAGE, messages.acknowledge_one),
        Route("PATCH", MESSAGE, messages.change_one),
        Route("POST", "/queues/{queue}/acknowledgements", messages.acknowledge),
        Route("POST", "/queues/{queue}/extensions", messages.extend),
        Route("POST", "/queues/{queue}/releases", messages.release),
        Route("POST", "/queues/{queue}/rejections", messages.reject),
    ]


def encoded(value: Any, shape: Form, status: int = 200) -> Response:
    if shape is _MSGPACK:
        return Response(status=status, content_type=MSGPACK, body=to_msgpack(value))
    return Response(status=status, content_type=JSON, body=to_json(value) + b"\n")


class Wanted(NamedTuple):
    """What a receive asks for."""

    count_max: int
    wait_ms: int
    lease_ms: int | None
    attempt_id: str | None


@lru_cache(maxsize=256)
def _wanted(query: str, wait_seconds_max: float) -> Wanted:
    fields = read_query(query, _RECEIVE_FIELDS)
    wait = read_seconds(fields, "wait", at_most=wait_seconds_max)
    attempt_id = fields.get("attempt_id")
    if attempt_id is not None and not 1 <= len(attempt_id) <= form.TEXT_LENGTH_MAX:
        raise invalid_field("attempt_id", f"it takes 1 to {form.TEXT_LENGTH_MAX} characters")
    return Wanted(
        read_count(fields, "batch_size", at_least=1, at_most=form.ENTRIES_MAX) or 1,
        milliseconds(wait) if wait is not None else 0,
        milliseconds_or_none(read_seconds(fields, "lease", at_most=form.LEASE_SECONDS_MAX)),
        attempt_id,
    )


class MessageRoutes:
    def __init__(self, queues: Queues, *, wait_seconds_max: float) -> None:
        self._queues = queues
        self._wait_seconds_max = wait_seconds_max

    # Sending.

    def send(self, request: Request) -> Later[Any]:
        headers = request.headers
        is_json, shape, render = _send_forms(headers.get("content-type"), headers.get("accept"))
        is_alone = is_json and not request.query and HEADER_PREFIX not in " ".join(headers)
        message = read_text(request.body) if is_alone else None
        if message is not None:
            return Later(self._queues.send_one(request.values[0], message), render)
        messages, request_id, is_single = read_send(request)
        if is_single:
            return Later(self._queues.send_one(request.values[0], messages[0]), render)
        promise = self._queues.send(request.values[0], messages, request_id=request_id)
        return Later(promise, lambda outcomes: send_results(outcomes, shape))

    # Receiving.

    def receive(self, request: Request) -> Later[list[Received]] | Sized:
        wanted = _wanted(request.query, self._wait_seconds_max)
        size = self._queues.answer_bytes(request.values[0], wanted.count_max)
        if size <= SMALL_BYTES:
            return self._receive(request, wanted)
        return Sized(size, partial(self._receive, request, wanted))

    def _receive(self, request: Request, wanted: Wanted) -> Later[list[Received]]:
        receive = self._queues.receive(
            request.values[0],
            count_max=wanted.count_max,
            lease_ms=wanted.lease_ms,
            wait_ms=wanted.wait_ms,
            attempt_id=wanted.attempt_id,
        )
        render = _render_packed if answer_form(request) is Form.MSGPACK else _render
        return Later(receive.promise, render, receive.cancel, lambda: receive.is_waiting)

    # Leases, one at a time.

    def acknowledge_one(self, request: Request) -> Later[list[HeadraceError | None]]:
        queue, receipt = request.values
        return Later(self._queues.acknowledge(queue, (receipt,)), _none_or_raise)

    def change_one(self, request: Request) -> Later[list[HeadraceError | None]]:
        queue, receipt = request.values
        change: form.LeaseChange = _read(_CHANGE, request)
        given = [value for value in (change.lease, change.release, change.reject) if value is not msgspec.UNSET]
        if len(given) != 1:
            raise invalid_field("lease", "give exactly one of lease, release and reject")
        if isinstance(change.release, form.ReleaseOptions):
            asked = change.release
            release = Release(receipt, milliseconds_or_none(asked.delay), asked.unbegun, asked.error)
            return Later(self._queues.release(queue, (release,)), _none_or_raise)
        if isinstance(change.reject, form.RejectOptions):
            return Later(self._queues.reject(queue, (Rejection(receipt, change.reject.reason),)), _none_or_raise)
        assert not isinstance(change.lease, msgspec.UnsetType)
        return Later(self._queues.extend(queue, (Extension(receipt, milliseconds(change.lease)),)), _none_or_raise)

    # Leases, several at a time.

    def acknowledge(self, request: Request) -> Later[Any]:
        receipts = read_acknowledgements(request)
        return Later(self._queues.acknowledge(request.values[0], receipts), results(request))

    def extend(self, request: Request) -> Later[Any]:
        body = _read(_EXTENSIONS, request)
        extensions = [Extension(entry.receipt_handle, milliseconds(entry.lease)) for entry in body.extensions]
        return Later(self._queues.extend(request.values[0], extensions), results(request))

    def release(self, request: Request) -> Later[Any]:
        body = _read(_RELEASES, request)
        releases = [
            Release(entry.receipt_handle, milliseconds_or_none(entry.delay), entry.unbegun, entry.error)
            for entry in body.releases
        ]
        return Later(self._queues.release(request.values[0], releases), results(request))

    def reject(self, request: Request) -> Later[Any]:
        body = _read(_REJECTIONS, request)
        rejections = [Rejection(entry.receipt_handle, entry.reason) for entry in body.rejections]
        return Later(self._queues.reject(request.values[0], rejections), results(request))


class _SendForms(NamedTuple):
    """What the headers of a send say: whether it is JSON, how it is answered, and what does that for one message."""

    is_json: bool
    shape: Form
    render: Callable[[Sent], Response]


@lru_cache(maxsize=256)
def _send_forms(content_type: str | None, accept: str | None) -> _SendForms:
    shape = answer_form_of(content_type, accept)
    return _SendForms(form_of(content_type) is Form.JSON, shape, partial(stored, shape))


def read_text(body: bytes) -> Message | None:
    """The message of a body in JSON that is one text and nothing else; None for everything else, right or wrong."""
    try:
        return plain_message(_decode_text(body).message.encode())
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def read_send(request: Request) -> tuple[Sequence[Message], str | None, bool]:
    """What is sent, the id of the request if it has one, and whether it is one message rather than a list of them."""
    match form_of(request.headers.get("content-type")):
        case Form.JSON:
            _check_nothing_beside(request)
            body = decode(_SEND, request.body)
            if body.messages is msgspec.UNSET:
                return (_single(body),), None, True
            _check_only_messages(body)
            return messages_of(body.messages), body.request_id, False
        case Form.MSGPACK:
            _check_nothing_beside(request)
            packed = decode(_PACKED, request.body)
            return [message_of_packed(entry) for entry in packed.messages], packed.request_id, False
        case Form.RAW:
            return (raw_message(request),), None, True
        case _:
            raise unsupported_type("application/json, application/msgpack, or the message itself in its own type")


def _check_nothing_beside(request: Request) -> None:
    """Options beside a body that has places for them would be obeyed by nobody, and nobody would see it."""
    read_query(request.query, _NO_FIELDS)
    for name in request.headers:
        if name.startswith(HEADER_PREFIX):
            raise invalid_field(name, "it is for bodies that are the message itself; put the option into each message")


def read_acknowledgements(request: Request) -> Sequence[str]:
    body: form.Acknowledgements = _read(_ACKNOWLEDGEMENTS, request)
    return body.receipt_handles


def _read(shape: Body, request: Request) -> Any:
    """A body that has places for everything; a field of the query would be passed over in silence."""
    read_query(request.query, _NO_FIELDS)
    return shape.read(request.body, request.headers.get("content-type"))


def _single(body: form.Send) -> Message:
    if body.request_id is not None:
        raise invalid_field("request_id", "it is for several messages; give a single one a deduplication_id")
    if body.message is msgspec.UNSET:
        raise wrong_shape("Object missing required field `message`, or `messages` for several")
    try:
        return message_of(body)
    except RefusedError as error:
        raise in_field(error, "message") from None


def _check_only_messages(body: form.Send) -> None:
    """Options beside `messages` would be options of nothing."""
    alone = form.Send(messages=body.messages, request_id=body.request_id)
    if body != alone:
        for name in msgspec.structs.fields(form.Send):
            if getattr(body, name.name) != getattr(alone, name.name):
                raise invalid_field(name.name, "beside messages it has no meaning; put it into each of them")


def stored(shape: Form, sent: Sent) -> Response:
    return encoded(form.Stored(*sent), shape, 201)


def _failure(error: HeadraceError) -> form.Failure:
    return form.Failure(error.code, str(error), error.retriable)


def send_results(outcomes: Sequence[Sent | HeadraceError], shape: Form) -> Response:
    places = [
        form.SendResult(one.id, one.partition, one.offset, one.is_duplicate)
        if isinstance(one, Sent)
        else form.SendResult(error=_failure(one))
        for one in outcomes
    ]
    return encoded(form.SendResults(places), shape)


def results(request: Request) -> Callable[[Sequence[HeadraceError | None]], Response]:
    shape = answer_form(request)

    def render(outcomes: Sequence[HeadraceError | None]) -> Response:
        done = [_DONE if one is None else form.Result(_failure(one)) for one in outcomes]
        return encoded(form.Results(done), shape)

    return render


def _none_or_raise(outcomes: Sequence[HeadraceError | None]) -> Response:
    if outcomes[0] is not None:
        raise outcomes[0]
    return _NO_CONTENT


def _render(messages: Sequence[Received]) -> Response:
    return encoded({"messages": [_shown(message) for message in messages]}, Form.JSON)


def _render_packed(messages: Sequence[Received]) -> Response:
    return encoded({"messages": [_packed(message) for message in messages]}, Form.MSGPACK)


def _shown(message: Received) -> form.ReceivedMessage:
    body, encoding = shown_body(message.body, message.headers)
    place = message.place
    return form.ReceivedMessage(
        id=place,
        body=body,
        encoding=encoding,
        receipt_handle=message.receipt,
        attempt=message.attempt,
        priority=message.priority,
        sent_ms=message.sent_ms,
        first_received_ms=message.first_received_ms,
        lease=message.lease_ms / 1_000,
        partition=message.partition,
        offset=message.offset,
        key=None if message.key is None else shown_text(message.key),
        headers=shown_headers(message.headers),
        deduplication_id=message.deduplication_id,
        first_id=None if message.id == place else message.id,
    )


def _packed(message: Received) -> form.PackedReceived:
    place = message.place
    return form.PackedReceived(
        id=place,
        body=message.body,
        receipt_handle=message.receipt,
        attempt=message.attempt,
        priority=message.priority,
        sent_ms=message.sent_ms,
        first_received_ms=message.first_received_ms,
        lease=message.lease_ms / 1_000,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        headers=message.headers,
        deduplication_id=message.deduplication_id,
        first_id=None if message.id == place else message.id,
    )
