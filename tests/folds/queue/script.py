"""A queue in a few words, for tests that read as scripts: who gets what, and when."""

from collections.abc import Iterable
from uuid import UUID

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.fold import Lease, QueueFold
from headrace.folds.queue.image import restore, snapshot
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.invariant import check_invariants
from headrace.folds.queue.view import state_of
from headrace.model.queue import QueueConfig

NAME = "queue-00c0ffee"
SUBSCRIPTION = UUID("00c0ffee-0000-4000-8000-000000000001")


class Script:
    """One fold on two clocks that go together unless a test says otherwise, with nothing but messages in its log."""

    def __init__(self, config: QueueConfig | None = None) -> None:
        self.fold = QueueFold(config or QueueConfig())
        self.now = Instant(0, 1_000_000)

    def send(self, *properties: Properties, count: int = 0) -> None:
        """So many plain messages, or one for each of the properties."""
        own = dict(enumerate(properties))
        self.fold.arrive(self.fold.end_offset, count or len(own), sent_ms=self.now.wall_ms, properties=own)

    def send_keys(self, keys: str) -> None:
        """One message for each letter, which is its key."""
        self.send(*(Properties(key=key.encode()) for key in keys))

    def wait(self, ms: int) -> None:
        self.now = Instant(self.now.lease_ms + ms, self.now.wall_ms + ms)
        self.fold.advance(self.now)

    def receive(self, count: int = 10, lease_ms: int = 30_000, upto: int | None = None) -> list[int]:
        """The offsets that are handed out."""
        upto = self.fold.end_offset if upto is None else upto
        handout = self.fold.lease(count, lease_ms, upto=upto, now=self.now)
        check_invariants(self.fold)
        return [] if handout is None else [lease.offset for lease in handout.leases]

    def lease(self, count: int = 10, lease_ms: int = 30_000) -> list[Lease]:
        handout = self.fold.lease(count, lease_ms, upto=self.fold.end_offset, now=self.now)
        return [] if handout is None else handout.leases

    def take(self, count: int = 10) -> list[int]:
        handout = self.fold.take(count, upto=self.fold.end_offset, now=self.now)
        check_invariants(self.fold)
        return [] if handout is None else [lease.offset for lease in handout.leases]

    def acknowledge(self, *offsets: int) -> None:
        self.fold.acknowledge(offsets, now=self.now)
        check_invariants(self.fold)

    def release(self, *offsets: int, delay_ms: int | None = None) -> None:
        self.fold.release(offsets, delay_ms, now=self.now)
        check_invariants(self.fold)

    def give_back(self, *offsets: int) -> None:
        self.fold.return_unused(offsets, now=self.now)
        check_invariants(self.fold)

    def expire_old(self, upto: int) -> int:
        """What retention drops: how many."""
        before = self.fold.counts.expired
        self.fold.expire_old(upto, now=self.now)
        check_invariants(self.fold)
        return self.fold.counts.expired - before

    def states(self, offsets: Iterable[int]) -> list[str | None]:
        found = [state_of(self.fold, offset) for offset in offsets]
        return [None if state is None else state.value for state in found]

    def attempt(self, offset: int) -> int:
        return self.fold.history(offset).attempts

    def restart(self) -> None:
        self.fold = restore(snapshot(self.fold, NAME), name=NAME)
        check_invariants(self.fold)
