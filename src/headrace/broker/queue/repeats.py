"""One id, one message of a queue, whatever door its copies came through.

What is sent through headrace's own doors is compared with every partition before it is stored (`sending.py`). What a
Kafka producer writes goes where that producer chose, and what is sent in a transaction counts when that commits: there
an id is looked up in the other partitions at the moment at which the message arrives. A copy of what one of them knows
is withdrawn by an entry of its own partition, before anybody can have received it: a fold knows its own log alone, and
a replay must come to the same.

Its sender may have been told that it is stored, so it is not withdrawn before the other copy is durable: a crash would
leave neither. Where both are on their way at the same moment that is later, and if somebody has received it by then, it
stays.

A crash can come between such a message and that entry. So what arrived after a partition's last entry is looked up
again when the queue is opened, before anybody is served.
"""

from headrace.broker.ledger import Told
from headrace.broker.queue.partition_queue import Arrived, PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
from headrace.model.errors import HeadraceError
from headrace.wire.message import REQUEST_PREFIX


class Repeats:
    def __init__(self, partitions: QueuePartitions) -> None:
        self._partitions = partitions
        self.is_settled = False  # not before all partitions are open
        self._unsettled: dict[PartitionQueue, list[Arrived]] = {}

    def arrived(self, partition: PartitionQueue, fresh: list[Arrived]) -> None:
        """Messages with ids that their own partition did not know."""
        if not self.is_settled:
            self._unsettled.setdefault(partition, []).extend(fresh)
        elif self._partitions.count > 1:
            self._withdraw_repeated(partition, fresh)

    def settle(self) -> None:
        """All partitions are open: look at what arrived before they were."""
        self.is_settled = True
        for partition, fresh in self._unsettled.items():
            self.arrived(partition, fresh)
        self._unsettled.clear()

    def _withdraw_repeated(self, partition: PartitionQueue, fresh: list[Arrived]) -> None:
        others = [other for other in self._partitions if other is not partition]
        at_once: list[int] | None = []  # most are: one entry for all of them
        for id, offset in fresh:
            # A request's parts are known by one name in each of their partitions.
            if id.startswith(REQUEST_PREFIX) or not partition.has_arrived(id, offset):
                continue

            def stored(error: HeadraceError | None, id: bytes = id, offset: int = offset) -> None:
                if error is not None or not partition.has_arrived(id, offset):
                    return
                if at_once is not None:
                    at_once.append(offset)
                else:
                    partition.withdraw([offset])

            _tell_stored(others, id, stored)
        if at_once:
            partition.withdraw(at_once)
        at_once = None


def _tell_stored(others: list[PartitionQueue], id: bytes, told: Told) -> None:
    """Once a message of this id is durable in one of these partitions, where one of them has it or gets it."""
    for other in others:
        if other.tell_stored(id, told):
            return
