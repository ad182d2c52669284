"""The embedded store: one SQLite file in the data directory of a node that is a cluster by itself.

Theory of operation. One connection, held exclusively, on which calls run one after another in a thread; the event
loop never waits for the disk. A call answers after its COMMIT, which is synced (WAL, synchronous=FULL), and the
watchers see a transaction after its COMMIT, in order, even if the caller that made it has gone away meanwhile.

Leases survive a restart with a full term: how long the process was away is not known to a monotonic clock, and a lease
that lives too long is harmless where one that ends too early is not.
"""

import asyncio
import logging
import sqlite3
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.cluster.sqlite_schema import is_full, open_database
from headrace.cluster.store import ABSENT, Event, Item, LeaseId, Listing, Revision, check_transaction
from headrace.cluster.watch import WatchHub
from headrace.host.clock import Clock, Timer
from headrace.host.threads import Threads
from headrace.model.errors import CorruptLogError, DiskFullError, StoreConflictError, StoreUnavailableError

FILE_NAME = "metadata.sqlite"

_END_RETRY_MS = 1000
_logger = logging.getLogger(__name__)

T = TypeVar("T")


class Changed(NamedTuple):
    """What a transaction left: the revision that shows it, and its events if it changed anything."""

    revision: Revision
    events: tuple[Event, ...]


class SqliteStore:
    """A `headrace.cluster.store.Store`. Made by `SqliteStore.open`."""

    operations_max = 100_000

    def __init__(
        self,
        path: str,
        database: sqlite3.Connection,
        *,
        clock: Clock,
        threads: Threads,
        make_room: Callable[[], bool],
    ) -> None:
        self._path = path
        self._database = database
        self._clock = clock
        self._make_room = make_room
        self._turns = Turns(threads)
        self._hub = WatchHub(revision=_revision(database))
        self._timers: dict[LeaseId, Timer] = {}
        self._ttls_ms: dict[LeaseId, int] = {}
        self._endings: dict[LeaseId, Timer] = {}  # leases whose end failed, to be tried again
        self._closed = False

    @classmethod
    async def open(
        cls, directory: str, *, clock: Clock, threads: Threads, make_room: Callable[[], bool] = lambda: False
    ) -> "SqliteStore":
        """Open the file in a directory, or make it. Says what is wrong with a database that cannot be used.

        `make_room` is called on a full disk, and says whether another attempt is worth it. It may block.
        """
        path = f"{directory}/{FILE_NAME}"
        database = await threads.run(lambda: open_database(path, make_room=make_room))
        store = cls(path, database, clock=clock, threads=threads, make_room=make_room)
        for lease, ttl_ms in await store._run(lambda: _leases(database)):
            store._start(lease, ttl_ms)
        return store

    async def get(self, key: str) -> Item | None:
        return await self._run(lambda: _get(self._database, key))

    async def list(self, prefix: str) -> Listing:
        return await self._run(lambda: _list(self._database, prefix))

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
        # Copied: the call runs later, in a thread, and the caller may go on using what it passed.
        expected, values, gone = dict(compares or {}), dict(puts or {}), tuple(deletes)
        check_transaction(values, gone, self.operations_max)
        changed = await self._run(lambda: _transact(self._database, expected, values, gone, lease), self._publish)
        return changed.revision

    async def grant(self, ttl_ms: int) -> LeaseId:
        return await self._run(lambda: _grant(self._database, ttl_ms), lambda lease: self._start(lease, ttl_ms))

    async def renew(self, lease: LeaseId) -> None:
        # In memory only: after a restart every lease has a full term anyway.
        if self._closed:
            raise StoreUnavailableError("the metadata store is closed")
        if lease not in self._timers:
            raise StoreConflictError(f"lease {lease} is over; grant a new one")
        self._timers[lease].cancel()
        self._start(lease, self._ttls_ms[lease])

    async def revoke(self, lease: LeaseId) -> None:
        self._forget(lease)
        await self._run(lambda: _revoke(self._database, lease), self._publish)

    async def close(self) -> None:
        if self._closed:
            return
        for timer in (*self._timers.values(), *self._endings.values()):
            timer.cancel()
        self._hub.close()
        closing = self._run(self._database.close)
        self._closed = True
        await closing

    def _run(self, call: Callable[[], T], on_success: Callable[[T], None] | None = None) -> "asyncio.Future[T]":
        if self._closed:
            raise StoreUnavailableError("the metadata store is closed")
        return self._turns.run(lambda: self._guarded(call), on_success)

    def _guarded(self, call: Callable[[], T]) -> T:
        try:
            while True:
                try:
                    return call()
                except sqlite3.OperationalError as error:
                    if not is_full(error) or not self._make_room():
                        raise
        except sqlite3.OperationalError as error:
            if is_full(error):
                raise DiskFullError(f"{self._path}: {error}; nothing was changed. Free space, then retry") from error
            raise StoreUnavailableError(f"{self._path}: {error}; the call may have been carried out") from error
        except sqlite3.DatabaseError as error:
            raise CorruptLogError(
                file=self._path, position=0, expected="a sound database", found=str(error), what="metadata"
            ) from error

    def _publish(self, changed: Changed) -> None:
        if changed.events:
            self._hub.publish(changed.revision, changed.events)

    def _start(self, lease: LeaseId, ttl_ms: int) -> None:
        self._ttls_ms[lease] = ttl_ms
        self._timers[lease] = self._clock.call_later(ttl_ms, lambda: self._end(lease))

    def _end(self, lease: LeaseId) -> None:
        """A lease's time is up. Nobody awaits this, so the store itself sees to it that it is done."""
        self._forget(lease)
        self._run(lambda: _revoke(self._database, lease), self._publish).add_done_callback(
            lambda ending: self._ended(lease, ending)
        )

    def _ended(self, lease: LeaseId, ending: "asyncio.Future[Changed]") -> None:
        error = ending.exception()
        if error is not None and not self._closed:
            _logger.warning("a lease could not be ended", extra={"lease": lease}, exc_info=error)
            # Not through _start: the lease is over and cannot be renewed, only its keys are still there.
            self._endings[lease] = self._clock.call_later(_END_RETRY_MS, lambda: self._end(lease))

    def _forget(self, lease: LeaseId) -> None:
        self._ttls_ms.pop(lease, None)
        for timers in (self._timers, self._endings):
            timer = timers.pop(lease, None)
            if timer is not None:
                timer.cancel()


