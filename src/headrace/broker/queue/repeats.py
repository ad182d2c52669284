"""One id, one message of a queue, whatever door its copies came through.

What is sent through headrace's own doors is compared with every partition before it is stored (`sending.py`). What a
Kafka producer writes goes where that producer chose, and what is sent in a transaction counts when that commits: there
an id is looked up in the other partitions at the moment at which the message arrives. A copy of what one of them knows
is withdrawn by an entry of its own partition, before anybody can have received it: a fold knows its own log alone, and
a replay must come to the same.

A crash can come between such a message and that entry. So what arrived after a partition's last entry is looked up
again when the queue is opened, before anybody is served.
"""

from headrace.broker.queue.partition_queue import Arrived, PartitionQueue
from headrace.broker.queue.partitions import QueuePartitions
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
        repeated = [
            offset
            for id, offset in fresh
            # A request's parts are known by one name in each of their partitions.
            if not id.startswith(REQUEST_PREFIX)
            and partition.fold.find_duplicate(id, now=partition.now.now()) == offset
            and any(other.remembers(id) for other in others)
        ]
        if repeated and partition.partition.log.broken is None:
            partition.withdraw(repeated)
