"""Writes to the metadata, and what an unclear or refused transaction makes of them."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headrace.cluster.admin import PARTITION_COUNT_MAX, Admin, PartitionLimits
from headrace.cluster.catalog import Catalog, NodeAddress
from headrace.cluster.driver import CatalogDriver
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Store
from headrace.host.threads import PoolThreads
from headrace.model.errors import (
    InvalidConfigError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidReplicationError,
    StoreUnavailableError,
    TopicExistsError,
    UnknownTopicError,
)
from headrace.model.ids import NodeId, PartitionId
from headrace.model.topic import Durability, Topic
from headrace.testing.clock import SimulatedClock, settle
from headrace.testing.rand import SeededRand
from headrace.testing.store import MemoryStore

NODE = NodeId(1)


class Node:
    """A store's client with everything that a node has around it."""

    def __init__(self, store: Store, clock: SimulatedClock, *, node_id: NodeId = NODE, seed: int = 0) -> None:
        rand = SeededRand(seed)
        self.store = store
        self.clock = clock
        self.catalog = Catalog(cluster="c")
        self.driver = CatalogDriver(store=store, catalog=self.catalog, clock=clock, rand=rand)
        self.admin = Admin(store=store, catalog=self.catalog, node_id=node_id, clock=clock, rand=rand)

    def partition_epochs(self, name: str) -> list[int]:
        topic = self.catalog.topics[name]
        return [self.catalog.partitions[PartitionId(topic.id, n)].epoch for n in range(topic.partition_count)]


async def started(node: Node) -> "asyncio.Task[None]":
    await node.driver.load()
    return asyncio.create_task(node.driver.run())


async def finished(node: Node, call: Awaitable[object]) -> None:
    """Await a call that sleeps between its attempts, letting simulated time pass."""
    task = asyncio.ensure_future(call)
    for _ in range(200):
        if task.done():
            break
        await node.clock.elapse(100)
    await task


def with_node(scenario: Callable[[Node, MemoryStore], Awaitable[None]]) -> None:
    async def run() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        node = Node(store, clock)
        task = await started(node)
        await asyncio.wait_for(scenario(node, store), 20)
        await store.close()
        await task

    asyncio.run(run())


def test_a_created_topic_is_in_the_catalog_when_the_call_returns() -> None:
    async def scenario(node: Node, _: MemoryStore) -> None:
        topic = await node.admin.create_topic(
            "orders", partition_count=3, overrides={"headrace.durability": "memory", "retention.ms": "60000"}
        )
        assert node.catalog.topics["orders"] == topic
        assert node.catalog.topics_by_id[topic.id] == topic
        assert topic.config.durability is Durability.MEMORY
        assert topic.config.retention_ms == 60000
        record = node.catalog.partitions[PartitionId(topic.id, 2)]
        assert (record.replicas, record.leader, record.epoch, record.in_sync) == ((1,), 1, 0, (1,))

    with_node(scenario)


def test_what_cannot_be_created_is_refused_and_changes_nothing() -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        create = node.admin.create_topic
        await create("there", partition_count=1)
        before = await store.list("/")
        with pytest.raises(TopicExistsError):
            await create("there", partition_count=1)
        with pytest.raises(InvalidNameError):
            await create("a/b", partition_count=1)
        for count in (0, -1, PARTITION_COUNT_MAX + 1):
            with pytest.raises(InvalidPartitionsError):
                await create("new", partition_count=count)
        for factor in (0, 2):
            with pytest.raises(InvalidReplicationError):
                await create("new", partition_count=1, replication_factor=factor)
        with pytest.raises(InvalidConfigError):
            await create("new", partition_count=1, overrides={"retention.ms": "soon"})
        with pytest.raises(InvalidConfigError, match=r"min\.insync\.replicas=2 can never be reached"):
            await create("new", partition_count=1, overrides={"min.insync.replicas": "2"})
        await create("new", partition_count=1, validate_only=True)
        with pytest.raises(TopicExistsError):
            await create("there", partition_count=1, validate_only=True)
        assert await store.list("/") == before

    with_node(scenario)


