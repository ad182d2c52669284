"""Message ids in the form that SQS's clients know, a UUID.

It is worked out from where a message lies, so nothing more is stored, and a message that came by another protocol has
one too: the queue's own random id with the partition and the offset written over it by exclusive or, beside the bits
that say what kind of UUID it is. A duplicate has the place of the first one, and so its id; a moved message carries
the id that it had.
"""

from uuid import UUID

from headrace.model.message import message_id

_PARTITION_SHIFT = 96  # the first 32 bits
_OFFSET_MASK = (1 << 62) - 1  # the last 62: below the two bits of the variant
_HALF_BITS = 64


class MessageIds:
    """The ids of one queue's messages. Every message asks, and those of a partition begin alike."""

    def __init__(self, queue_id: UUID) -> None:
        self._front = queue_id.int >> _HALF_BITS
        self._back = queue_id.int & ((1 << _HALF_BITS) - 1)
        self._fronts: dict[int, str] = {}

    def at(self, partition: int, offset: int) -> str:
        front = self._fronts.get(partition)
        if front is None:
            front = self._fronts[partition] = self._write_front(partition)
        back = f"{self._back ^ (offset & _OFFSET_MASK):016x}"
        return f"{front}-{back[:4]}-{back[4:]}"

    def _write_front(self, partition: int) -> str:
        digits = f"{self._front ^ (partition << _PARTITION_SHIFT - _HALF_BITS):016x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:]}"


def uuid_of(queue_id: UUID, id: str) -> str:
    """The same from the id that headrace gave to the message in that queue."""
    partition, dash, offset = id.partition("-")
    if not (dash and partition.isdigit() and offset.isdigit()) or id != message_id(int(partition), int(offset)):
        return id
    return MessageIds(queue_id).at(int(partition), int(offset))
