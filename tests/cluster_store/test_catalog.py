"""The cached view: a list, then events, each once and in order."""

import asyncio
from uuid import UUID

import pytest

from headrace.cluster.catalog import (
    Catalog,
    CatalogChange,
    QueueChanged,
    QueueDeleted,
    TopicChanged,
    TopicCreated,
    TopicDeleted,
)
from headrace.cluster.driver import CatalogDriver
from headrace.cluster.record import SubscriptionRecord, TopicRecord, encode
from headrace.cluster.store import Event, Item, Listing, Revision
from headrace.model.errors import ConfigurationError, ShuttingDownError, StoreUnavailableError
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.rand import SeededRand
from headrace.testing.store import MemoryStore

IDS = [UUID(int=n) for n in range(9)]


def value(uuid: UUID, count: int = 1, **overrides: str) -> bytes:
    return encode(TopicRecord(uuid=uuid, partition_count=count, replication_factor=1, overrides=overrides))


def put(revision: int, name: str, uuid: UUID, count: int = 1) -> Event:
    return Event(f"/c/topics/{name}", value(uuid, count), Revision(revision))


def delete(revision: int, name: str) -> Event:
    return Event(f"/c/topics/{name}", None, Revision(revision))


def listened() -> tuple[Catalog, list[CatalogChange]]:
    catalog = Catalog(cluster="c")
    changes: list[CatalogChange] = []
    catalog.on_change(changes.append)
    return catalog, changes


def names(changes: list[CatalogChange]) -> list[tuple[str, str]]:
    return [(type(change).__name__, _named(change)) for change in changes]


def _named(change: CatalogChange) -> str:
    return change.queue.name if isinstance(change, QueueChanged | QueueDeleted) else change.topic.name


def test_a_list_is_taken_over_whole() -> None:
    catalog, changes = listened()
    items = [Item(f"/c/topics/{name}", value(IDS[n]), Revision(n + 1)) for n, name in enumerate("ab")]
    catalog.reset(Listing(tuple(items), Revision(7)))
    assert catalog.revision == 7
    assert sorted(catalog.topics) == ["a", "b"]
    assert catalog.topics_by_id[IDS[1]] is catalog.topics["b"]
    assert names(changes) == [("TopicCreated", "a"), ("TopicCreated", "b")]


def test_events_create_change_and_delete() -> None:
    catalog, changes = listened()
    catalog.apply([put(1, "a", IDS[0]), put(1, "b", IDS[1])])
    before = catalog.topics["a"]
    catalog.apply([put(2, "a", IDS[0], count=3)])
    catalog.apply([delete(3, "b")])
    assert changes[2:] == [TopicChanged(catalog.topics["a"], before), changes[3]]
    assert isinstance(changes[3], TopicDeleted)
    assert catalog.topics["a"].partition_count == 3
    assert list(catalog.topics_by_id) == [IDS[0]]


def test_a_name_that_is_used_again_is_another_topic() -> None:
    catalog, changes = listened()
    catalog.apply([put(1, "a", IDS[0])])
    catalog.apply([put(2, "a", IDS[1])])
    assert names(changes[1:]) == [("TopicDeleted", "a"), ("TopicCreated", "a")]
    assert list(catalog.topics_by_id) == [IDS[1]]


def test_what_is_not_newer_is_passed_over() -> None:
    catalog, changes = listened()
    catalog.reset(Listing((), Revision(5)))
    catalog.apply([put(5, "late", IDS[0])])
    catalog.apply([put(6, "new", IDS[1])])
    catalog.reset(Listing((), Revision(4)))
    assert list(catalog.topics) == ["new"]
    assert names(changes) == [("TopicCreated", "new")]


def test_a_second_list_tells_only_what_differs() -> None:
    catalog, changes = listened()
    catalog.apply([put(1, "kept", IDS[0]), put(1, "gone", IDS[1])])
    changes.clear()
    items = (Item("/c/topics/kept", value(IDS[0]), Revision(1)), Item("/c/topics/new", value(IDS[2]), Revision(9)))
    catalog.reset(Listing(items, Revision(9)))
    assert names(changes) == [("TopicDeleted", "gone"), ("TopicCreated", "new")]


def test_listeners_find_the_catalog_already_changed() -> None:
    catalog = Catalog(cluster="c")
    seen: list[tuple[int, bool]] = []
    catalog.on_change(lambda change: seen.append((catalog.revision, _named(change) in catalog.topics)))
    catalog.apply([put(1, "a", IDS[0])])
    assert seen == [(1, True)]


