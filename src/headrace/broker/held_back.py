"""Producers that wait because a subscriber had no room for their next batch.

An idempotent producer has several batches on their way. When the first one is refused for a while, the others must be
refused in the same way: one that is smaller and fits must not pass it, and if they were called out of order instead,
librdkafka would abort its transaction, or start a new epoch, where it only has to wait. So the refusal is remembered
until the refused batch is stored, or is given up: then it is not sent again, and what follows is out of order indeed.
"""

from typing import NamedTuple

from headrace.host.clock import Clock
from headrace.model.batch import BatchHeader
from headrace.model.errors import HeadraceError

# Longer than any client waits between two tries.
_WAIT_MS = 30_000
_PRODUCERS_MAX = 1000


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    error: HeadraceError
    until_ms: int  # monotonic


class HeldBack:
    """By producer, the batch with which it is to go on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._refused: dict[int, _Refused] = {}

    def note(self, header: BatchHeader, error: HeadraceError) -> None:
        """A batch that is next in its producer's sequence was refused for a while."""
        if header.producer_id < 0:
            return
        self._refused.pop(header.producer_id, None)
        until_ms = self._clock.monotonic_ms() + _WAIT_MS
        self._refused[header.producer_id] = _Refused(header.producer_epoch, header.base_sequence, error, until_ms)
        if len(self._refused) > _PRODUCERS_MAX:
            del self._refused[next(iter(self._refused))]

    def check(self, header: BatchHeader) -> None:
        """Refuse a batch that comes after one that was refused, for the same reason."""
        refused = self._refused.get(header.producer_id)
        if refused is None or refused.epoch != header.producer_epoch or refused.sequence == header.base_sequence:
            return
        if refused.until_ms < self._clock.monotonic_ms():
            del self._refused[header.producer_id]
        else:
            raise refused.error

    def go_on(self, header: BatchHeader) -> None:
        """A batch of this producer is stored."""
        if self._refused:
            self._refused.pop(header.producer_id, None)
