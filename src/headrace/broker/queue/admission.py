"""What Kafka producers write to a queue, between the look at it and its arrival: both in one turn of the partition.

A batch is looked at before it is appended, so that what the queue does not take is not stored. What is read for that
is what the fold is told when the batch arrives.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from headrace.broker.queue.replay import read_properties
from headrace.folds.queue.fold import QueueFold
from headrace.log.partition_log import Incoming
from headrace.model.message import Properties


class Limit(Protocol):
    """How many messages the queue may hold; `room.py`."""

    def admit(self, count: int) -> None: ...


class _Admitted(NamedTuple):
    batch: Incoming
    properties: Mapping[int, Properties]


class Admission:
    """The batches of one partition that were admitted and have not arrived yet."""

    def __init__(self, fold: QueueFold, limit: Limit) -> None:
        self._fold = fold
        self._limit = limit
        self._admitted: deque[_Admitted] = deque()
        self.count = 0  # messages in them

    def admit(self, batches: Sequence[Incoming]) -> None:
        """Refuse batches for which there is no room, or that are too large to be handed out. All of them or none."""
        admitted = [_Admitted(batch, read_properties(self._fold, *batch)) for batch in batches]
        count = sum([batch.header.last_offset_delta + 1 for batch in batches])
        self._limit.admit(count)
        self._admitted += admitted
        self.count += count

    def take(self, batch: Incoming) -> Mapping[int, Properties] | None:
        """What the messages of a batch that arrives say of themselves; None for the end of a transaction."""
        if not self._admitted or self._admitted[0].batch is not batch:
            return None
        self.count -= batch.header.last_offset_delta + 1
        return self._admitted.popleft().properties

    def forget(self) -> None:
        """They will not arrive."""
        self._admitted.clear()
        self.count = 0
