"""ReceiveMessage: one call to the queue, which waits there, and the messages in SQS's form."""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from uuid import UUID

from headrace.broker.queue.port import Queues
from headrace.gateways.answers import SMALL_BYTES
from headrace.gateways.sqs.message_id import uuid_of
from headrace.gateways.sqs.pending import Caller, Outcome, Pending, Sized
from headrace.gateways.sqs.place import Places, name_of_url
from headrace.gateways.sqs.queue_attribute import COMPUTED, SETTABLE
from headrace.gateways.sqs.send import WRONG_TYPE, received_id, sequence_number
from headrace.gateways.sqs.view import QueueView, Views
from headrace.model.message import (
    DEAD_SENT_HEADER,
    DEAD_SOURCE_HEADER,
    ORIGIN_HEADER,
    Received,
    receives_before,
)
from headrace.wire.sqs import attribute
from headrace.wire.sqs.answer import ReceivedMessage, ReceivedMessages
from headrace.wire.sqs.check import (
    RECEIVE_COUNT_MAX,
    VISIBILITY_S_MAX,
    WAIT_S_MAX,
    check_range,
    check_token,
    is_xml_text,
)
from headrace.wire.sqs.error import INVALID_ATTRIBUTE_NAME, SqsError, invalid_value
from headrace.wire.sqs.request import AttributeValue, ReceiveMessage

SYSTEM_ATTRIBUTES = (
    "AWSTraceHeader",
    "ApproximateFirstReceiveTimestamp",
    "ApproximateReceiveCount",
    "DeadLetterQueueSourceArn",
    "MessageDeduplicationId",
    "MessageGroupId",
    "SenderId",
    "SentTimestamp",
    "SequenceNumber",
)
# The older parameter takes the names of queue attributes too, which no message has.
_KNOWN_NAMES = frozenset({"All", *SYSTEM_ATTRIBUTES, *SETTABLE, *COMPUTED})
_TRACE = attribute.SYSTEM_HEADER_PREFIX + attribute.TRACE_HEADER
# What clients hold in place of a receipt where a message was acknowledged before it was handed out.
ACKNOWLEDGED_RECEIPT = "acknowledged"
# Set on a message whose body is no text: SQS's bodies are, so it is sent as base64.
ENCODING_ATTRIBUTE = "headrace-encoding"
_BASE64 = AttributeValue(string_value="base64", data_type="String")