def test_a_deleted_topic_is_gone_with_its_partitions_and_its_name_is_free() -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        first = await node.admin.create_topic("a", partition_count=3)
        assert await node.admin.delete_topic("a") == first
        assert node.catalog.topics == {}
        await settle()
        assert node.catalog.partitions == {}
        assert (await store.list("/")).items == ()
        with pytest.raises(UnknownTopicError):
            await node.admin.delete_topic("a")
        assert (await node.admin.create_topic("a", partition_count=1)).id != first.id

    with_node(scenario)


def test_partitions_are_only_added() -> None:
    async def scenario(node: Node, _: MemoryStore) -> None:
        topic = await node.admin.create_topic("a", partition_count=2)
        grown = await node.admin.set_partition_count("a", 5)
        assert (grown.id, grown.partition_count) == (topic.id, 5)
        assert node.catalog.topics["a"] == grown
        assert node.partition_epochs("a") == [0] * 5
        for count in (5, 4, 0):
            with pytest.raises(InvalidPartitionsError):
                await node.admin.set_partition_count("a", count)
        assert (await node.admin.set_partition_count("a", 9, validate_only=True)).partition_count == 9
        assert node.catalog.topics["a"].partition_count == 5
        with pytest.raises(UnknownTopicError):
            await node.admin.set_partition_count("b", 5)

    with_node(scenario)


def test_settings_are_replaced_as_a_whole_or_changed_one_by_one() -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        await node.admin.create_topic("a", partition_count=1, overrides={"retention.ms": "1", "segment.ms": "2"})
        changed = await node.admin.change_config("a", {"retention.ms": "3", "segment.ms": None, "retention.bytes": "4"})
        assert changed.overrides == {"retention.ms": "3", "retention.bytes": "4"}
        assert node.catalog.topics["a"] == changed
        assert (await node.admin.set_config("a", {"segment.ms": "5"})).overrides == {"segment.ms": "5"}
        before = await store.list("/")
        await node.admin.set_config("a", {"segment.ms": "5"})
        await node.admin.set_config("a", {"segment.ms": "6"}, validate_only=True)
        with pytest.raises(InvalidConfigError, match="did you mean"):
            await node.admin.change_config("a", {"segment.mss": "5"})
        with pytest.raises(InvalidConfigError, match=r"min\.insync\.replicas=2 can never be reached"):
            await node.admin.change_config("a", {"min.insync.replicas": "2"})
        assert await store.list("/") == before
        with pytest.raises(UnknownTopicError):
            await node.admin.set_config("b", {})

    with_node(scenario)


def test_two_nodes_that_change_one_topic_at_once_both_succeed_and_neither_is_lost() -> None:
    async def run() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        nodes = [Node(store, clock, seed=n) for n in range(2)]
        tasks = [await started(node) for node in nodes]
        await nodes[0].admin.create_topic("a", partition_count=1)
        calls = [
            asyncio.gather(
                nodes[0].admin.change_config("a", {"retention.ms": "7"}),
                nodes[1].admin.change_config("a", {"segment.ms": "8"}),
                nodes[1].admin.set_partition_count("a", 4),
            )
        ]
        await finished(nodes[0], calls[0])
        topic = nodes[0].catalog.topics["a"]
        assert (topic.overrides, topic.partition_count) == ({"retention.ms": "7", "segment.ms": "8"}, 4)
        await store.close()
        await asyncio.gather(*tasks)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(20))
def test_unclear_answers_are_looked_into_and_never_taken_for_a_no(seed: int) -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        rand = random.Random(seed)
        store.disturb = lambda: rand.choice(["before", "after", None, None, None, None, None, None, None, None])
        ids: list[range] = []
        for n in range(10):
            await finished(node, node.admin.create_topic(f"t{n}", partition_count=2))
            await finished(node, node.admin.change_config(f"t{n}", {"retention.ms": str(n)}))
            await finished(node, node.admin.set_partition_count(f"t{n}", 3))
            block = asyncio.ensure_future(node.admin.allocate_producer_ids(10))
            await finished(node, block)
            ids.append(block.result())
            if n % 2:
                await finished(node, node.admin.delete_topic(f"t{n}"))
        assert sorted(node.catalog.topics) == [f"t{n}" for n in range(0, 10, 2)]
        assert all(topic.partition_count == 3 for topic in node.catalog.topics.values())
        assert [topic.overrides["retention.ms"] for topic in node.catalog.topics.values()] == ["0", "2", "4", "6", "8"]
        taken = [producer_id for block_ids in ids for producer_id in block_ids]
        assert len(set(taken)) == len(taken) == 100
        store.disturb = None
        await settle()
        assert len(node.catalog.partitions) == 15

    with_node(scenario)


