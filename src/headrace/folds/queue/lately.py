"""Which messages were done lately, so that they are kept for the time of the queue's history.

A queue forgets a message when it is done, and when that was. So now and then, before an entry is obeyed, it is noted
which ones are not done. What is in a note and is done when the next one is taken was done by an entry in between, the
last of which is known too. It may go when that one is as old as the history is long; and so may what arrived and was
done between the two notes. Nothing is then kept for less than the history, and nothing for more than an eighth longer.

Notes are taken by the moments of entries, and are part of the state: a replay takes the same ones, and a snapshot has
them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyroaring import BitMap64

_NOTES_FOR_A_HISTORY = 8
_NOTE_MS_MIN = 1000  # a short history is none to be exact about


class Note(NamedTuple):
    """What was not done at a moment, of the messages below an offset."""

    at_ms: int
    end: int
    live: BitMap64
    last_ms: int = 0  # of the last entry before the next note; the newest one has none yet


class Kept(NamedTuple):
    """What stays for the history: all from an offset on, and of those below it these."""

    start: int
    offsets: BitMap64


class Lately:
    """The notes of one partition, oldest first."""

    __slots__ = ("_kept", "_kept_moments", "notes")

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._kept: Kept | None = None
        self._kept_moments: list[int] = []  # of the notes that it was made of

    def note(self, live: BitMap64, end: int, *, at_ms: int, last_ms: int, history_ms: int) -> None:
        """Take the next note if it is time to, and forget those for which nothing is kept any more."""
        notes = self.notes
        if notes and at_ms - notes[-1].at_ms < max(history_ms // _NOTES_FOR_A_HISTORY, _NOTE_MS_MIN):
            return
        if notes:
            notes[-1] = notes[-1]._replace(last_ms=last_ms)
        kept = [note for note in notes if note.last_ms > at_ms - history_ms]
        self.notes = [*kept, Note(at_ms, end, live.copy())]

    def clear(self) -> None:
        self.notes = []

    def load(self, notes: Iterable[Note]) -> None:
        self.notes = list(notes)

    def kept(self, since_ms: int, last_ms: int) -> Kept | None:
        """What must stay that was done since then, if the last entry of all was at `last_ms`; None: nothing."""
        notes = [note for note in self.notes[:-1] if note.last_ms > since_ms]
        if self.notes and last_ms > since_ms:
            notes.append(self.notes[-1])
        if not notes:
            return None
        moments = [note.at_ms for note in notes]
        if self._kept is None or moments != self._kept_moments:
            self._kept_moments = moments
            self._kept = Kept(notes[0].end, BitMap64.union(BitMap64(), *(note.live for note in notes)))
        return self._kept
