"""Where a node's metadata is: in a file of its own, unless it is given another store."""

from collections.abc import Callable
from typing import Protocol

from headrace.cluster.sqlite import FILE_NAME, SqliteStore
from headrace.cluster.store import Store
from headrace.host.clock import Clock
from headrace.host.threads import Threads


class Metadata(Protocol):
    @property
    def file_name(self) -> str | None:
        """The file in the data directory that holds the metadata; None where they are elsewhere."""

    async def open(self, directory: str, *, clock: Clock, threads: Threads, make_room: Callable[[], bool]) -> Store: ...


class EmbeddedMetadata:
    """SQLite in the data directory of a node that is a cluster by itself."""

    file_name = FILE_NAME

    async def open(self, directory: str, *, clock: Clock, threads: Threads, make_room: Callable[[], bool]) -> Store:
        return await SqliteStore.open(directory, clock=clock, threads=threads, make_room=make_room)
