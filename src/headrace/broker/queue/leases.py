"""What holders of leases ask of a queue: to end them, to keep them longer, to give them back."""

from collections.abc import Callable, Sequence

from headrace.broker.ledger import Told
from headrace.broker.promise import Promise
from headrace.broker.queue.gather import Gather
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Extension, Rejection, Release
from headrace.broker.queue.receipt import Receipt, Signer
from headrace.broker.queue.sending import Target
from headrace.model.errors import HeadraceError, InvalidRequestError, StaleReceiptError
from headrace.model.queue import LEASE_MS_MAX, SPAN_MS_MAX


class Leases:
    def __init__(self, live: Target, signer: Signer) -> None:
        self._live = live
        self._signer = signer

    def acknowledge(self, receipts: Sequence[str], *, may_be_late: bool = False) -> Promise[list[HeadraceError | None]]:
        gather: Gather[HeadraceError | None] = Gather(len(receipts))
        by_partition: dict[PartitionQueue, dict[Receipt, list[int]]] = {}
        for at, text in enumerate(receipts):
            try:
                partition, receipt = self._read(text)
            except HeadraceError as error:
                gather.set(at, error)
                continue
            held = by_partition.setdefault(partition, {})
            try:
                if receipt not in held:
                    partition.check(receipt, may_be_late=may_be_late)
            except StaleReceiptError as error:
                # Whoever repeats an acknowledgement because its answer got lost has done nothing wrong.
                if partition.was_acknowledged(receipt):
                    partition.tell_written(setter(gather, [at]))
                else:
                    gather.set(at, error)
                continue
            held.setdefault(receipt, []).append(at)
        for partition, held in by_partition.items():
            if held:
                places = [at for ats in held.values() for at in ats]
                # Each once, also where it is not known any more in which epoch a lease was taken, and two are good.
                offsets = list(dict.fromkeys(receipt.offset for receipt in held))
                partition.acknowledge(offsets, setter(gather, places), receipts=held)
        return gather.promise

    def read_held(
        self, receipts: Sequence[str], producer_id: int
    ) -> tuple[dict[PartitionQueue, dict[int, tuple[int, list[int]]]], dict[int, HeadraceError]]:
        """Whose leases receipts are: offset to attempt and places in the call, by partition; and what is wrong.

        A receipt that was acknowledged in this producer's transaction before is neither.
        """
        by_partition: dict[PartitionQueue, dict[int, tuple[int, list[int]]]] = {}
        refused: dict[int, HeadraceError] = {}
        for at, text in enumerate(receipts):
            try:
                partition, receipt = self._read(text)
                if partition.fold.is_held(producer_id, receipt.offset, receipt.attempt):
                    continue
                partition.check(receipt)
            except HeadraceError as error:
                refused[at] = error
                continue
            held = by_partition.setdefault(partition, {})
            held.setdefault(receipt.offset, (receipt.attempt, []))[1].append(at)
        return by_partition, refused

    def extend(
        self, extensions: Sequence[Extension], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        def extend(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            lease_ms = extensions[at].lease_ms
            if not 0 <= lease_ms <= LEASE_MS_MAX:
                raise InvalidRequestError(f"a lease is 0 to {LEASE_MS_MAX} ms long, not {lease_ms}")
            partition.extend(offset, lease_ms, told)

        return self._each([extension.receipt for extension in extensions], extend, may_be_late=may_be_late)

    def release(self, releases: Sequence[Release], *, may_be_late: bool = False) -> Promise[list[HeadraceError | None]]:
        def release(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            _, delay_ms, is_unbegun, failed_with = releases[at]
            if is_unbegun:
                if delay_ms:
                    raise InvalidRequestError("a message that was not begun is visible again at once; give no delay")
                partition.return_unused((offset,), told)
                return
            if delay_ms is not None and not 0 <= delay_ms <= SPAN_MS_MAX:
                raise InvalidRequestError(f"a delay is 0 to {SPAN_MS_MAX} ms, not {delay_ms}")
            if failed_with:
                partition.fail(offset, delay_ms, failed_with, told)
            else:
                partition.release(offset, delay_ms, told)

        return self._each([release.receipt for release in releases], release, may_be_late=may_be_late)

    def reject(self, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]:
        def reject(partition: PartitionQueue, offset: int, at: int, told: Told) -> None:
            if self._live.queue.dead_letter_name is None:
                raise InvalidRequestError(
                    f"queue {self._live.queue.name} has no dead-letter queue to reject to; set dead_letter, "
                    "or acknowledge the message to drop it"
                )
            partition.reject(offset, rejections[at].reason, told)

        return self._each([rejection.receipt for rejection in rejections], reject)

    def _each(
        self,
        receipts: Sequence[str],
        act: Callable[[PartitionQueue, int, int, Told], None],
        *,
        may_be_late: bool = False,
    ) -> Promise[list[HeadraceError | None]]:
        gather: Gather[HeadraceError | None] = Gather(len(receipts))
        for at, text in enumerate(receipts):
            try:
                partition, receipt = self._read(text)
                if may_be_late:
                    partition.check_idle(receipt)
                else:
                    partition.check(receipt)
                act(partition, receipt.offset, at, setter(gather, [at]))
            except HeadraceError as error:
                gather.set(at, error)
        return gather.promise

    def _read(self, text: str) -> tuple[PartitionQueue, Receipt]:
        receipt = self._signer.read(text)
        return self._live.partitions.at(receipt.partition), receipt


def setter(gather: Gather[HeadraceError | None], places: list[int]) -> Callable[[HeadraceError | None], None]:
    def told(error: HeadraceError | None) -> None:
        for at in places:
            gather.set(at, error)

    return told
