"""The SQS door: boto3 and every other AWS SDK, on the HTTP listener that REST has too.

Theory of operation. A request is of one of two protocols, told apart by its target header; both are decoded to the same
struct, whose class says which operation it is. The operation makes one call to the queues and gives back an answer, a
promise of one, or a coroutine where it takes several steps. The three operations of every message are promises: their
answers are made in the turn in which the log says that they are true, and no task is started for them.

Nothing here outlives a restart but what is written in the queues: SQS's own attributes and tags are in a queue's notes.

Whoever refuses raises: `SqsError` where SQS has words of its own, headrace's errors by the table in `errors`. `failed`
answers in the protocol that the request came by, also what the server refuses on our behalf.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.queue.port import Queues
from headrace.gateways.http import router as http
from headrace.gateways.http.message import Request, Response
from headrace.gateways.http.router import Later, Route
from headrace.gateways.sqs.config import SqsConfig
from headrace.gateways.sqs.errors import to_sqs
from headrace.gateways.sqs.lease import Leasing
from headrace.gateways.sqs.move_task import Moving
from headrace.gateways.sqs.pending import Caller, Outcome, Pending, Sized
from headrace.gateways.sqs.place import Places
from headrace.gateways.sqs.queue_admin import Administration
from headrace.gateways.sqs.receive import Receiving
from headrace.gateways.sqs.send import Sending
from headrace.gateways.sqs.tag import Labelling
from headrace.gateways.sqs.view import Views
from headrace.host.clock import Clock
from headrace.model.errors import HeadraceError
from headrace.security.access_keys import AccessKeys
from headrace.security.sigv4 import Signable, SignatureRefusedError, Verifier
from headrace.wire.sqs import request as requests
from headrace.wire.sqs.answer import Answer
from headrace.wire.sqs.codec import JSON, QUERY, TARGET_PREFIX, Codec, decode_form, decode_json
from headrace.wire.sqs.error import MALFORMED, SqsError
from headrace.wire.sqs.query import parse_form

_ID_HEADER = "x-amzn-RequestId"
_TRACE_HEADER = "x-amzn-trace-id"
QUEUE_PATH = "/{account:[0-9]{12}}/{queue}"

Operation = Callable[[Any, Caller], Outcome]

# Refusals: answered here, so that the server need not take them for failures and log them.
EXPECTED = (SqsError, SignatureRefusedError, HeadraceError)


class SqsGateway:
    """Every operation of SQS over one node's queues."""

    def __init__(
        self,
        queues: Queues,
        *,
        clock: Clock,
        config: SqsConfig,
        keys: AccessKeys | None = None,
        may_delete: bool = True,
    ) -> None:
        self._clock = clock
        self._places = Places(config)
        self._verifier = None if keys is None else Verifier(keys, service="sqs", region=config.region)
        views, changing = Views(queues), asyncio.Lock()
        sending = Sending(queues, views)
        receiving = Receiving(queues, views, self._places)
        leasing = Leasing(queues, views)
        admin = Administration(
            queues, views, self._places, clock=clock, config=config, may_delete=may_delete, changing=changing
        )
        labelling = Labelling(queues, self._places, changing=changing)
        moving = Moving(queues, self._places)
        self._operations: dict[type[requests.SqsRequest], Operation] = {
            requests.AddPermission: labelling.add_permission,
            requests.CancelMessageMoveTask: moving.cancel_message_move_task,
            requests.ChangeMessageVisibility: leasing.change_message_visibility,
            requests.ChangeMessageVisibilityBatch: leasing.change_message_visibility_batch,
            requests.CreateQueue: admin.create_queue,
            requests.DeleteMessage: leasing.delete_message,
            requests.DeleteMessageBatch: leasing.delete_message_batch,
            requests.DeleteQueue: admin.delete_queue,
            requests.GetQueueAttributes: admin.get_queue_attributes,
            requests.GetQueueUrl: admin.get_queue_url,
            requests.ListDeadLetterSourceQueues: admin.list_dead_letter_source_queues,
            requests.ListMessageMoveTasks: moving.list_message_move_tasks,
            requests.ListQueueTags: labelling.list_queue_tags,
            requests.ListQueues: admin.list_queues,
            requests.PurgeQueue: admin.purge_queue,
            requests.ReceiveMessage: receiving.receive_message,
            requests.RemovePermission: labelling.remove_permission,
            requests.SendMessage: sending.send_message,
            requests.SendMessageBatch: sending.send_message_batch,
            requests.SetQueueAttributes: admin.set_queue_attributes,
            requests.StartMessageMoveTask: moving.start_message_move_task,
            requests.TagQueue: labelling.tag_queue,
            requests.UntagQueue: labelling.untag_queue,
        }

    def routes(self) -> list[Route]:
        """What this gateway serves of a port. A GET is its own only where it names an operation, of whichever kind."""

        def has_action(request: Request) -> bool:
            return "Action=" in request.query

        def route(method: str, path: str, when: Callable[[Request], bool] | None = None) -> Route:
            is_signed = self._verifier is not None
            return Route(method, path, self.handle, when, self.failed, is_safe=False, is_signed=is_signed)

        return [
            route("POST", "/"),
            route("GET", "/", has_action),
            # AWS's own examples have the slash.
            *(route(method, path) for path in (QUEUE_PATH, f"{QUEUE_PATH}/") for method in ("POST", "GET")),
        ]

    def handle(self, request: Request) -> http.Outcome | http.Sized:
        """Answer one request. What nothing here expects is raised, and the server logs it."""
        headers = request.headers
        host = headers.get("host", "localhost")
        target = headers.get("x-amz-target")
        codec: Codec
        try:
            if self._verifier is not None:
                signable = Signable(request.method, request.path, request.query, request.headers, request.body)
                self._verifier.verify(signable, now_ms=self._clock.wall_ms())
            if target is not None:
                codec, operation = JSON, target.removeprefix(TARGET_PREFIX)
                value = decode_json(operation, request.body)
            else:
                codec = QUERY
                operation, value = self._decode_form(request, host)
            outcome = self._operations[type(value)](value, Caller(host, headers.get(_TRACE_HEADER)))
        except EXPECTED as error:
            return self.failed(request, error)
        if isinstance(outcome, Pending):
            return self._later(request, outcome, codec, operation)
        if isinstance(outcome, Sized):
            begin = outcome.begin
            return http.Sized(outcome.size, lambda: self._later(request, begin(), codec, operation))
        if isinstance(outcome, Coroutine):
            return self._await(request, outcome, codec, operation)
        return _response(codec, operation, outcome, request.id)

    def _later(self, request: Request, pending: Pending[Any], codec: Codec, operation: str) -> Later[Any]:
        answer = pending.answer

        def render(result: Any) -> Response:
            try:
                return _response(codec, operation, answer(result), request.id)
            except EXPECTED as error:
                return self.failed(request, error)

        return Later(pending.promise, render, pending.cancel, pending.is_idle)

    async def _await(
        self, request: Request, outcome: Coroutine[Any, Any, Answer], codec: Codec, operation: str
    ) -> Response:
        try:
            return _response(codec, operation, await outcome, request.id)
        except EXPECTED as error:
            return self.failed(request, error)

    def _decode_form(self, request: Request, host: str) -> tuple[str, requests.SqsRequest]:
        form = parse_form(request.query)
        if request.method == "POST":
            try:
                form |= parse_form(request.body.decode())
            except UnicodeDecodeError:
                raise SqsError(MALFORMED, "The form is not URL-encoded UTF-8.") from None
        # A request to a queue's own address is about that queue.
        url = self._places.url(host, request.values[1]) if len(request.values) == 2 else None
        return decode_form(form, queue_url=url)

    def failed(self, request: Request, error: Exception) -> Response:
        """A refusal or a failure, in the protocol of the request."""
        refusal = to_sqs(error)
        codec: Codec = JSON if "x-amz-target" in request.headers else QUERY
        body, headers = codec.error(refusal, request.id)
        return Response(
            status=refusal.kind.status,
            content_type=codec.content_type,
            body=body,
            headers=headers,
            id_header=_ID_HEADER,
        )


def _response(codec: Codec, operation: str, answer: Answer, request_id: str) -> Response:
    return Response(
        content_type=codec.content_type,
        body=codec.answer(operation, answer, request_id),
        id_header=_ID_HEADER,
    )
