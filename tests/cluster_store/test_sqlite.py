"""What is particular to the embedded store: its file."""

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

from headrace.cluster.sqlite import FILE_NAME, SqliteStore
from headrace.cluster.store import ABSENT, CompactedError, Revision
from headrace.model.errors import (
    ConfigurationError,
    CorruptLogError,
    DiskFullError,
    ForeignDataError,
    StoreConflictError,
    StoreUnavailableError,
    UnsupportedError,
)
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.threads import HeldThreads, InlineThreads

T = TypeVar("T")


class FailingThreads(InlineThreads):
    """Fails as many calls as it is told to, without running them."""

    failing_count = 0

    def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
        if self.failing_count:
            self.failing_count -= 1
            return super().run(self._fail)
        return super().run(call)

    def _fail(self) -> NoReturn:
        raise StoreUnavailableError("on purpose")


async def opened(directory: Path, clock: SimulatedClock | None = None) -> SqliteStore:
    return await SqliteStore.open(str(directory), clock=clock or SimulatedClock(), threads=InlineThreads())


async def fill(directory: Path, count: int = 200) -> None:
    store = await opened(directory)
    await store.transact(puts={f"/key/{n}": bytes(100) for n in range(count)})
    await store.close()


def test_what_was_committed_is_there_after_reopening_and_the_revision_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        await fill(tmp_path)
        store = await opened(tmp_path)
        assert len((await store.list("/key/")).items) == 200
        assert await store.transact(compares={"/new": ABSENT}, puts={"/new": b""}) == 2
        with pytest.raises(CompactedError):
            await anext(store.watch("/", Revision(0)))
        await store.close()

    asyncio.run(scenario())


def copy_files(directory: Path) -> Path:
    """What a killed process leaves: the files as they are, the log of the last commits among them."""
    twin = directory / "twin"
    twin.mkdir()
    for file in directory.glob(f"{FILE_NAME}*"):
        (twin / file.name).write_bytes(file.read_bytes())
    return twin


def test_a_commit_that_was_answered_survives_without_a_close(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        await store.transact(puts={"/a": b"kept"})
        copy = await opened(copy_files(tmp_path))
        item = await copy.get("/a")
        assert item is not None
        assert item.value == b"kept"
        await copy.close()
        await store.close()

    asyncio.run(scenario())


def test_a_second_node_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        with pytest.raises(ConfigurationError, match="another headrace"):
            await opened(tmp_path)
        await store.close()

    asyncio.run(scenario())


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        asyncio.run(opened(tmp_path / "nowhere"))


def test_a_database_of_a_newer_headrace_is_refused(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path))
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(UnsupportedError, match="schema version 2"):
        asyncio.run(opened(tmp_path))


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / FILE_NAME) as database:
        database.execute("CREATE TABLE holidays (place TEXT)")
    database.close()
    with pytest.raises(ForeignDataError, match="another program"):
        asyncio.run(opened(tmp_path))


def test_a_file_that_is_no_database_is_reported_as_corrupt(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is not a database" * 100)
    with pytest.raises(CorruptLogError, match=FILE_NAME):
        asyncio.run(opened(tmp_path))


def test_a_damaged_database_is_reported_as_corrupt(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, count=2000))
    data = bytearray((tmp_path / FILE_NAME).read_bytes())
    data[8192:20480] = bytes([0xFF]) * 12288
    (tmp_path / FILE_NAME).write_bytes(data)
    with pytest.raises(CorruptLogError, match=FILE_NAME):
        asyncio.run(opened(tmp_path))


def test_a_lease_has_a_full_term_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = SimulatedClock()
        store = await opened(tmp_path, clock)
        lease = await store.grant(1000)
        await store.transact(puts={"/n": b""}, lease=lease)
        await clock.elapse(900)
        await store.close()
        clock = SimulatedClock()
        store = await opened(tmp_path, clock)
        await clock.elapse(999)
        assert await store.get("/n") is not None
        await clock.elapse(1)
        assert await store.get("/n") is None
        with pytest.raises(StoreConflictError):
            await store.renew(lease)
        await store.close()

    asyncio.run(scenario())


def test_calls_wait_for_their_turn_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def scenario() -> None:
        threads = HeldThreads()
        opening = asyncio.ensure_future(SqliteStore.open(str(tmp_path), clock=SimulatedClock(), threads=threads))
        while not opening.done():
            threads.release()
            await asyncio.sleep(0)
        store = await opening
        first = asyncio.ensure_future(store.transact(puts={"/a": b"1"}))
        second = asyncio.ensure_future(store.transact(puts={"/a": b"2"}))
        await settle()
        assert len(threads) == 1
        threads.release()
        await settle()
        assert (first.done(), second.done()) == (True, False)
        threads.release()
        assert (await first, await second) == (1, 2)
        closing = asyncio.ensure_future(store.close())
        await settle()
        threads.release()
        await closing
        with pytest.raises(StoreUnavailableError):
            await store.list("/")

    asyncio.run(scenario())


def test_a_full_disk_changes_nothing_and_leaves_the_store_usable(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await opened(tmp_path)
        await store.transact(puts={"/a": b"1"})
        # SQLite's own limit on the file's size answers as a full disk does.
        store._database.execute("PRAGMA max_page_count = 10")
        with pytest.raises(DiskFullError, match="nothing was changed"):
            await store.transact(puts={"/a": b"2", "/b": bytes(100_000)})
        listing = await store.list("/")
        assert [(item.key, item.value) for item in listing.items] == [("/a", b"1")]
        assert await store.transact(puts={"/a": b"3"}) == 2
        await store.close()

    asyncio.run(scenario())


def test_a_full_disk_is_asked_for_room_and_the_call_repeated(tmp_path: Path) -> None:
    async def scenario() -> None:
        asked = []

        def make_room() -> bool:
            asked.append(True)
            store._database.execute(f"PRAGMA max_page_count = {10 * len(asked) ** 4}")
            return True

        store = await SqliteStore.open(
            str(tmp_path), clock=SimulatedClock(), threads=InlineThreads(), make_room=make_room
        )
        store._database.execute("PRAGMA max_page_count = 10")
        assert await store.transact(puts={"/b": bytes(100_000)}) == 1
        assert len(asked) == 2
        item = await store.get("/b")
        assert item is not None
        assert len(item.value) == 100_000
        await store.close()

    asyncio.run(scenario())


def test_a_lease_that_could_not_be_ended_is_ended_a_little_later(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock, threads = SimulatedClock(), FailingThreads()
        store = await SqliteStore.open(str(tmp_path), clock=clock, threads=threads)
        lease = await store.grant(1000)
        await store.transact(puts={"/n": b""}, lease=lease)
        threads.failing_count = 2
        await clock.elapse(1000)
        with pytest.raises(StoreConflictError):
            await store.renew(lease)
        await clock.elapse(1500)
        assert await store.get("/n") is not None
        await clock.elapse(1500)
        assert await store.get("/n") is None
        await store.close()

    asyncio.run(scenario())
