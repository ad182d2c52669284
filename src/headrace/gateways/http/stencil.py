"""Heads that are the same but for a few words: those of a client that signs, dates or traces its requests.

A stencil is cut from one head whose lines are all plain. It leaves open the last word of each line that is known to
change, and reads another head of the same length by comparing what it covers, in one call of the interpreter, and by
looking at the words. These have to be visible ASCII of the same length, so that no line can begin or end in one, and
what is read is what would be read line by line.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter

from headrace.gateways.http.head import Fields, Framing, Head, read_request_id

_VISIBLE = bytes(range(0x21, 0x7F))
_NOTHING = slice(0, 0)
# The tuple's own constructor: that of a named one is a Python function, at twice the time.
_make = tuple.__new__


class Stencil:
    """One shape of heads."""

    __slots__ = (
        "_cover",
        "_covered",
        "_framing",
        "_framing_of",
        "_has_request_id",
        "_headers",
        "_length",
        "_open",
        "_target",
        "_words",
    )

    def __init__(
        self,
        block: bytes,
        lines: Iterable[bytes],
        head: Head,
        *,
        open_names: frozenset[str],
        framing_of: Callable[[dict[str, str]], Framing | None],
    ) -> None:
        """Cut from a head without its empty line, from its header lines, and from what they say in their order."""
        headers = head.fields.headers
        names, openings, words, covered = [], [], [], []
        begin, end = 0, block.index(b"\r\n")
        for line, (name, value) in zip(lines, headers.items(), strict=True):
            end += len(b"\r\n") + len(line)
            if name in open_names:
                opening = value[: value.rfind(" ") + 1]
                word_at = end - len(value) + len(opening)
                names.append(name)
                openings.append(opening)
                words.append(slice(word_at, end))
                covered.append(slice(begin, word_at))
                begin = end
        # With something more each: of a single slice there would be no tuple.
        self._cover = itemgetter(*covered, slice(begin, len(block)), _NOTHING)
        self._covered = self._cover(block)
        self._words = itemgetter(*words, _NOTHING)
        self._open = list(zip(names, openings, strict=True))
        self._headers = headers
        self._length = headers.get("content-length")
        self._target, self._framing, self._framing_of = head.target, head.fields.framing, framing_of
        self._has_request_id = "x-request-id" in headers

    def read(self, data: bytes) -> Head | None:
        """The head with which these bytes begin, which is as long as the one that this was cut from."""
        if self._cover(data) != self._covered:
            return None
        words = self._words(data)
        if b"".join(words).translate(None, _VISIBLE):
            return None
        headers = self._headers.copy()
        for (name, opening), word in zip(self._open, words, strict=False):
            headers[name] = opening + word.decode()
        framing = self._framing if headers.get("content-length") == self._length else self._framing_of(headers)
        if framing is None:
            return None
        request_id = read_request_id(headers) if self._has_request_id else None
        return _make(Head, (self._target, Fields(headers, framing, request_id)))
