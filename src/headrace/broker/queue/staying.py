"""What of one partition's log must stay, for as long as a queue stands on it: `log/clean.py` asks."""

from array import array
from collections.abc import Sequence

from pyroaring import BitMap64

from headrace.broker.partition import Partition
from headrace.broker.queue.steady import FoldClock
from headrace.folds.queue.fold import QueueFold
from headrace.model.ids import Offset


class Staying:
    def __init__(self, fold: QueueFold, partition: Partition, now: FoldClock) -> None:
        self._fold = fold
        self._partition = partition
        self._now = now
        # Nothing at or above is dropped from the log; set every few seconds (keeper.py).
        self.clean_limit = Offset(0)

    def limit(self) -> Offset:
        kept = self._fold.kept_for_history(self._now.now())
        limit = min(self.clean_limit, self._partition.high_watermark)
        return limit if kept is None else min(limit, Offset(kept.start))

    def live_count(self, start: Offset, end: Offset) -> int:
        if not self._fold.config.history_ms:
            return self._fold.live_in(start, end)
        return len(self._within(start, end))

    def live_offsets(self, start: Offset, end: Offset) -> Sequence[int]:
        if not self._fold.config.history_ms:
            return array("q", self._fold.live_offsets(start, end))
        return array("q", self._within(start, end))

    def _within(self, start: Offset, end: Offset) -> BitMap64:
        """What is not done, or was not lately, from one offset up to another."""
        within = BitMap64()
        within.add_range(start, end)
        kept = self._fold.kept_for_history(self._now.now())
        live = self._fold.live & within
        return live if kept is None else live | (kept.offsets & within)
