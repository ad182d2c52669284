"""The metadata store: a small, ordered set of keys that all nodes agree on.

Theory of operation. Keys are printable ASCII, values are bytes. Every transaction that changes something raises the
store's *revision* by one, and every key remembers the revision of its last change. Reads see everything up to one
revision; a watch delivers each later revision once, whole and in order. Whoever decides something from what it read
compares the revisions that it read in the transaction that writes, so two deciders cannot both win.

What the exceptions mean to the caller, whichever method raises them:

    StoreConflictError     A compare did not hold, or a lease is over. Nothing was changed. Read again, decide anew.
    StoreUnavailableError  The store did not answer. A transaction *may* have been carried out: read again, and look for
                           one's own write before repeating it. Never take it for a no.
    CompactedError         A watch asks for revisions that are no longer kept. List again and watch from there.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import NamedTuple, NewType, Protocol

Revision = NewType("Revision", int)
LeaseId = NewType("LeaseId", int)

ABSENT = Revision(0)  # compares equal to a key that is not there
START = Revision(0)  # the revision of a store in which nothing was ever written


class CompactedError(Exception):
    """The changes after the revision asked for are forgotten. List again at a revision and watch from it."""


class Item(NamedTuple):
    key: str
    value: bytes
    mod_revision: Revision
    lease: LeaseId | None = None


class Listing(NamedTuple):
    """All items of a prefix, sorted by key, as they were at one revision."""

    items: tuple[Item, ...]
    revision: Revision


class Event(NamedTuple):
    """A key was put, or deleted if there is no value."""

    key: str
    value: bytes | None
    mod_revision: Revision


class Store(Protocol):
    @property
    def operations_max(self) -> int:
        """Most keys that one transaction may put and delete."""

    # Read: what was committed, never older than what this client has seen or written.

    async def get(self, key: str) -> Item | None: ...

    async def list(self, prefix: str) -> Listing: ...

    # Watch: every change after a revision, in order, none twice. The events of one transaction come together, and a
    # transaction without a key of the prefix is passed over. Raises CompactedError, at any time.

    def watch(self, prefix: str, after_revision: Revision) -> AsyncIterator[Sequence[Event]]: ...

    # Transaction: all of it or nothing, if every key's last revision is the one given (ABSENT: it is not there).

    async def transact(
        self,
        *,
        compares: Mapping[str, Revision] | None = None,
        puts: Mapping[str, bytes] | None = None,
        deletes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> Revision:
        """Change keys and return the revision that shows it: a new one, or the current one if nothing changed.

        With a lease, the keys put vanish when it ends; a put without one takes the key out of its lease.
        """

    # Lease: keys that live as long as somebody renews. It gives no exclusion: its holder must stop by its own clock
    # before the time is up, and others may see the keys a little longer than that.

    async def grant(self, ttl_ms: int) -> LeaseId: ...

    async def renew(self, lease: LeaseId) -> None:
        """Live for a full term from now. StoreConflictError: it is over, and its keys are gone."""

    async def revoke(self, lease: LeaseId) -> None:
        """End it now. No error if it is over."""

    async def close(self) -> None:
        """Stop. Watches end, and later calls raise StoreUnavailableError."""


def check_transaction(puts: Mapping[str, bytes], deletes: Collection[str], operations_max: int) -> None:
    """Refuse what no store takes. These are mistakes of the calling code, so they are not in the error tree."""
    for key in (*puts, *deletes):
        if not key or not key.isascii() or not key.isprintable():
            raise ValueError(f"{key!r} is not a key: keys are printable ASCII")
    if both := puts.keys() & set(deletes):
        raise ValueError(f"{min(both)!r} is put and deleted in one transaction")
    if (count := len(puts) + len(deletes)) > operations_max:
        raise ValueError(f"{count} keys in one transaction; at most {operations_max} are possible")
