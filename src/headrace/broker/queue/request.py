"""What a request with an id is known by when it is repeated.

A sender repeats a request because it does not know what became of it, or because some of its messages were refused.
What went into a partition as a whole is known by one name, written on its first message, and its places follow from the
place of that one. So the name says how many messages there are: another number is another request, and is never
answered with places that it does not have. Where only some could be taken (others had ids of their own, or the queue
was full before the last one), each is known by its own name, and a repetition stores those that are missing.

    2/3:<id>    two messages, of a request of three
    #0/3:<id>   the first message of a request of three
"""

from typing import NamedTuple


class Request(NamedTuple):
    id: bytes
    message_count: int  # those that are refused included: a repetition has as many

    def share_name(self, count: int) -> bytes:
        """So many of its messages, one after the other."""
        return b"%d/%d:%b" % (count, self.message_count, self.id)

    def message_name(self, at: int) -> bytes:
        """The message at this place, by itself."""
        return b"#%d/%d:%b" % (at, self.message_count, self.id)
