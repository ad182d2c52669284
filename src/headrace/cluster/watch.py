"""The recent changes of a store that lives in this process, and those who wait for the next.

Every watcher reads from the same bounded history at its own pace, so a slow one costs no memory: it finds its place
gone and starts over.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from headrace.cluster.store import CompactedError, Event, Revision

EVENTS_KEPT_MAX = 50_000


class Transaction(NamedTuple):
    revision: Revision
    events: tuple[Event, ...]


class WatchHub:
    def __init__(self, *, revision: Revision, events_kept_max: int = EVENTS_KEPT_MAX) -> None:
        self._events_kept_max = events_kept_max
        self._history: deque[Transaction] = deque()
        self._event_count = 0
        self._revision = revision
        self._forgotten_revision = revision  # changes up to here cannot be replayed
        self._changed = asyncio.Event()
        self._closed = False

    @property
    def revision(self) -> Revision:
        return self._revision

    def publish(self, revision: Revision, events: Sequence[Event]) -> None:
        """Show one transaction to every watcher. Called in the order of the revisions."""
        assert revision == self._revision + 1, f"revision {revision} published after {self._revision}"
        self._revision = revision
        self._history.append(Transaction(revision, tuple(events)))
        self._event_count += len(events)
        while self._event_count > self._events_kept_max and len(self._history) > 1:
            self._forget_oldest()
        self._wake()

    def compact(self) -> None:
        """Forget every change so far; watchers that have not seen them start over."""
        while self._history:
            self._forget_oldest()
        self._wake()

    def close(self) -> None:
        self._closed = True
        self._wake()

    async def watch(self, prefix: str, after_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        seen = after_revision
        while not self._closed:
            changed = self._changed
            transaction = self._next(seen)
            if transaction is None:
                await changed.wait()
                continue
            seen = transaction.revision
            events = [event for event in transaction.events if event.key.startswith(prefix)]
            if events:
                yield events

    def _next(self, seen: Revision) -> Transaction | None:
        if seen < self._forgotten_revision:
            raise CompactedError(f"changes up to revision {self._forgotten_revision} are gone; {seen} was seen last")
        # Revisions in the history have no gaps, so the place is known without a search.
        index = seen - self._forgotten_revision
        return self._history[index] if index < len(self._history) else None

    def _forget_oldest(self) -> None:
        transaction = self._history.popleft()
        self._event_count -= len(transaction.events)
        self._forgotten_revision = transaction.revision

    def _wake(self) -> None:
        # A fresh event for the next change: whoever holds the old one wakes, and nobody has to clear it.
        self._changed.set()
        self._changed = asyncio.Event()
