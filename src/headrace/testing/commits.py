"""A rule of what is committed that is late, as it is where other nodes have to answer first.

What one node has written is committed at once, or with its sync. Whatever reads, answers or removes by local durability
instead of the committed offset therefore shows no fault, until the two are apart.
"""

import asyncio
from collections.abc import Callable

from headrace.model.ids import Offset
from headrace.model.topic import Durability
from headrace.replication.committed import alone
from headrace.testing.rand import Chooser

# Turns of the event loop for which a commit is late, at most. A test that lets the tasks run waits for longer.
_TURNS_MAX = 4
_LATE_MAX = 3  # times in a row


class LateCommits:
    """The rule of one partition. It answers with where the log stood some time ago, and catches up by itself."""

    def __init__(self, chooser: Chooser, *, wake: Callable[[], None], is_held: bool = False) -> None:
        self._chooser = chooser
        self._wake = wake  # has the partition ask again
        self._answer = Offset(0)  # the last one
        self._seen = [Offset(0)]  # committed by the rule of one node, rising: ends of batches all of them
        self._late_count = 0
        self._is_due = False
        self.is_held = is_held  # for as long as a test says, and not only for some turns

    def __call__(self, durability: Durability, durable: Offset, end: Offset) -> Offset:
        committed = alone(durability, durable, end)
        self._seen = [*(offset for offset in self._seen if offset < committed), committed][-5:]
        self._answer = min(self._answer, committed) if self.is_held else self._choose(committed)
        return self._answer

    def _choose(self, committed: Offset) -> Offset:
        if self._late_count >= _LATE_MAX:
            self._late_count = 0
            return committed
        answer = self._seen[self._chooser.randint(0, len(self._seen) - 1)]
        if answer < committed and not self._is_due:
            self._late_count += 1
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._turn, self._chooser.randint(0, _TURNS_MAX))
        return answer

    def release(self) -> None:
        """Hold back no longer."""
        self.is_held = False
        self._wake()

    def _turn(self, turns_left: int) -> None:
        if turns_left:
            asyncio.get_running_loop().call_soon(self._turn, turns_left - 1)
            return
        self._is_due = False
        self._wake()
