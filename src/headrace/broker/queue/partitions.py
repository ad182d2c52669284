"""A queue's partitions by number: each is at work, or offline with the reason.

A partition is offline because it could not be opened, and then nothing of it is known here; or because its log broke
since, and then what is known of it may be ahead of its files. Either way nothing is decided about it and nothing of it
is written until the node comes back with it. What is bound to it (a key, an id, a receipt) is refused: elsewhere a key
would lose its order, and an id the copy that it is compared with. Everything else goes on in the others.

Whether a log is broken is looked up and not noted, so there is no moment at which the two could differ.
"""

from collections.abc import Iterator

from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import OfflinePartition
from headrace.model.errors import HeadraceError, PartitionOfflineError


class QueuePartitions:
    """Iterating gives those that are at work."""

    def __init__(self, queue: str) -> None:
        self._queue = queue
        self._slots: list[PartitionQueue | HeadraceError] = []
        self.count = 0  # offline ones among them
        self.opened: list[PartitionQueue] = []  # those that broke since among them

    def add(self, partition: PartitionQueue) -> None:
        """The next one, which is at work."""
        self._add(partition)
        self.opened.append(partition)

    def add_offline(self, error: HeadraceError) -> None:
        """The next one, which could not be opened."""
        self._add(error)

    def _add(self, slot: PartitionQueue | HeadraceError) -> None:
        self._slots.append(slot)
        self.count += 1

    def at(self, index: int) -> PartitionQueue:
        """One that is needed. PartitionOfflineError: which it is, why, and what to do."""
        slot = self._slots[index]
        if isinstance(slot, PartitionQueue) and slot.partition.log.broken is None:
            return slot
        raise self.refusal(index)

    def __iter__(self) -> Iterator[PartitionQueue]:
        return (partition for partition in self.opened if partition.partition.log.broken is None)

    def is_at_work(self, index: int) -> bool:
        slot = self._slots[index]
        return isinstance(slot, PartitionQueue) and slot.partition.log.broken is None

    def offline(self) -> list[OfflinePartition]:
        return [
            OfflinePartition(partition=index, reason=str(self._reason(index)))
            for index in range(self.count)
            if not self.is_at_work(index)
        ]

    def check_all(self) -> None:
        """For what is done in every partition or not at all."""
        for index in range(self.count):
            self.at(index)

    def check_any(self) -> None:
        """Refuse what no partition is left for."""
        if all(partition.partition.log.broken is not None for partition in self.opened):
            raise self.refusal(0)

    def refusal(self, index: int) -> HeadraceError:
        """Why one that is offline cannot be used."""
        reason = self._reason(index)
        if not isinstance(reason, PartitionOfflineError):
            return reason  # the queue is being deleted
        return PartitionOfflineError(f"partition {index} of queue {self._queue} is offline on this node: {reason}")

    def _reason(self, index: int) -> HeadraceError:
        slot = self._slots[index]
        if isinstance(slot, PartitionQueue):
            try:
                slot.check_open()
            except HeadraceError as error:
                return error
            raise AssertionError(f"partition {index} is at work")
        return slot
