"""Which leader epoch begins at which offset: the table that replicas compare to find where their logs part."""

from bisect import bisect_right

from headrace.model.ids import NO_EPOCH, Epoch, Offset


class EpochTable:
    """Epochs in rising order with the first offset of each. Both only grow, except by truncation."""

    def __init__(self, entries: list[tuple[Epoch, Offset]] | None = None) -> None:
        self._epochs: list[Epoch] = []
        self._starts: list[Offset] = []
        for epoch, start in entries or []:
            self.assign(epoch, start)

    @property
    def entries(self) -> list[tuple[Epoch, Offset]]:
        return list(zip(self._epochs, self._starts, strict=True))

    @property
    def latest(self) -> Epoch:
        return self._epochs[-1] if self._epochs else NO_EPOCH

    def assign(self, epoch: Epoch, offset: Offset) -> None:
        """Note that a batch of this epoch begins at this offset; only an epoch's first batch matters."""
        if self._epochs and epoch <= self._epochs[-1]:
            assert epoch == self._epochs[-1], f"epoch {epoch} after {self._epochs[-1]}"
            return
        self._epochs.append(epoch)
        self._starts.append(offset)

    def epoch_at(self, offset: Offset) -> Epoch:
        """The epoch in which the batch at this offset was written."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else NO_EPOCH

    def end_of(self, epoch: Epoch, log_end: Offset) -> tuple[Epoch, Offset]:
        """The largest known epoch up to the given one, and the offset at which it ended."""
        at = bisect_right(self._epochs, epoch)
        if not self._epochs or epoch > self._epochs[-1]:
            return NO_EPOCH, Offset(-1)
        if at == 0:
            # Older than all that is left of the log: it ended where the log now begins.
            return epoch, self._starts[0]
        end = self._starts[at] if at < len(self._starts) else log_end
        return self._epochs[at - 1], end

    def truncate_to(self, end: Offset) -> None:
        """Forget epochs that began at or after the new end."""
        while self._starts and self._starts[-1] >= end:
            self._starts.pop()
            self._epochs.pop()

    def trim_to(self, start: Offset) -> None:
        """Forget epochs that ended at or before the new start. One that goes on keeps its own first offset: the log
        may now start inside one of its batches."""
        keep = max(bisect_right(self._starts, start) - 1, 0)
        del self._starts[:keep]
        del self._epochs[:keep]