class Receiving:
    """The operation that receives."""

    def __init__(self, queues: Queues, views: Views, places: Places) -> None:
        self._queues = queues
        self._views = views
        self._places = places

    def receive_message(self, request: ReceiveMessage, caller: Caller) -> Outcome:
        view = self._views.of(name_of_url(request.queue_url))
        count = request.max_number_of_messages
        lease_s, wait_s = request.visibility_timeout, request.wait_time_seconds
        if count is not None:
            reason = f"Must be between 1 and {RECEIVE_COUNT_MAX}, if provided."
            check_range(count, "MaxNumberOfMessages", 1, RECEIVE_COUNT_MAX, reason)
        if lease_s is not None:
            check_range(lease_s, "VisibilityTimeout", 0, VISIBILITY_S_MAX)
        if wait_s is not None:
            check_range(wait_s, "WaitTimeSeconds", 0, WAIT_S_MAX)
        attempt_id = request.receive_request_attempt_id
        if attempt_id is not None:
            check_token(attempt_id, "ReceiveRequestAttemptId")
            if not view.is_fifo:
                raise invalid_value(attempt_id, "ReceiveRequestAttemptId", WRONG_TYPE)
        system = _system_names(request)
        names = request.message_attribute_names

        def begin() -> Pending[list[Received]]:
            receive = self._queues.receive(
                view.name,
                count_max=count or 1,
                lease_ms=None if lease_s is None else lease_s * 1000,
                wait_ms=view.wait_ms if wait_s is None else wait_s * 1000,
                attempt_id=attempt_id,
            )
            # A message is in the dead-letter queue by the time the receive that found it worn out is answered.
            promise = self._queues.after_moves(view.name, receive.promise)
            return Pending(promise, answer, receive.cancel, lambda: receive.is_waiting)

        def answer(received: list[Received]) -> ReceivedMessages:
            if not received:
                return ReceivedMessages()
            return ReceivedMessages(messages=[self._message(one, view, system, names) for one in received])

        size = self._queues.answer_bytes(view.name, count or 1)
        return begin() if size <= SMALL_BYTES else Sized(size, begin)

    def _message(
        self, received: Received, view: QueueView, system: Sequence[str], names: Sequence[str]
    ) -> ReceivedMessage:
        attributes = attribute.wanted_attributes(received.headers, names) if names else {}
        body = _text(received.body)
        if body is None:
            body = b64encode(received.body).decode()
            if attribute.is_wanted(ENCODING_ATTRIBUTE, names):
                attributes[ENCODING_ATTRIBUTE] = _BASE64
            md5_of_body = hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
        else:
            md5_of_body = hashlib.md5(received.body, usedforsecurity=False).hexdigest()
        return ReceivedMessage(
            message_id=self._id(received, view),
            receipt_handle=received.receipt or ACKNOWLEDGED_RECEIPT,
            md5_of_body=md5_of_body,
            body=body,
            attributes=(self._system_attributes(received, view, system) or None) if system else None,
            md5_of_message_attributes=attribute.md5_of(attributes) if attributes else None,
            message_attributes=attributes or None,
        )

    def _id(self, received: Received, view: QueueView) -> str:
        for name, value in received.headers:
            if name == ORIGIN_HEADER:
                # Moved: the id is of its place in the queue that it was sent to first.
                try:
                    return uuid_of(UUID(value.decode()), received.id)
                except ValueError:
                    break
        return view.ids.at(received.partition, received.offset)

    def _system_attributes(self, received: Received, view: QueueView, wanted: Sequence[str]) -> dict[str, str]:
        group = None if received.key is None else received.key.decode("utf-8", "replace")
        found = {
            "SenderId": self._places.account,
            "SentTimestamp": str(received.sent_ms),
            "ApproximateReceiveCount": str(received.attempt + receives_before(received.headers)),
            "ApproximateFirstReceiveTimestamp": str(received.first_received_ms),
        }
        if group is not None:
            found["MessageGroupId"] = group
        if view.is_fifo:
            found["SequenceNumber"] = sequence_number(received.offset)
            # A moved message leaves the id that it was sent with behind, so that it hinders nobody who sends that id
            # again; one that came by another door may have none. As in SQS, the message's own id is there instead.
            id = received.deduplication_id
            found["MessageDeduplicationId"] = self._id(received, view) if id is None else received_id(id, group, view)
        for name, value in received.headers:
            if name == DEAD_SOURCE_HEADER:
                found["DeadLetterQueueSourceArn"] = self._places.arn(value.decode("utf-8", "replace"))
            elif name == DEAD_SENT_HEADER and not view.is_fifo:
                # A dead letter of a standard queue keeps the time at which it was sent first.
                found["SentTimestamp"] = value.decode("utf-8", "replace")
            elif name == _TRACE and (trace := attribute.from_header(value)) is not None:
                found["AWSTraceHeader"] = trace.string_value or ""
        return found if "All" in wanted else {name: found[name] for name in wanted if name in found}


def _system_names(request: ReceiveMessage) -> list[str]:
    """The newer parameter and the older one ask for the same."""
    names = [*request.attribute_names, *request.message_system_attribute_names]
    for name in names:
        if name not in _KNOWN_NAMES:
            raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
    return names


def _text(body: bytes) -> str | None:
    try:
        return body.decode() if is_xml_text(body) else None
    except UnicodeDecodeError:
        return None
