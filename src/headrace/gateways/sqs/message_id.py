"""Message ids in the form that SQS's clients know, a UUID.

It is worked out from where a message lies, so nothing more is stored, and a message that came by another protocol has
one too: the queue's own random id with the partition and the offset written over it by exclusive or, beside the bits
that say what kind of UUID it is. A duplicate has the place of the first one, and so its id; a moved message carries
the id that it had.
"""

from uuid import UUID

from headrace.model.message import message_id

_PARTITION_SHIFT = 96  # the first 32 bits
_PARTITION_MASK = (1 << 32) - 1
_OFFSET_MASK = (1 << 62) - 1  # the last 62: below the two bits of the variant
_PAGE_BITS, _PAGE_DIGITS = 8, 2
_PAGE_MASK = (1 << _PAGE_BITS) - 1
_LAST_DIGITS = [f"{number:02x}" for number in range(1 << _PAGE_BITS)]


class MessageIds:
    """The ids of one queue's messages. Every message asks, and those of neighbours differ in their last digits."""

    def __init__(self, queue_id: UUID) -> None:
        self._number = queue_id.int
        # All but the last digits, by partition, with the page of offsets that it is of.
        self._latest: dict[int, tuple[int, str]] = {}

    def at(self, partition: int, offset: int) -> str:
        page = offset >> _PAGE_BITS
        latest = self._latest.get(partition)
        if latest is None or latest[0] != page:
            latest = self._latest[partition] = page, self._write_front(partition, offset)
        return latest[1] + _LAST_DIGITS[(self._number ^ offset) & _PAGE_MASK]

    def _write_front(self, partition: int, offset: int) -> str:
        number = self._number ^ ((partition & _PARTITION_MASK) << _PARTITION_SHIFT) ^ (offset & _OFFSET_MASK)
        return str(UUID(int=number))[:-_PAGE_DIGITS]


def uuid_of(queue_id: UUID, id: str) -> str:
    """The same from the id that headrace gave to the message in that queue."""
    partition, dash, offset = id.partition("-")
    if not (dash and partition.isdigit() and offset.isdigit()) or id != message_id(int(partition), int(offset)):
        return id
    return MessageIds(queue_id).at(int(partition), int(offset))
