"""SendMessage and its batch."""

import hashlib
from collections.abc import Sequence

import msgspec

from headrace.broker.queue.port import Queues
from headrace.gateways.sqs.errors import to_sqs
from headrace.gateways.sqs.pending import Caller, Pending
from headrace.gateways.sqs.place import name_of_url
from headrace.gateways.sqs.view import QueueView, Views
from headrace.model.errors import HeadraceError
from headrace.model.message import Headers, Message, Sent, plain_message
from headrace.wire.sqs import attribute
from headrace.wire.sqs.answer import Batch, FailedEntry, SentEntry, SentMessage
from headrace.wire.sqs.check import (
    DELAY_S_MAX,
    MESSAGE_BYTES_MAX,
    check_body,
    check_entries,
    check_range,
    check_token,
)
from headrace.wire.sqs.error import BATCH_TOO_LONG, INVALID_VALUE, SENDER, SqsError, invalid_value, missing
from headrace.wire.sqs.request import SendEntry, SendMessage, SendMessageBatch

WRONG_TYPE = "The request include parameter that is not valid for this queue type."
# Between a group and a deduplication id: what neither of them may hold, so that no two pairs are written alike.
_GROUP_END = " "
# What stands there in messages of earlier versions.
_OLD_GROUP_END = ":"


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A message that may be sent, and what its answer says about it."""

    message: Message
    md5_of_attributes: str | None = None
    md5_of_system_attributes: str | None = None

    @property
    def md5_of_body(self) -> str:
        """Asked for with the answer, which is made while the disk is waited for: nothing else here takes as long."""
        return hashlib.md5(self.message.body, usedforsecurity=False).hexdigest()


def size_of(request: SendMessage | SendEntry) -> int:
    """What counts towards the limits: body, and names, types and values of attributes."""
    size = len(request.message_body) if request.message_body.isascii() else len(request.message_body.encode())
    return size + attribute.size_of(request.message_attributes) if request.message_attributes else size


def prepare(request: SendMessage | SendEntry, view: QueueView, trace: str | None = None) -> Prepared:
    """Check a message; `trace` is what the request's own header says, where the message says nothing."""
    body = check_body(request.message_body)
    if view.is_fifo:
        _check_complete(request, view)
    if trace is None and not view.is_fifo and len(body) <= view.message_bytes_max and _is_plain(request):
        return Prepared(plain_message(body))
    headers: Headers = ()
    md5_of_attributes = md5_of_system_attributes = None
    size = len(body)
    if request.message_attributes:
        attribute.check_attributes(request.message_attributes)
        size += attribute.size_of(request.message_attributes)
        headers = attribute.to_headers(request.message_attributes)
        md5_of_attributes = attribute.md5_of(request.message_attributes)
    if request.message_system_attributes:
        attribute.check_system_attributes(request.message_system_attributes)
        headers += attribute.to_headers(request.message_system_attributes, attribute.SYSTEM_HEADER_PREFIX)
        md5_of_system_attributes = attribute.md5_of(request.message_system_attributes)
    elif trace:
        headers += attribute.trace_header(trace)
    if size > view.message_bytes_max:
        # SQS says it in other words of an entry of a batch.
        wrong = "cannot be validated" if isinstance(request, SendEntry) else "are invalid"
        reason = f"Message must be shorter than {view.message_bytes_max} bytes."
        raise SqsError(INVALID_VALUE, f"One or more parameters {wrong}. Reason: {reason}")
    group = request.message_group_id
    if group is not None:
        check_token(group, "MessageGroupId")
    deduplication_id = _deduplication_id(request, view, body)
    return Prepared(
        Message(
            body,
            key=None if group is None else group.encode(),
            headers=headers,
            delay_ms=_delay_ms(request.delay_seconds, view),
            deduplication_id=deduplication_id,
        ),
        md5_of_attributes,
        md5_of_system_attributes,
    )


def _is_plain(request: SendMessage | SendEntry) -> bool:
    """Whether nothing is said of a message but its body, as of most."""
    return (
        request.message_attributes is None
        and request.message_group_id is None
        and request.delay_seconds is None
        and request.message_deduplication_id is None
        and request.message_system_attributes is None
    )


def _delay_ms(delay_s: int | None, view: QueueView) -> int | None:
    if delay_s is None:
        return None
    check_range(delay_s, "DelaySeconds", 0, DELAY_S_MAX, f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}.")
    if not view.is_fifo:
        return delay_s * 1000
    if delay_s:
        raise invalid_value(delay_s, "DelaySeconds", WRONG_TYPE)
    return None


