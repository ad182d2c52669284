"""Writes to the metadata of queues: with their topic or not at all, by compare, found again after unclear answers."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headrace.cluster.admin import Admin
from headrace.cluster.catalog import Catalog
from headrace.cluster.driver import CatalogDriver
from headrace.cluster.queue_admin import QueueAdmin
from headrace.model.errors import InvalidConfigError, QueueExistsError, UnknownQueueError
from headrace.model.ids import NodeId
from headrace.model.queue import QueueConfig
from headrace.testing.clock import SimulatedClock
from headrace.testing.rand import SeededRand
from headrace.testing.store import MemoryStore


class World:
    def __init__(self) -> None:
        self.clock, self.rand = SimulatedClock(), SeededRand(1)
        self.store = MemoryStore(self.clock)
        self.catalog = Catalog(cluster="c")
        driver = CatalogDriver(store=self.store, catalog=self.catalog, clock=self.clock, rand=self.rand)
        self.following = asyncio.ensure_future(driver.run())
        self.admin = Admin(store=self.store, catalog=self.catalog, node_id=NodeId(1), clock=self.clock, rand=self.rand)
        self.queues = QueueAdmin(
            admin=self.admin, store=self.store, catalog=self.catalog, clock=self.clock, rand=self.rand
        )


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, 10))


def test_a_queue_comes_into_being_with_its_topic_and_goes_with_it() -> None:
    async def main() -> None:
        world = World()
        config = QueueConfig(lease_ms=5)
        await world.admin.create_topic("q", partition_count=2, beside=world.queues.draw("q", config, {"sqs": {"a": 1}}))
        queue = world.catalog.queues["q"]
        assert (queue.config, queue.notes, queue.topic_id) == (config, {"sqs": {"a": 1}}, world.catalog.topics["q"].id)
        await world.queues.save_redrives("q", [{"id": "x"}])
        await world.admin.delete_topic("q")
        assert "q" not in world.catalog.queues
        assert await world.queues.redrives() == {}
        world.following.cancel()

    run(main())


def test_a_topic_becomes_a_queue_once() -> None:
    async def main() -> None:
        world = World()
        topic = await world.admin.create_topic("t", partition_count=1)
        queue = await world.queues.attach(topic, QueueConfig(), {})
        assert world.catalog.queues["t"] == queue
        with pytest.raises(QueueExistsError):
            await world.queues.attach(topic, QueueConfig(), {})
        world.following.cancel()

    run(main())


def test_a_change_replaces_the_configuration_and_the_notes_of_one_gateway() -> None:
    async def main() -> None:
        world = World()
        topic = await world.admin.create_topic("t", partition_count=1)
        await world.queues.attach(topic, QueueConfig(), {"sqs": {"a": 1}, "other": {"b": 2}})
        world.clock.advance(1000)
        changed = await world.queues.change("t", QueueConfig(lease_ms=7), {"sqs": {"c": 3}})
        assert world.catalog.queues["t"] == changed
        assert changed.notes == {"sqs": {"c": 3}, "other": {"b": 2}}
        assert changed.modified_ms == changed.created_ms + 1000
        with pytest.raises(InvalidConfigError, match="own dead-letter queue"):
            await world.queues.change("t", QueueConfig(dead_letter="t", dead_letter_expired=True), None)
        with pytest.raises(UnknownQueueError):
            await world.queues.change("nowhere", QueueConfig(), None)
        world.following.cancel()

    run(main())


@pytest.mark.parametrize(
    "config", [QueueConfig(retention_ms=2**63), QueueConfig(lease_ms=-1), QueueConfig(delay_ms=-1)]
)
def test_a_configuration_that_could_not_be_read_again_is_not_written(config: QueueConfig) -> None:
    async def main() -> None:
        world = World()
        topic = await world.admin.create_topic("t", partition_count=1)
        await world.queues.attach(topic, QueueConfig(), {})
        with pytest.raises(InvalidConfigError, match="a queue cannot have this"):
            await world.queues.change("t", config, None)
        with pytest.raises(InvalidConfigError, match="a queue cannot have this"):
            world.queues.draw("u", config, {})
        assert world.catalog.queues["t"].config == QueueConfig()
        world.following.cancel()

    run(main())


def test_the_key_of_receipts_is_drawn_once() -> None:
    async def main() -> None:
        world = World()
        first = await world.queues.receipt_key()
        assert len(first) == 32
        assert await world.queues.receipt_key() == first
        world.following.cancel()

    run(main())


def test_a_compacted_topic_does_not_become_a_queue_and_a_queue_is_not_compacted() -> None:
    async def main() -> None:
        world = World()
        compacted = await world.admin.create_topic("c", partition_count=1, overrides={"cleanup.policy": "compact"})
        with pytest.raises(InvalidConfigError, match=r"topic c is compacted.*cleanup\.policy to delete"):
            await world.queues.attach(compacted, QueueConfig(), {})
        assert "c" not in world.catalog.queues
        await world.admin.set_config("c", {})
        await world.queues.attach(compacted, QueueConfig(), {})
        for policy in ("compact", "delete,compact"):
            for validate_only in (True, False):
                with pytest.raises(InvalidConfigError, match="c is a queue"):
                    await world.admin.set_config("c", {"cleanup.policy": policy}, validate_only=validate_only)
        await world.admin.set_config("c", {"cleanup.policy": "delete"})
        world.following.cancel()

    run(main())


def test_a_topic_that_is_compacted_while_it_becomes_a_queue_is_one_of_the_two() -> None:
    async def main() -> None:
        world = World()
        topic = await world.admin.create_topic("t", partition_count=1)
        outcomes = await asyncio.gather(
            world.queues.attach(topic, QueueConfig(), {}),
            world.admin.set_config("t", {"cleanup.policy": "compact"}),
            return_exceptions=True,
        )
        assert len([outcome for outcome in outcomes if isinstance(outcome, InvalidConfigError)]) == 1
        assert ("t" in world.catalog.queues) != world.catalog.topics["t"].config.is_compacted
        world.following.cancel()

    run(main())
