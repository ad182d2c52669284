"""How large a queue's messages are, about: for who has to know before they are read."""

from headrace.broker.queue.partitions import QueuePartitions

# Between two looks at the sizes of the files.
_ASKED_MAX = 64
# The last message counts an eighth.
_SHIFT = 3


class MessageSize:
    """The larger of two means: of what is in the files, and of what was handed out lately.

    The first is too small where cleaning has left holes, and the second is not known at first.
    """

    def __init__(self, partitions: QueuePartitions) -> None:
        self._partitions = partitions
        self._stored = 0
        self._received = 0
        self._asked = 0

    def note(self, size: int) -> None:
        """One was handed out."""
        self._received += (size - self._received) >> _SHIFT

    def mean(self) -> int:
        if self._asked <= 0:
            self._asked = _ASKED_MAX
            partitions = self._partitions.opened
            size = sum(one.partition.size_bytes for one in partitions)
            count = sum(one.partition.end_offset - one.partition.start_offset for one in partitions)
            self._stored = size // max(count, 1)
        self._asked -= 1
        return max(self._stored, self._received, 1)