def _check_complete(request: SendMessage | SendEntry, view: QueueView) -> None:
    """Refuse a message without what a FIFO queue asks of each. A batch with such an entry is refused as a whole."""
    if not request.message_group_id:
        raise missing("MessageGroupId")
    if request.message_deduplication_id is None and not view.has_content_deduplication:
        raise SqsError(
            INVALID_VALUE,
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly",
        )


def _deduplication_id(request: SendMessage | SendEntry, view: QueueView, body: bytes) -> str | None:
    given = request.message_deduplication_id
    if given is not None:
        if not view.is_fifo:
            raise invalid_value(given[:128], "MessageDeduplicationId", WRONG_TYPE)
        check_token(given, "MessageDeduplicationId")
    if not view.is_deduplicated_by_group or not view.is_fifo:
        return given
    # Queues know one space of ids, so the group becomes part of the id. `received_id` takes it off again.
    return f"{request.message_group_id}{_GROUP_END}{given or hashlib.sha256(body).hexdigest()}"


def received_id(id: str, group: str | None, view: QueueView) -> str:
    """The deduplication id that a message was sent with."""
    if not view.is_deduplicated_by_group:
        return id
    prefix = f"{group}{_GROUP_END}"
    return id.removeprefix(prefix if id.startswith(prefix) else f"{group}{_OLD_GROUP_END}")


def sequence_number(offset: int) -> str:
    """Larger for every later message of a group, in the 20 digits of SQS."""
    return f"{offset:020d}"


class Sending:
    """The operations that send."""

    def __init__(self, queues: Queues, views: Views) -> None:
        self._queues = queues
        self._views = views

    def send_message(self, request: SendMessage, caller: Caller) -> Pending[Sent]:
        view = self._views.of(name_of_url(request.queue_url))
        prepared = prepare(request, view, caller.trace)

        def answer(sent: Sent) -> SentMessage:
            return SentMessage(
                md5_of_message_body=prepared.md5_of_body,
                md5_of_message_attributes=prepared.md5_of_attributes,
                md5_of_message_system_attributes=prepared.md5_of_system_attributes,
                message_id=view.ids.at(sent.partition, sent.offset),
                sequence_number=sequence_number(sent.offset) if view.is_fifo else None,
            )

        return Pending(self._queues.send_one(view.name, prepared.message), answer)

    def send_message_batch(
        self, request: SendMessageBatch, caller: Caller
    ) -> Batch | Pending[list[Sent | HeadraceError]]:
        view = self._views.of(name_of_url(request.queue_url))
        check_entries(request.entries, "SendMessageBatchRequestEntry")
        size = sum(size_of(entry) for entry in request.entries)
        if size > MESSAGE_BYTES_MAX:
            raise SqsError(
                BATCH_TOO_LONG,
                f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent {size} bytes.",
            )
        if view.is_fifo:
            for entry in request.entries:
                _check_complete(entry, view)
        ready: list[tuple[str, Prepared]] = []
        failed: list[FailedEntry] = []
        for entry in request.entries:
            try:
                ready.append((entry.id, prepare(entry, view, caller.trace)))
            except SqsError as error:
                failed.append(failed_entry(entry.id, error))
        if not ready:
            return Batch(failed=failed)
        promise = self._queues.send(view.name, [prepared.message for _, prepared in ready])
        return Pending(promise, lambda outcomes: _batch(view, ready, outcomes, failed))


def _batch(
    view: QueueView,
    ready: Sequence[tuple[str, Prepared]],
    outcomes: Sequence[Sent | HeadraceError],
    failed: list[FailedEntry],
) -> Batch:
    successful = []
    for (id, prepared), outcome in zip(ready, outcomes, strict=True):
        if isinstance(outcome, HeadraceError):
            failed.append(failed_entry(id, outcome))
            continue
        successful.append(
            SentEntry(
                id=id,
                md5_of_message_body=prepared.md5_of_body,
                md5_of_message_attributes=prepared.md5_of_attributes,
                md5_of_message_system_attributes=prepared.md5_of_system_attributes,
                message_id=view.ids.at(outcome.partition, outcome.offset),
                sequence_number=sequence_number(outcome.offset) if view.is_fifo else None,
            )
        )
    return Batch(successful=successful, failed=failed)


def failed_entry(id: str, error: Exception) -> FailedEntry:
    refusal = to_sqs(error)
    return FailedEntry(
        id=id, sender_fault=refusal.kind.fault == SENDER, code=refusal.kind.code, message=refusal.message
    )
