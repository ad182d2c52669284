"""DeleteMessage and ChangeMessageVisibility, and their batches: what is done with a receipt."""

from collections.abc import Sequence

from headrace.broker.promise import Promise
from headrace.broker.queue.port import Extension, Queues, Release
from headrace.gateways.sqs.pending import Pending
from headrace.gateways.sqs.place import name_of_url
from headrace.gateways.sqs.receive import ACKNOWLEDGED_RECEIPT
from headrace.gateways.sqs.send import failed_entry
from headrace.gateways.sqs.view import QueueView, Views
from headrace.model.errors import HeadraceError, InvalidReceiptError, StaleReceiptError
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


def _invalid_receipt(receipt: str) -> SqsError:
    return SqsError(INVALID_RECEIPT, f'The input receipt handle "{receipt[:200]}" is not a valid receipt handle.')


def _refused_delete(error: HeadraceError | None, receipt: str, view: QueueView) -> Exception | None:
    """What deleting with a receipt came to. A standard queue forgives a receipt that is not the newest one."""
    if isinstance(error, StaleReceiptError):
        if not view.is_fifo:
            return None
        return invalid_value(receipt[:200], "ReceiptHandle", "The receipt handle has expired.")
    if isinstance(error, InvalidReceiptError):
        # Where messages are acknowledged before they are handed out, clients delete what is gone.
        if view.is_at_most_once and receipt == ACKNOWLEDGED_RECEIPT:
            return None
        return _invalid_receipt(receipt)
    return error


def _refused_change(error: HeadraceError | None, receipt: str) -> Exception | None:
    if isinstance(error, StaleReceiptError):
        return SqsError(NOT_IN_FLIGHT, "The specified message isn't in flight: its receipt handle has expired.")
    if isinstance(error, InvalidReceiptError):
        return _invalid_receipt(receipt)
    return error


class Leasing:
    """The operations on receipts."""

    def __init__(self, queues: Queues, views: Views) -> None:
        self._queues = queues
        self._views = views

    def delete_message(self, request: DeleteMessage, host: str) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        receipt = request.receipt_handle

        def answer(outcomes: Outcomes) -> Answer:
            refused = _refused_delete(outcomes[0], receipt, view)
            if refused is not None:
                raise refused
            return NOTHING

        return Pending(self._delete(view, (receipt,)), answer)

    def _delete(self, view: QueueView, receipts: Sequence[str]) -> Promise[Outcomes]:
        # A standard queue deletes with the newest receipt however late; FIFO refuses it once its lease has expired.
        return self._queues.acknowledge(view.name, receipts, may_be_late=not view.is_fifo)

    def delete_message_batch(self, request: DeleteMessageBatch, host: str) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        entries = request.entries
        check_entries(entries, "DeleteMessageBatchRequestEntry")

        def answer(outcomes: Outcomes) -> Answer:
            refusals = [
                _refused_delete(outcome, entry.receipt_handle, view)
                for outcome, entry in zip(outcomes, entries, strict=True)
            ]
            return _batch([entry.id for entry in entries], refusals)

        return Pending(self._delete(view, [entry.receipt_handle for entry in entries]), answer)

    def change_message_visibility(self, request: ChangeMessageVisibility, host: str) -> Pending[Outcomes]:
        view = self._views.of(name_of_url(request.queue_url))
        receipt, lease_s = request.receipt_handle, request.visibility_timeout
        check_range(lease_s, "VisibilityTimeout", 0, VISIBILITY_S_MAX)

        def answer(outcomes: Outcomes) -> Answer:
            refused = _refused_change(outcomes[0], receipt)
            if refused is not None:
                raise refused
            return NOTHING

        return Pending(self._change(view.name, receipt, lease_s), answer)

    def _change(self, name: str, receipt: str, lease_s: int) -> Promise[Outcomes]:
        # A lease of no length gives the message back now, whatever the queue's back-off.
        if lease_s == 0:
            return self._queues.release(name, (Release(receipt, 0),))
        return self._queues.extend(name, (Extension(receipt, lease_s * 1000),))

    async def change_message_visibility_batch(self, request: ChangeMessageVisibilityBatch, host: str) -> Answer:
        view = self._views.of(name_of_url(request.queue_url))
        entries = request.entries
        check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
        # All are asked before any is waited for, so that they are written together.
        asked = [_checked(entry) or self._changed(view.name, entry) for entry in entries]
        refusals = []
        for entry, outcome in zip(entries, asked, strict=True):
            if isinstance(outcome, Promise):
                refusals.append(_refused_change((await outcome)[0], entry.receipt_handle))
            else:
                refusals.append(outcome)
        return _batch([entry.id for entry in entries], refusals)

    def _changed(self, name: str, entry: VisibilityEntry) -> Promise[Outcomes]:
        assert entry.visibility_timeout is not None
        return self._change(name, entry.receipt_handle, entry.visibility_timeout)


def _checked(entry: VisibilityEntry) -> Exception | None:
    if entry.visibility_timeout is None:
        return missing("VisibilityTimeout")
    try:
        check_range(entry.visibility_timeout, "VisibilityTimeout", 0, VISIBILITY_S_MAX)
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
