"""The embedded store's file: how it is opened, what it holds, and when it is refused."""

import sqlite3
from collections.abc import Callable

from headrace.model.errors import ConfigurationError, CorruptLogError, DiskFullError, ForeignDataError, UnsupportedError

SCHEMA_VERSION = 1
# Tells this file from other SQLite files: "hrmd".
APPLICATION_ID = 0x68726D64

_LOCK_TIMEOUT_S = 0.5

_SCHEMA = (
    "CREATE TABLE items (key TEXT PRIMARY KEY, value BLOB NOT NULL, mod_revision INTEGER NOT NULL, lease INTEGER)"
    " WITHOUT ROWID",
    "CREATE INDEX items_of_lease ON items (lease) WHERE lease IS NOT NULL",
    # AUTOINCREMENT: the id of a lease that ended is never given again.
    "CREATE TABLE leases (id INTEGER PRIMARY KEY AUTOINCREMENT, ttl_ms INTEGER NOT NULL)",
    "CREATE TABLE state (revision INTEGER NOT NULL)",
    "INSERT INTO state VALUES (0)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {SCHEMA_VERSION}",
)


def open_database(path: str, *, make_room: Callable[[], bool]) -> sqlite3.Connection:
    """Open or make the file, checked and ready, with no transaction open."""
    while True:
        try:
            return _open(path)
        except DiskFullError:
            if not make_room():
                raise


def is_full(error: sqlite3.Error) -> bool:
    """Whether a call failed for lack of space, and may be repeated: SQLite has undone it."""
    return error.sqlite_errorcode == sqlite3.SQLITE_FULL


def _open(path: str) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=_LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.OperationalError as error:
        raise ConfigurationError(f"{path} cannot be opened: {error}; check the data directory") from error
    try:
        _prepare(path, database)
    except sqlite3.OperationalError as error:
        database.close()
        if is_full(error):
            raise DiskFullError(f"{path} cannot be used: {error}; free disk space, then start the node") from error
        raise ConfigurationError(
            f"{path} cannot be used: {error}; is another headrace running on this data directory?"
        ) from error
    except sqlite3.DatabaseError as error:
        database.close()
        raise _corrupt(path, str(error)) from error
    except BaseException:
        database.close()
        raise
    return database


def _prepare(path: str, database: sqlite3.Connection) -> None:
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    _set(path, database, "journal_mode", "wal")
    _set(path, database, "synchronous", 2)  # FULL: a commit is on the device before it is answered
    database.execute("BEGIN EXCLUSIVE")
    try:
        version = _pragma(database, "user_version")
        application_id = _pragma(database, "application_id")
        if version == 0 and application_id == 0 and not database.execute("SELECT 1 FROM sqlite_schema").fetchone():
            for statement in _SCHEMA:
                database.execute(statement)
        else:
            _check(path, database, version, application_id)
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _check(path: str, database: sqlite3.Connection, version: object, application_id: object) -> None:
    if application_id != APPLICATION_ID or not isinstance(version, int):
        raise ForeignDataError(f"{path} is a database of another program; choose another data directory")
    if version > SCHEMA_VERSION:
        raise UnsupportedError(
            f"{path} has schema version {version}, and this headrace knows up to {SCHEMA_VERSION}; "
            "start the newer headrace that wrote it"
        )
    found = [row[0] for row in database.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise _corrupt(path, found[0])


def _set(path: str, database: sqlite3.Connection, name: str, value: str | int) -> None:
    database.execute(f"PRAGMA {name} = {value}")
    found = _pragma(database, name)
    if found != value:
        raise ConfigurationError(
            f"{path}: SQLite answers {name}={found} where {value} is needed; put the data directory on a local disk"
        )


def _pragma(database: sqlite3.Connection, name: str) -> object:
    row: tuple[object, ...] = database.execute(f"PRAGMA {name}").fetchone()
    return row[0]


def _corrupt(path: str, found: str) -> CorruptLogError:
    return CorruptLogError(file=path, position=0, expected="a sound database", found=found, what="metadata")
