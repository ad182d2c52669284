"""Who decides what stays of each batch while segments are rewritten.

A judge sees the batches of a rewrite in order, in a thread, and works with what it was given before: nothing that the
event loop changes.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from headrace.log.keep import keep_records
from headrace.model.batch import BatchHeader
from headrace.model.errors import CorruptBatchError
from headrace.wire.kafka.records import control_kind, decode_batch

# Control entries from this kind on are headrace's own: their meaning is in the folds, whose snapshots cover them.
_OWN_CONTROL_KIND = 100


class Judge(Protocol):
    kept_count: int  # messages that stay, so far

    def is_dead(self, header: BatchHeader) -> bool:
        """Whether nothing of a batch stays, whatever is in it. Asked once for each batch, in order."""

    def keep(self, header: BatchHeader, batch: bytes) -> bytes | None:
        """What stays of a batch that is not dead. None: nothing."""


class LiveOffsets:
    """Keeps the messages that a retainer calls live."""

    def __init__(self, live: Sequence[int]) -> None:
        self.kept_count = 0
        self._live = live
        self._at = 0
        self._here: Sequence[int] = ()

    def is_dead(self, header: BatchHeader) -> bool:
        first = bisect_left(self._live, header.base_offset, self._at)
        self._at = bisect_left(self._live, header.next_offset, first)
        self._here = self._live[first : self._at]
        self.kept_count += len(self._here)
        return not self._here and not header.is_control

    def keep(self, header: BatchHeader, batch: bytes) -> bytes | None:
        if header.is_control:
            return None if is_own_control(batch) else batch
        return batch if len(self._here) == header.record_count else keep_records(header, batch, frozenset(self._here))


def is_own_control(batch: bytes) -> bool:
    try:
        return all(control_kind(record) >= _OWN_CONTROL_KIND for record in decode_batch(batch))
    except CorruptBatchError:
        return False
