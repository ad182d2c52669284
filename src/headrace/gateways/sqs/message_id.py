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


def uuid_at(queue_id: UUID, partition: int, offset: int) -> str:
    digits = f"{queue_id.int ^ (partition << _PARTITION_SHIFT) ^ (offset & _OFFSET_MASK):032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid_of(queue_id: UUID, id: str) -> str:
    """The same from the id that headrace gave to the message in that queue."""
    partition, dash, offset = id.partition("-")
    if not (dash and partition.isdigit() and offset.isdigit()) or id != message_id(int(partition), int(offset)):
        return id
    return uuid_at(queue_id, int(partition), int(offset))
