"""A metadata store in memory, shared by the nodes of a simulated cluster, that can leave its callers in doubt."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Literal

from headrace.cluster.store import ABSENT, START, Event, Item, LeaseId, Listing, Revision, check_transaction
from headrace.cluster.watch import EVENTS_KEPT_MAX, WatchHub
from headrace.host.clock import Clock, Timer
from headrace.model.errors import StoreConflictError, StoreUnavailableError

Failure = Literal["before", "after"]


class MemoryStore:
    """A `headrace.cluster.store.Store`. Every call is carried out at once; leases end by the clock passed in."""

    operations_max = 100_000

    def __init__(self, clock: Clock, *, events_kept_max: int = EVENTS_KEPT_MAX) -> None:
        # Asked once for each call: fail it "before" or "after" it was carried out, or let it pass. The caller
        # cannot tell the two failures apart.
        self.disturb: Callable[[], Failure | None] | None = None
        self._clock = clock
        self._items: dict[str, Item] = {}
        self._hub = WatchHub(revision=START, events_kept_max=events_kept_max)
        self._leases: dict[LeaseId, tuple[int, Timer]] = {}
        self._lease_ids = count(1)
        self._closed = False

    async def get(self, key: str) -> Item | None:
        self._pass(self._disturbance())
        return self._items.get(key)

    async def list(self, prefix: str) -> Listing:
        self._pass(self._disturbance())
        items = tuple(item for key, item in sorted(self._items.items()) if key.startswith(prefix))
        return Listing(items, self._hub.revision)

    def watch(self, prefix: str, after_revision: Revision) -> AsyncIterator[Sequence[Event]]:
        return self._hub.watch(prefix, after_revision)

    async def transact(
        self,
        *,
        compares: Mapping[str, Revision] | None = None,
        puts: Mapping[str, bytes] | None = None,
        deletes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> Revision:
        puts = puts or {}
        check_transaction(puts, deletes, self.operations_max)
        failure = self._disturbance()
        if failure == "before":
            self._pass(failure)
        for key, expected in (compares or {}).items():
            item = self._items.get(key)
            found = item.mod_revision if item is not None else ABSENT
            if found != expected:
                raise StoreConflictError(f"{key} is at revision {found}, not {expected}; read it again")
        if lease is not None and lease not in self._leases:
            raise StoreConflictError(f"lease {lease} is over; grant a new one")
        revision = self._change(puts, deletes, lease)
        self._pass(failure)
        return revision

    async def grant(self, ttl_ms: int) -> LeaseId:
        self._pass(self._disturbance())
        lease = LeaseId(next(self._lease_ids))
        self._start(lease, ttl_ms)
        return lease

    async def renew(self, lease: LeaseId) -> None:
        self._pass(self._disturbance())
        if lease not in self._leases:
            raise StoreConflictError(f"lease {lease} is over; grant a new one")
        ttl_ms, timer = self._leases[lease]
        timer.cancel()
        self._start(lease, ttl_ms)

    async def revoke(self, lease: LeaseId) -> None:
        self._pass(self._disturbance())
        self._end(lease)

    async def close(self) -> None:
        for _, timer in self._leases.values():
            timer.cancel()
        self._closed = True
        self._hub.close()

    def compact(self) -> None:
        """Forget the history, as a real store does after a while."""
        self._hub.compact()

    def _disturbance(self) -> Failure | None:
        if self._closed:
            return "before"
        return self.disturb() if self.disturb is not None else None

    def _pass(self, failure: Failure | None) -> None:
        if failure is not None:
            raise StoreUnavailableError("the metadata store did not answer; the call may have been carried out")

    def _change(self, puts: Mapping[str, bytes], deletes: Collection[str], lease: LeaseId | None) -> Revision:
        gone = [key for key in deletes if key in self._items]
        if not puts and not gone:
            return self._hub.revision
        revision = Revision(self._hub.revision + 1)
        for key, value in puts.items():
            self._items[key] = Item(key, value, revision, lease)
        for key in gone:
            del self._items[key]
        events = [Event(key, value, revision) for key, value in puts.items()]
        events += [Event(key, None, revision) for key in gone]
        self._hub.publish(revision, events)
        return revision

    def _start(self, lease: LeaseId, ttl_ms: int) -> None:
        self._leases[lease] = (ttl_ms, self._clock.call_later(ttl_ms, lambda: self._end(lease)))

    def _end(self, lease: LeaseId) -> None:
        held = self._leases.pop(lease, None)
        if held is not None:
            held[1].cancel()
            self._change({}, [key for key, item in self._items.items() if item.lease == lease], None)