class Turns:
    """Runs blocking calls one after another, each to its end, whether or not anybody still waits for it."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False

    def run(self, call: Callable[[], T], on_success: Callable[[T], None] | None = None) -> "asyncio.Future[T]":
        """Start a call when those before it are done. `on_success` sees the result on the loop, before the caller."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def begin() -> None:
            self._threads.run(call).add_done_callback(finish)

        def finish(done: "asyncio.Future[T]") -> None:
            error = done.exception()
            if error is None and on_success is not None:
                on_success(done.result())
            if not answer.done():
                if error is None:
                    answer.set_result(done.result())
                else:
                    answer.set_exception(error)
            self._busy = False
            self._next()

        self._waiting.append(begin)
        self._next()
        return answer

    def _next(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            self._waiting.popleft()()


# What runs in the thread.


def _revision(database: sqlite3.Connection) -> Revision:
    return Revision(database.execute("SELECT revision FROM state").fetchone()[0])


def _get(database: sqlite3.Connection, key: str) -> Item | None:
    row = database.execute("SELECT key, value, mod_revision, lease FROM items WHERE key = ?", (key,)).fetchone()
    return Item._make(row) if row is not None else None


def _list(database: sqlite3.Connection, prefix: str) -> Listing:
    # Keys are ASCII, so everything that begins with the prefix lies below the prefix followed by DEL.
    rows = database.execute(
        "SELECT key, value, mod_revision, lease FROM items WHERE key >= ? AND key < ? ORDER BY key",
        (prefix, prefix + "\x7f"),
    )
    return Listing(tuple(map(Item._make, rows)), _revision(database))


def _leases(database: sqlite3.Connection) -> "list[tuple[LeaseId, int]]":
    return [(LeaseId(lease), ttl_ms) for lease, ttl_ms in database.execute("SELECT id, ttl_ms FROM leases ORDER BY id")]


def _transact(
    database: sqlite3.Connection,
    compares: Mapping[str, Revision],
    puts: Mapping[str, bytes],
    deletes: Collection[str],
    lease: LeaseId | None,
) -> Changed:
    with _committed(database):
        for key, expected in compares.items():
            row = database.execute("SELECT mod_revision FROM items WHERE key = ?", (key,)).fetchone()
            found = row[0] if row is not None else ABSENT
            if found != expected:
                raise StoreConflictError(f"{key} is at revision {found}, not {expected}; read it again")
        if lease is not None and not database.execute("SELECT 1 FROM leases WHERE id = ?", (lease,)).fetchone():
            raise StoreConflictError(f"lease {lease} is over; grant a new one")
        return _change(database, puts, deletes, lease)


def _change(
    database: sqlite3.Connection, puts: Mapping[str, bytes], deletes: Collection[str], lease: LeaseId | None
) -> Changed:
    before = _revision(database)
    revision = Revision(before + 1)
    database.executemany(
        "INSERT INTO items (key, value, mod_revision, lease) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
        " SET value = excluded.value, mod_revision = excluded.mod_revision, lease = excluded.lease",
        [(key, value, revision, lease) for key, value in puts.items()],
    )
    gone = [key for key in deletes if database.execute("DELETE FROM items WHERE key = ?", (key,)).rowcount]
    if not puts and not gone:
        return Changed(before, ())
    database.execute("UPDATE state SET revision = ?", (revision,))
    events = [Event(key, value, revision) for key, value in puts.items()]
    events += [Event(key, None, revision) for key in gone]
    return Changed(revision, tuple(events))


def _grant(database: sqlite3.Connection, ttl_ms: int) -> LeaseId:
    with _committed(database):
        lease = database.execute("INSERT INTO leases (ttl_ms) VALUES (?)", (ttl_ms,)).lastrowid
    assert lease is not None
    return LeaseId(lease)


def _revoke(database: sqlite3.Connection, lease: LeaseId) -> Changed:
    with _committed(database):
        keys = [row[0] for row in database.execute("SELECT key FROM items WHERE lease = ? ORDER BY key", (lease,))]
        database.execute("DELETE FROM leases WHERE id = ?", (lease,))
        return _change(database, {}, keys, None)


class _committed:  # noqa: N801 -- used as a verb, `with _committed(database)`
    """A transaction that is committed when the block ends well and undone when it does not."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def __enter__(self) -> None:
        self._database.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self._database.execute("COMMIT")
            except sqlite3.Error:
                self._rollback()
                raise
        else:
            self._rollback()

    def _rollback(self) -> None:
        if self._database.in_transaction:
            self._database.execute("ROLLBACK")
