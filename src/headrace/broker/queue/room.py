"""How many messages a queue has room for (`messages_max`), by whatever interface they are written.

What is sent through headrace's own doors asks for room before it is taken. What a Kafka producer writes asks in the
partition's turn, before its batch is appended: a batch is stored whole or refused whole, so it is admitted when there
is room for all of its messages, and refused as too large when there never can be. Where the oldest are to be dropped,
such a batch is admitted and others are dropped once it has arrived: what is dropped before a batch must stand before
it in the log, and by then the turn's entries are chosen.

The limit, and which message is the oldest, count over all partitions that are at work.
"""

from typing import Protocol

from headrace.broker.queue.loader import Loader
from headrace.broker.queue.oldest import Oldest
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.model.errors import BatchTooLargeError, QueueFullError
from headrace.model.queue import Overflow, Queue


class Limited(Protocol):
    """The queue that has a limit."""

    queue: Queue
    partitions: QueuePartitions


class Room:
    def __init__(self, live: Limited, loader: Loader) -> None:
        self._live = live
        self._oldest = Oldest(live.partitions, loader)

    def make(self, partition: PartitionQueue, id: bytes | None, *, count: int = 1, ahead: int = 0) -> None:
        """Room for so many messages, which what is known already does not need.

        `ahead` are others, not handed over yet.
        """
        left = self._left()
        if left is None or left >= ahead + count or partition.knows(id):
            return
        if self._live.queue.config.overflow is Overflow.REJECT:
            raise self._refusal()
        self._oldest.drop(ahead + count - left)

    def admit(self, count: int) -> None:
        """Refuse so many messages of a Kafka producer, which are stored together or not at all."""
        left = self._left()
        if left is None or left >= count or self._live.queue.config.overflow is not Overflow.REJECT:
            return
        messages_max = self._live.queue.config.messages_max
        assert messages_max is not None
        if count > messages_max:
            raise BatchTooLargeError(
                f"a batch of {count} messages never fits into queue {self._live.queue.name}, which holds at most "
                f"{messages_max}; send smaller batches, or raise messages_max"
            )
        raise self._refusal()

    def trim(self, partition: PartitionQueue, base: int) -> None:
        """Drop what is too much since messages arrived in a partition from an offset on; none of these."""
        left = self._left()
        if left is not None and left < 0 and self._live.queue.config.overflow is Overflow.DROP_OLDEST:
            self._oldest.drop(-left, spared=(partition, base))

    def _left(self) -> int | None:
        """For how many messages more the queue has room, below zero where it holds too many; None: there is no limit.

        What partitions hold that are offline is not known, and not counted.
        """
        messages_max = self._live.queue.config.messages_max
        if messages_max is None:
            return None
        return messages_max - sum([partition.message_count for partition in self._live.partitions])

    def _refusal(self) -> QueueFullError:
        queue = self._live.queue
        return QueueFullError(
            f"queue {queue.name} holds its {queue.config.messages_max} messages; acknowledge some, then retry"
        )
