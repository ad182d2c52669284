"""Which messages were not done lately: those that are done since then are kept for the time of the queue's history.

A queue forgets a message when it is done, and when that was. So now and then it is noted which ones are not done. One
that is in the note before, and is done now, was done later than that note; it may go when the note after it is as old
as the history is long. What was sent after the oldest note is kept in any case (keeper.py). So nothing is kept for less
than the history, and little for more than an eighth longer.

The notes are in memory alone: what was done before a restart is kept for the history's time since it was sent,
and no longer.
"""

from collections import deque

from pyroaring import BitMap64

_NOTES_FOR_A_HISTORY = 8


class Lately:
    """The notes of one partition."""

    def __init__(self) -> None:
        self._notes: deque[tuple[int, BitMap64]] = deque()
        self.offsets = BitMap64()  # what was not done in any of them

    def note(self, live: BitMap64, *, now_ms: int, history_ms: int) -> None:
        """Take the next note if it is time to, and forget those that nothing is kept for."""
        notes = self._notes
        if not history_ms:
            notes.clear()
            self.offsets = BitMap64()
            return
        is_changed = False
        if not notes or now_ms - notes[-1][0] >= history_ms // _NOTES_FOR_A_HISTORY:
            notes.append((now_ms, live.copy()))
            is_changed = True
        while len(notes) > 1 and notes[1][0] <= now_ms - history_ms:
            notes.popleft()
            is_changed = True
        if is_changed:
            self.offsets = BitMap64.union(*(offsets for _, offsets in notes)) if len(notes) > 1 else notes[0][1]

    def since_ms(self, now_ms: int, history_ms: int) -> int:
        """What was sent from then on is kept, whatever became of it."""
        return min(now_ms - history_ms, self._notes[0][0]) if self._notes else now_ms - history_ms

    def with_live(self, live: BitMap64, start: int, end: int) -> BitMap64:
        """What is not done, or was not lately, from one offset up to another."""
        within = BitMap64()
        within.add_range(start, end)
        return (live & within) | (self.offsets & within)