def test_a_store_that_stays_away_is_an_error_after_a_bounded_number_of_attempts() -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        store.disturb = lambda: "before"
        with pytest.raises(StoreUnavailableError):
            await finished(node, node.admin.create_topic("a", partition_count=1))
        store.disturb = None

    with_node(scenario)


def test_every_start_of_the_leader_raises_the_epochs_that_it_leads_and_no_others() -> None:
    async def run() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        one, two = Node(store, clock, seed=1), Node(store, clock, node_id=NodeId(2), seed=2)
        tasks = [await started(one), await started(two)]
        assert await one.admin.raise_epochs() == 0
        await one.admin.create_topic("a", partition_count=2)
        await two.admin.create_topic("b", partition_count=3)
        assert await one.admin.raise_epochs() == 2
        assert await one.admin.raise_epochs() == 2
        assert one.partition_epochs("a") == [2, 2]
        assert one.partition_epochs("b") == [0, 0, 0]
        await store.close()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_epochs_and_topics_beyond_one_transaction_are_written_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "operations_max", 7)

    async def scenario(node: Node, store: MemoryStore) -> None:
        await node.admin.create_topic("a", partition_count=20)
        await node.admin.set_partition_count("a", 40)
        assert await node.admin.raise_epochs() == 40
        assert node.partition_epochs("a") == [1] * 40
        await node.admin.delete_topic("a")
        assert (await store.list("/")).items == ()

    with_node(scenario)


def test_producer_ids_are_given_once() -> None:
    async def scenario(node: Node, _: MemoryStore) -> None:
        assert await node.admin.allocate_producer_ids(1000) == range(1000)
        assert await node.admin.allocate_producer_ids(5) == range(1000, 1005)

    with_node(scenario)


def test_the_cluster_id_is_drawn_once() -> None:
    async def run() -> None:
        clock = SimulatedClock()
        store = MemoryStore(clock)
        one, two = Node(store, clock, seed=1), Node(store, clock, seed=2)
        drawn = asyncio.ensure_future(asyncio.gather(one.admin.cluster_id(), two.admin.cluster_id()))
        await finished(one, drawn)
        first, second = drawn.result()
        assert first == second == await two.admin.cluster_id()
        assert len(first) == 22

    asyncio.run(run())


def test_a_registered_node_is_known_while_its_lease_lives() -> None:
    async def scenario(node: Node, store: MemoryStore) -> None:
        lease = await store.grant(1000)
        address = NodeAddress(node_id=NODE, host="127.0.0.1", port=9092, rack="r1")
        await node.admin.register_node(address, lease=lease)
        assert node.catalog.nodes == {NODE: address}
        await node.clock.elapse(1000)
        assert node.catalog.nodes == {}

    with_node(scenario)


def test_ten_thousand_partitions_start_in_well_under_two_seconds(tmp_path: Path) -> None:
    async def run() -> None:
        clock = SimulatedClock()
        threads = PoolThreads(name="store", count_max=1)
        store = await SqliteStore.open(str(tmp_path), clock=clock, threads=threads)
        node = Node(store, clock)
        task = await started(node)
        for n in range(10):
            await node.admin.create_topic(f"t{n}", partition_count=1000)
        begin_s = time.monotonic()
        assert await node.admin.raise_epochs() == 10_000
        assert time.monotonic() - begin_s < 2
        assert node.partition_epochs("t9") == [1] * 1000
        await store.close()
        await task
        threads.close()

    asyncio.run(run())


def test_partitions_that_are_being_made_count_against_the_limit() -> None:
    async def scenario(node: Node, _: Store) -> None:
        limits = PartitionLimits(topic_max=10, node_max=10)
        node.admin = Admin(
            store=node.store, catalog=node.catalog, node_id=NODE, clock=node.clock, rand=SeededRand(7), limits=limits
        )
        calls = [node.admin.create_topic(f"t{n}", partition_count=4) for n in range(5)]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(one, Topic) for one in outcomes) == 2
        assert all("topics.node_partitions_max" in str(one) for one in outcomes if not isinstance(one, Topic))
        await node.admin.create_topic("__consumer_offsets", partition_count=50, is_internal=True)

    with_node(scenario)
