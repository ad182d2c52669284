"""What a request with an id is known by when it is repeated.

A sender repeats a request because it does not know what became of it, or because some of its messages were refused.
What went into a partition as a whole is known by one name, written on its first message, and its places follow from the
place of that one. So the name says how many messages there are: another number is another request, and is never
answered with places that it does not have. Where only some could be taken (others had ids of their own, or the queue
was full before the last one), each is known by its own name, and a repetition stores those that are missing.

Keys and ids say which messages go together, by the number of partitions. So where there are several the name says how
many: after partitions were added, it tells by how many the first copy went.

    2/3:<id>     two messages, of a request of three
    #0/3:<id>    the first message of a request of three
    2/3@4:<id>   two messages, of a request of three that went over four partitions
"""

from typing import NamedTuple


class Request(NamedTuple):
    id: bytes
    message_count: int  # those that are refused included: a repetition has as many
    spread: int = 0  # partitions among which keys and ids choose; 0: none of its messages has any

    def share_name(self, count: int) -> bytes:
        """So many of its messages, one after the other."""
        return b"%d/%b" % (count, self._whole)

    def message_name(self, at: int) -> bytes:
        """The message at this place, by itself."""
        return b"#%d/%b" % (at, self._whole)

    @property
    def _whole(self) -> bytes:
        if self.spread <= 1:
            return b"%d:%b" % (self.message_count, self.id)
        return b"%d@%d:%b" % (self.message_count, self.spread, self.id)