def test_a_record_that_cannot_be_names_its_key() -> None:
    catalog = Catalog(cluster="c")
    with pytest.raises(ConfigurationError, match="/c/topics/a"):
        catalog.apply([Event("/c/topics/a", b"{}", Revision(1))])
    bad = encode(
        TopicRecord(uuid=IDS[0], partition_count=1, replication_factor=1, overrides={"retention.ms": "a while"})
    )
    with pytest.raises(ConfigurationError, match=r"/c/topics/b.*retention\.ms"):
        catalog.apply([Event("/c/topics/b", bad, Revision(1))])


def test_whoever_waits_for_a_revision_is_woken_by_it_and_told_when_it_cannot_come() -> None:
    async def scenario() -> None:
        catalog = Catalog(cluster="c")
        soon = asyncio.ensure_future(catalog.reached(Revision(2)))
        never = asyncio.ensure_future(catalog.reached(Revision(9)))
        await settle()
        catalog.apply([put(2, "a", IDS[0])])
        await soon
        assert not never.done()
        catalog.close()
        with pytest.raises(ShuttingDownError):
            await never
        with pytest.raises(ShuttingDownError):
            await catalog.reached(Revision(9))
        await catalog.reached(Revision(2))

    asyncio.run(scenario())


def test_the_driver_follows_the_store_and_starts_over_when_history_is_gone() -> None:
    async def scenario() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        catalog, changes = listened()
        driver = CatalogDriver(store=store, catalog=catalog, clock=clock, rand=SeededRand(1))
        await store.transact(puts={"/c/topics/a": value(IDS[0])})
        await driver.load()
        task = asyncio.ensure_future(driver.run())
        await settle()
        await store.transact(puts={"/c/topics/b": value(IDS[1]), "/other/topics/x": b"of another cluster"})
        await settle()
        assert sorted(catalog.topics) == ["a", "b"]
        await store.transact(deletes=["/c/topics/a"])
        store.compact()
        await settle()
        assert sorted(catalog.topics) == ["b"]
        assert names(changes) == [("TopicCreated", "a"), ("TopicCreated", "b"), ("TopicDeleted", "a")]
        await store.close()
        await task

    asyncio.run(scenario())


def test_the_driver_waits_out_a_store_that_is_away() -> None:
    async def scenario() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        catalog = Catalog(cluster="c")
        driver = CatalogDriver(store=store, catalog=catalog, clock=clock, rand=SeededRand(1))
        await driver.load()
        task = asyncio.ensure_future(driver.run())
        await settle()
        await store.transact(puts={"/c/topics/a": value(IDS[0])})
        store.compact()
        store.disturb = lambda: "before"
        await clock.elapse(60_000)
        assert not task.done()
        assert not catalog.topics
        with pytest.raises(StoreUnavailableError):
            await driver.load()
        store.disturb = None
        await clock.elapse(60_000)
        assert list(catalog.topics) == ["a"]
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())


def test_created_changes_compare_as_values() -> None:
    catalog, changes = listened()
    catalog.apply([put(1, "a", IDS[0])])
    assert changes == [TopicCreated(catalog.topics["a"])]


def queue_event(revision: int, name: str, id: UUID, **config: object) -> Event:
    record = SubscriptionRecord(uuid=id, topic=IDS[0], config=dict(config), created_ms=1, modified_ms=1)
    return Event(f"/c/subscriptions/{name}", encode(record), Revision(revision))


def test_queues_come_change_and_go() -> None:
    catalog, changes = listened()
    catalog.apply([queue_event(1, "q", IDS[0])])
    assert catalog.queues["q"].config.lease_ms == 30_000
    catalog.apply([queue_event(2, "q", IDS[0], lease_ms=5, from_a_newer_version=1)])
    assert catalog.queues["q"].config.lease_ms == 5
    catalog.apply([queue_event(3, "q", IDS[1])])
    catalog.apply([Event("/c/subscriptions/q", None, Revision(4))])
    assert "q" not in catalog.queues
    assert names(changes) == [
        ("QueueChanged", "q"),
        ("QueueChanged", "q"),
        ("QueueDeleted", "q"),
        ("QueueChanged", "q"),
        ("QueueDeleted", "q"),
    ]
