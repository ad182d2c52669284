"""What was written of a queue's messages and is not durable yet, and those who wait for that."""

from collections.abc import Sequence
from typing import NamedTuple

from headrace.broker.queue.outbox import Listener, Share
from headrace.model.errors import HeadraceError


class Written(NamedTuple):
    """Shares that stand one after the other in a partition, from an offset on."""

    partition: int
    base: int
    shares: Sequence[Share]
    repeats: Sequence[tuple[int, Share | Listener]]  # who sent the same as one of them meanwhile, and as which

    def foresee(self) -> None:
        """While the journal is written: have answers made that are given only once that has succeeded."""
        index, offset = self.partition, self.base
        for share in self.shares:
            share.foresee_at(index, offset)
            offset += len(share.messages)

    def tell(self, error: HeadraceError | None) -> None:
        """It is committed, or never will be."""
        index, offset, shares, repeats = self
        if error is not None:
            for share in (*shares, *(repeat for _, repeat in repeats)):
                share.refuse(error)
            return
        offsets = []
        for share in shares:
            if repeats:
                offsets.append(offset)
            share.answer(index, offset, False)
            offset += len(share.messages)
        for at, repeat in repeats:
            repeat.answer(index, offsets[at], True)
