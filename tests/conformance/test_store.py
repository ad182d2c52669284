"""What every metadata store does, whatever is behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import ABSENT, START, CompactedError, Event, Revision, Store
from headrace.host.threads import PoolThreads
from headrace.model.errors import StoreConflictError, StoreUnavailableError
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.store import MemoryStore
from headrace.testing.threads import InlineThreads

WAIT_S = 10

Scenario = Callable[[Store, SimulatedClock], Awaitable[None]]
Run = Callable[[Scenario], None]


@pytest.fixture(params=["memory", "sqlite", "sqlite in a pool"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Runs a scenario on a fresh store."""

    async def with_store(scenario: Scenario) -> None:
        clock = SimulatedClock()
        threads = PoolThreads(name="store", count_max=3) if "pool" in request.param else InlineThreads()
        store: Store = (
            MemoryStore(clock)
            if request.param == "memory"
            else await SqliteStore.open(str(tmp_path), clock=clock, threads=threads)
        )
        await asyncio.wait_for(scenario(store, clock), WAIT_S)
        await store.close()
        threads.close()

    return lambda scenario: asyncio.run(with_store(scenario))


def test_a_fresh_store_is_empty(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        assert await store.get("/a") is None
        assert await store.list("/") == ((), START)

    run(scenario)


def test_what_was_put_is_read_with_the_revision_of_its_last_change(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        assert await store.transact(puts={"/a": b"1", "/b": b"2"}) == 1
        assert await store.transact(puts={"/a": b"\x00\xff"}) == 2
        item = await store.get("/a")
        assert item is not None
        assert (item.key, item.value, item.mod_revision, item.lease) == ("/a", b"\x00\xff", 2, None)
        listing = await store.list("/")
        assert [(item.key, item.mod_revision) for item in listing.items] == [("/a", 2), ("/b", 1)]
        assert listing.revision == 2

    run(scenario)


def test_a_listing_is_of_the_prefix_only_and_sorted(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        await store.transact(puts=dict.fromkeys(["/t/b", "/t/a", "/t", "/u", "/t/~~", "/t/Z"], b""))
        assert [item.key for item in (await store.list("/t/")).items] == ["/t/Z", "/t/a", "/t/b", "/t/~~"]
        assert [item.key for item in (await store.list("/u")).items] == ["/u"]
        assert len((await store.list("")).items) == 6

    run(scenario)


def test_a_transaction_happens_only_if_every_compare_holds(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        first = await store.transact(compares={"/a": ABSENT}, puts={"/a": b"1"})
        for wrong in (ABSENT, Revision(first + 1)):
            with pytest.raises(StoreConflictError, match="/a"):
                await store.transact(compares={"/b": ABSENT, "/a": wrong}, puts={"/b": b"2"})
        assert await store.get("/b") is None
        second = await store.transact(compares={"/a": first}, deletes=["/a"])
        assert second == first + 1
        await store.transact(compares={"/a": ABSENT}, puts={"/a": b"again"})

    run(scenario)


def test_one_of_many_that_compare_the_same_revision_wins(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        async def attempt(name: int) -> bool:
            try:
                await store.transact(compares={"/leader": ABSENT}, puts={"/leader": b"%d" % name})
            except StoreConflictError:
                return False
            return True

        assert sum(await asyncio.gather(*(attempt(n) for n in range(10)))) == 1

    run(scenario)


def test_a_transaction_that_changes_nothing_leaves_the_revision(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        revision = await store.transact(puts={"/a": b""})
        assert await store.transact(compares={"/a": revision}) == revision
        assert await store.transact(deletes=["/nothing"]) == revision

    run(scenario)


def test_a_transaction_that_no_store_takes_is_refused(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        for key in ("", "/ü", "/a\n"):
            with pytest.raises(ValueError, match="printable ASCII"):
                await store.transact(puts={key: b""})
        with pytest.raises(ValueError, match="put and deleted"):
            await store.transact(puts={"/a": b""}, deletes=["/a"])

    run(scenario)


async def take(watch: AsyncIterator[Sequence[Event]], count: int) -> list[list[tuple[str, bytes | None, int]]]:
    return [[tuple(event) for event in await anext(watch)] for _ in range(count)]  # type: ignore[misc]


def test_a_watch_delivers_what_came_after_its_revision_and_then_what_comes(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        await store.transact(puts={"/t/a": b"1"})
        start = (await store.list("/t/")).revision
        await store.transact(puts={"/t/b": b"2", "/u": b""})
        watch = store.watch("/t/", start)
        assert await take(watch, 1) == [[("/t/b", b"2", 2)]]
        waiting = asyncio.ensure_future(take(watch, 2))
        await settle()
        assert not waiting.done()
        await store.transact(puts={"/u": b"not of the prefix"})
        await store.transact(deletes=["/t/a", "/t/none"])
        await store.transact(puts={"/t/c": b"3", "/t/d": b"4"})
        assert await waiting == [[("/t/a", None, 4)], [("/t/c", b"3", 5), ("/t/d", b"4", 5)]]

    run(scenario)


def test_every_watcher_sees_every_change(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        watchers = [asyncio.ensure_future(take(store.watch("/", START), 20)) for _ in range(3)]
        await asyncio.gather(*(store.transact(puts={f"/{n}": b""}) for n in range(20)))
        for seen in await asyncio.gather(*watchers):
            assert [events[0][2] for events in seen] == list(range(1, 21))

    run(scenario)


def test_watches_end_when_the_store_closes_and_calls_are_refused(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        watch = store.watch("/", START)
        waiting = asyncio.ensure_future(take(watch, 1))
        await settle()
        await store.close()
        with pytest.raises(StopAsyncIteration):
            await waiting
        with pytest.raises(StoreUnavailableError):
            await store.transact(puts={"/a": b""})
        with pytest.raises(StoreUnavailableError):
            await store.get("/a")

    run(scenario)


def test_keys_under_a_lease_vanish_at_its_end_and_watchers_are_told(run: Run) -> None:
    async def scenario(store: Store, clock: SimulatedClock) -> None:
        lease = await store.grant(1000)
        await store.transact(puts={"/n/1": b"", "/n/2": b""}, lease=lease)
        await store.transact(puts={"/n/3": b""})
        watch = store.watch("/n/", Revision(2))
        await clock.elapse(999)
        assert await store.get("/n/1") is not None
        await clock.elapse(1)
        assert await take(watch, 1) == [[("/n/1", None, 3), ("/n/2", None, 3)]]
        assert [item.key for item in (await store.list("/n/")).items] == ["/n/3"]

    run(scenario)


def test_a_renewed_lease_lives_for_a_full_term_more(run: Run) -> None:
    async def scenario(store: Store, clock: SimulatedClock) -> None:
        lease = await store.grant(1000)
        await store.transact(puts={"/n": b""}, lease=lease)
        for _ in range(3):
            await clock.elapse(900)
            await store.renew(lease)
        await clock.elapse(999)
        assert await store.get("/n") is not None
        await clock.elapse(1)
        assert await store.get("/n") is None
        with pytest.raises(StoreConflictError):
            await store.renew(lease)

    run(scenario)


def test_a_revoked_lease_takes_its_keys_and_cannot_be_used_again(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        lease = await store.grant(1000)
        await store.transact(puts={"/n": b""}, lease=lease)
        await store.revoke(lease)
        await store.revoke(lease)
        assert await store.get("/n") is None
        with pytest.raises(StoreConflictError):
            await store.transact(puts={"/n": b""}, lease=lease)
        with pytest.raises(StoreConflictError):
            await store.renew(lease)
        assert await store.grant(1000) != lease

    run(scenario)


def test_a_put_without_a_lease_takes_the_key_out_of_it(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        lease = await store.grant(1000)
        await store.transact(puts={"/n": b"leased"}, lease=lease)
        item = await store.get("/n")
        assert item is not None
        assert item.lease == lease
        await store.transact(puts={"/n": b"kept"})
        await store.revoke(lease)
        assert await store.get("/n") is not None

    run(scenario)


def test_a_caller_that_goes_away_does_not_disturb_the_others(run: Run) -> None:
    async def scenario(store: Store, _: SimulatedClock) -> None:
        for n in range(20):
            task = asyncio.ensure_future(store.transact(puts={"/a": b"%d" % n, "/b": b"%d" % n}))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await store.transact(puts={f"/{n}": b""})
        a, b = await store.get("/a"), await store.get("/b")
        assert a is not None
        assert b is not None
        assert (a.value, a.mod_revision) == (b.value, b.mod_revision)
        revisions = [events[0][2] for events in await take(store.watch("/", START), (await store.list("/")).revision)]
        assert revisions == list(range(1, len(revisions) + 1))

    run(scenario)


def test_a_watch_from_a_revision_that_is_forgotten_says_so() -> None:
    async def scenario() -> None:
        store = MemoryStore(SimulatedClock(), events_kept_max=3)
        for n in range(6):
            await store.transact(puts={"/a": b"%d" % n})
        with pytest.raises(CompactedError):
            await anext(store.watch("/", Revision(2)))
        assert await take(store.watch("/", Revision(3)), 1) == [[("/a", b"3", 4)]]
        slow = store.watch("/", Revision(6))
        waiting = asyncio.ensure_future(take(slow, 1))
        await settle()
        await store.transact(puts={"/a": b"6"})
        store.compact()
        with pytest.raises(CompactedError):
            await waiting

    asyncio.run(scenario())


keys = st.sampled_from(["/a", "/a/b", "/b", "/c~", "/c"])
transactions = st.lists(
    st.tuples(
        st.dictionaries(keys, st.sampled_from(["right", "wrong"]), max_size=2),
        st.dictionaries(keys, st.binary(max_size=8), max_size=3),
        st.sets(keys, max_size=2),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(script=transactions, kind=st.sampled_from(["memory", "sqlite"]))
def test_any_transactions_leave_what_a_plain_dict_has(
    script: list[tuple[dict[str, str], dict[str, bytes], set[str], bool]], kind: str
) -> None:
    async def scenario(directory: str) -> None:
        clock = SimulatedClock()

        async def opened() -> Store:
            return await SqliteStore.open(directory, clock=clock, threads=InlineThreads())

        store: Store = MemoryStore(clock) if kind == "memory" else await opened()
        model: dict[str, tuple[bytes, int]] = {}
        revision = 0
        for marks, puts, deletes, reopen in script:
            deletes -= puts.keys()
            found = {key: model[key][1] if key in model else 0 for key in marks}
            compares = {key: Revision(found[key] + (marks[key] == "wrong")) for key in marks}
            try:
                answer = await store.transact(compares=compares, puts=puts, deletes=deletes)
            except StoreConflictError:
                assert "wrong" in marks.values()
            else:
                assert "wrong" not in marks.values()
                if puts or deletes & model.keys():
                    revision += 1
                model |= {key: (value, revision) for key, value in puts.items()}
                model = {key: kept for key, kept in model.items() if key not in deletes}
                assert answer == revision
            if reopen and kind == "sqlite":
                await store.close()
                store = await opened()
            for prefix in ("/", "/a", "/c"):
                listing = await store.list(prefix)
                expected = sorted((key, *kept) for key, kept in model.items() if key.startswith(prefix))
                assert [item[:3] for item in listing.items] == expected
                assert listing.revision == revision
        await store.close()

    with TemporaryDirectory() as directory:
        asyncio.run(scenario(directory))
