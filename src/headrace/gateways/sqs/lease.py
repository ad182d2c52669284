"""DeleteMessage and ChangeMessageVisibility, and their batches: what is done with a receipt."""

from collections.abc import Sequence

from headrace.broker.promise import Promise
from headrace.broker.queue.port import Extension, Queues, Release
from headrace.gateways.sqs.pending import Caller, Pending
from headrace.gateways.sqs.place import name_of_url
from headrace.gateways.sqs.receive import ACKNOWLEDGED_RECEIPT
from headrace.gateways.sqs.send import failed_entry
from headrace.gateways.sqs.view import QueueView, Views
from headrace.model.errors import HeadraceError, InvalidReceiptError, InvalidRequestError, StaleReceiptError
from headrace.wire.sqs.answer import NOTHING, Answer, Batch, DoneEntry, FailedEntry
from headrace.wire.sqs.check import VISIBILITY_S_MAX, check_entries, check_range
from headrace.wire.sqs.error import INVALID_RECEIPT, NOT_IN_FLIGHT, SqsError, invalid_value, missing
from headrace.wire.sqs.request import (
    ChangeMessageVisibility,
    ChangeMessageVisibilityBatch,
    DeleteMessage,
    DeleteMessageBatch,
    VisibilityEntry,
)

Outcomes = list[HeadraceError | None]

_SHOWN_MAX = 1_024  # characters of a receipt handle in an error
_VISIBILITY_RANGE = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_S_MAX}."


def _invalid_receipt(receipt: str) -> SqsError:
    return SqsError(
        INVALID_RECEIPT, f'The input receipt handle "{receipt[:_SHOWN_MAX]}" is not a valid receipt handle.'
    )


def _refused_delete(error: HeadraceError | None, receipt: str, view: QueueView) -> Exception | None:
    """What deleting with a receipt came to. A standard queue forgives a receipt that is not the newest one."""
    if isinstance(error, StaleReceiptError):
        if not view.is_fifo:
            return None
        return invalid_value(receipt[:_SHOWN_MAX], "ReceiptHandle", "The receipt handle has expired.")
    if isinstance(error, InvalidReceiptError):
        # Where messages are acknowledged before they are handed out, clients delete what is gone.
        if view.is_at_most_once and receipt == ACKNOWLEDGED_RECEIPT:
            return None
        return _invalid_receipt(receipt)
    return error


def _refused_change(error: HeadraceError | None, receipt: str, lease_s: int, view: QueueView) -> Exception | None:
    """What changing the visibility came to."""
    if isinstance(error, StaleReceiptError):
        return (
            _unavailable(receipt)
            if error.is_gone
            else SqsError(NOT_IN_FLIGHT, "The specified message isn't in flight.")
        )
    if isinstance(error, InvalidReceiptError):
        is_acknowledged = view.is_at_most_once and receipt == ACKNOWLEDGED_RECEIPT
        return _unavailable(receipt) if is_acknowledged else _invalid_receipt(receipt)
    if isinstance(error, InvalidRequestError):
        reason = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_S_MAX} seconds]"
        return invalid_value(lease_s, "VisibilityTimeout", reason)
    return error


def _unavailable(receipt: str) -> SqsError:
    reason = "Message does not exist or is not available for visibility timeout change."
    return invalid_value(receipt[:_SHOWN_MAX], "ReceiptHandle", reason)


class Leasing:
    """The operations on receipts."""

    def __init__(self, queues: Queues, views: Views) -> None:
        self._queues = queues
        self._views = views

    def delete_message(self, request: DeleteMessage, caller: Caller) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        receipt = request.receipt_handle
        if not receipt:
            raise missing("ReceiptHandle")

        def answer(outcomes: Outcomes) -> Answer:
            refused = _refused_delete(outcomes[0], receipt, view)
            if refused is not None:
                raise refused
            return NOTHING

        return Pending(self._delete(view, (receipt,)), answer)

    def _delete(self, view: QueueView, receipts: Sequence[str]) -> Promise[Outcomes]:
        # A standard queue deletes with the newest receipt however late; FIFO refuses it once its lease has expired.
        return self._queues.acknowledge(view.name, receipts, may_be_late=not view.is_fifo)

    def delete_message_batch(self, request: DeleteMessageBatch, caller: Caller) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        entries = request.entries
        check_entries(entries, "DeleteMessageBatchRequestEntry")

        def answer(outcomes: Outcomes) -> Answer:
            refusals = [
                _refused_delete(outcome, entry.receipt_handle, view)
                if entry.receipt_handle
                else missing("ReceiptHandle")
                for outcome, entry in zip(outcomes, entries, strict=True)
            ]
            return _batch([entry.id for entry in entries], refusals)

        return Pending(self._delete(view, [entry.receipt_handle for entry in entries]), answer)

    def change_message_visibility(self, request: ChangeMessageVisibility, caller: Caller) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        receipt, lease_s = request.receipt_handle, request.visibility_timeout
        if not receipt:
            raise missing("ReceiptHandle")
        check_range(lease_s, "VisibilityTimeout", 0, VISIBILITY_S_MAX, _VISIBILITY_RANGE)

        def answer(outcomes: Outcomes) -> Answer:
            refused = _refused_change(outcomes[0], receipt, lease_s, view)
            if refused is not None:
                raise refused
            return NOTHING

        return Pending(self._change(view, receipt, lease_s), answer)

    def _change(self, view: QueueView, receipt: str, lease_s: int) -> Promise[Outcomes]:
        # A standard queue takes every receipt of a message that no consumer has; FIFO none whose lease has expired.
        may_be_late = not view.is_fifo
        # A lease of no length gives the message back now, whatever the queue's back-off.
        if lease_s == 0:
            return self._queues.release(view.name, (Release(receipt, 0),), may_be_late=may_be_late)
        return self._queues.extend(view.name, (Extension(receipt, lease_s * 1000),), may_be_late=may_be_late)

    async def change_message_visibility_batch(self, request: ChangeMessageVisibilityBatch, caller: Caller) -> Answer:
        view = self._views.of(name_of_url(request.queue_url))
        entries = request.entries
        check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
        # All are asked before any is waited for, so that they are written together.
        asked = [_refused_entry(entry) or self._change(view, *_change_of(entry)) for entry in entries]
        refusals = []
        for entry, outcome in zip(entries, asked, strict=True):
            if isinstance(outcome, Promise):
                refusals.append(_refused_change((await outcome)[0], *_change_of(entry), view))
            else:
                refusals.append(outcome)
        return _batch([entry.id for entry in entries], refusals)


def _change_of(entry: VisibilityEntry) -> tuple[str, int]:
    assert entry.visibility_timeout is not None
    return entry.receipt_handle, entry.visibility_timeout


def _refused_entry(entry: VisibilityEntry) -> Exception | None:
    if not entry.receipt_handle:
        return missing("ReceiptHandle")
    if entry.visibility_timeout is None:
        return missing("VisibilityTimeout")
    try:
        check_range(entry.visibility_timeout, "VisibilityTimeout", 0, VISIBILITY_S_MAX, _VISIBILITY_RANGE)
    except SqsError as error:
        return error
    return None


def _batch(ids: Sequence[str], refusals: Sequence[Exception | None]) -> Batch:
    successful: list[DoneEntry] = []
    failed: list[FailedEntry] = []
    for id, refused in zip(ids, refusals, strict=True):
        if refused is None:
            successful.append(DoneEntry(id=id))
        else:
            failed.append(failed_entry(id, refused))
    return Batch(successful=successful, failed=failed)
