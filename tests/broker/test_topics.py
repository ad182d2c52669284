"""Topics come, change and go."""

import asyncio
import errno

import pytest

from headrace.broker.config import BrokerConfig
from headrace.model.errors import (
    DiskFullError,
    InvalidConfigError,
    InvalidNameError,
    InvalidPartitionsError,
    InvalidRequestError,
    PartitionOfflineError,
    TopicExistsError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from headrace.model.names import INTERNAL_NAMES
from headrace.model.topic import Durability
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads

from .node import Node, batch, run


def test_a_created_topic_can_be_used_when_the_call_returns() -> None:
    async def main() -> None:
        node = await Node(config=BrokerConfig(default_partition_count=3, topic_defaults={"retention.ms": "5"})).start()
        topic = await node.broker.create_topic("t", overrides={"headrace.durability": "memory"})
        assert (topic.partition_count, topic.config.durability, topic.config.retention_ms) == (3, Durability.MEMORY, 5)
        for index in range(3):
            await node.broker.partition(topic.id, index).append(batch(b"a"))
        with pytest.raises(UnknownTopicError, match="has partitions 0 to 2, not 3"):
            node.broker.partition("t", 3)
        with pytest.raises(TopicExistsError):
            await node.broker.create_topic("t")
        await node.restart()
        assert await node.values("t", 2) == [b"a"]
        node.abandon()

    run(main())


def test_validation_alone_makes_nothing() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.broker.create_topic("t", validate_only=True)
        with pytest.raises(UnknownTopicError):
            node.broker.topic("t")
        await node.make()
        assert (await node.broker.create_partitions("t", 4, validate_only=True)).partition_count == 4
        await node.broker.alter_config("t", {"retention.ms": "1"}, validate_only=True)
        assert node.broker.topic("t").partition_count == 1
        assert node.broker.topic("t").overrides == {}
        node.abandon()

    run(main())


def test_many_who_need_a_topic_at_once_get_the_same_one() -> None:
    async def main() -> None:
        node = await Node().start()
        topics = await asyncio.gather(*(node.broker.ensure_topic("t") for _ in range(5)))
        assert len({topic.id for topic in topics}) == 1
        await node.broker.partition("t", 0).append(batch(b"a"))
        node.abandon()

    run(main())


def test_whoever_needs_a_topic_waits_until_its_files_are_there() -> None:
    async def main() -> None:
        held = HeldThreads()
        node = await Node().start()
        node.logs._sync_threads = held
        first = asyncio.ensure_future(node.broker.ensure_topic("t"))
        await settle()
        assert "t" in node.catalog.topics
        second = asyncio.ensure_future(node.broker.ensure_topic("t"))
        await settle()
        assert not first.done()
        assert not second.done()
        while held.release():
            await settle()
        assert await first == await second
        await node.broker.partition("t", 0).append(batch(b"a"))
        node.abandon()

    run(main())


def test_topics_are_made_on_first_use_only_where_that_is_allowed() -> None:
    async def main() -> None:
        node = await Node(config=BrokerConfig(auto_create_topics=False)).start()
        with pytest.raises(UnknownTopicError, match="not created on first use"):
            await node.broker.ensure_topic("t")
        with pytest.raises(InvalidNameError):
            await node.broker.ensure_topic("no/name")
        made = await node.broker.create_topic("t")
        assert await node.broker.ensure_topic("t") == made
        node.abandon()

    run(main())


def test_a_topic_whose_files_could_not_be_made_is_told_and_is_made_by_the_next_who_needs_it() -> None:
    async def main() -> None:
        node = await Node().start()
        node.disk.fail("open", error=errno.ENOSPC, path_part=".log")
        with pytest.raises(DiskFullError):
            await node.broker.ensure_topic("t")
        await node.broker.ensure_topic("t")
        await node.broker.partition("t", 0).append(batch(b"a"))
        assert await node.values() == [b"a"]
        node.abandon()

    run(main())


@pytest.mark.parametrize("turns", range(30))
def test_a_change_whose_caller_goes_away_at_any_moment_is_carried_out(turns: int) -> None:
    async def main() -> None:
        held = HeldThreads()
        node = await Node().start()
        await node.make("old")
        await node.make("grown")
        node.logs._sync_threads = held
        callers = [
            asyncio.ensure_future(node.broker.ensure_topic("new")),
            asyncio.ensure_future(node.broker.delete_topic("old")),
            asyncio.ensure_future(node.broker.create_partitions("grown", 3)),
        ]
        for _ in range(turns):
            await asyncio.sleep(0)
        for caller in callers:
            caller.cancel()
        stopped = asyncio.ensure_future(node.broker.stop())
        while not stopped.done():
            await settle()
            held.release()
        # One that was cancelled before it ran at all asked for nothing.
        if turns:
            await node.broker.partition("new", 0).append(batch(b"a"))
            await node.broker.partition("grown", 2).append(batch(b"a"))
            assert sorted(node.catalog.topics) == ["grown", "new"]
            assert set(node.logs.logs) == {partition.id for partition in node.broker.partitions()}
            assert len(node.logs.logs) == 4
        node.abandon()

    run(main())


def test_partitions_are_added_and_never_taken_away() -> None:
    async def main() -> None:
        node = await Node().start()
        await (await node.make()).append(batch(b"a"))
        await node.broker.create_partitions("t", 3)
        await node.broker.partition("t", 2).append(batch(b"c"))
        with pytest.raises(InvalidPartitionsError):
            await node.broker.create_partitions("t", 2)
        await node.restart()
        assert (await node.values("t", 0), await node.values("t", 2)) == ([b"a"], [b"c"])
        node.abandon()

    run(main())


def test_a_deleted_topic_is_gone_with_its_files_and_its_name_begins_anew() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make(partitions=2)
        await partition.append(batch(b"a"))
        directory = partition.log.directory
        deleted = await node.broker.delete_topic("t")
        assert not any(directory in path for path in node.disk.files())
        with pytest.raises(UnknownTopicError):
            node.broker.partition("t", 0)
        with pytest.raises(UnknownTopicIdError):
            node.broker.topic(deleted.id)
        with pytest.raises(UnknownTopicError):
            await node.broker.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            await partition.append(batch(b"late"))
        await node.make()
        assert await node.values() == []
        await node.restart()
        assert [topic.name for topic in node.catalog.topics.values()] == ["t"]
        node.abandon()

    run(main())


def test_a_topic_deleted_while_it_is_being_made_leaves_nothing() -> None:
    async def main() -> None:
        held = HeldThreads()
        node = await Node().start()
        node.logs._sync_threads = held
        making = asyncio.ensure_future(node.broker.create_topic("t", partition_count=3))
        await settle()
        assert "t" in node.catalog.topics
        deleting = asyncio.ensure_future(node.broker.delete_topic("t"))
        while not (making.done() and deleting.done()):
            await settle()
            held.release()
        await making
        await deleting
        assert node.logs.logs == {}
        assert list(node.broker.partitions()) == []
        assert not any("partitions" in path for path in node.disk.files())
        node.abandon()

    run(main())


@pytest.mark.parametrize("name", sorted(INTERNAL_NAMES))
def test_topics_of_headraces_own_are_neither_made_nor_altered_for_others(name: str) -> None:
    async def main() -> None:
        node = await Node().start()
        with pytest.raises(UnknownTopicError, match="does not exist yet"):
            await node.broker.ensure_topic(name)
        for validate_only in (False, True):
            with pytest.raises(InvalidRequestError, match="headrace's own"):
                await node.broker.create_topic(name, validate_only=validate_only)
        assert name not in node.catalog.topics, "nothing is left behind"
        made = await node.broker.create_topic(name, partition_count=4, is_internal=True)
        assert await node.broker.ensure_topic(name) == made
        for validate_only in (False, True):
            with pytest.raises(InvalidRequestError, match="headrace's own"):
                await node.broker.alter_config(name, {"retention.ms": "1000"}, validate_only=validate_only)
        assert node.broker.topic(name) == made
        await node.make("__debezium-heartbeat")
        node.abandon()

    run(main())


def test_settings_are_checked_as_a_whole() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make()
        with pytest.raises(InvalidConfigError, match=r"did you mean retention\.ms"):
            await node.broker.alter_config("t", {"retention.millis": "1"})
        await node.broker.alter_config("t", {"retention.ms": "1000"})
        assert node.broker.partition("t", 0).log.config.retention_ms == 1000
        node.abandon()

    run(main())


def test_producer_ids_are_never_given_twice() -> None:
    async def main() -> None:
        node = await Node().start()
        first = await asyncio.gather(*(node.broker.allocate_producer_id() for _ in range(1500)))
        await node.kill()
        second = [await node.broker.allocate_producer_id() for _ in range(10)]
        assert len({*first, *second}) == 1510
        node.abandon()

    run(main())


def test_a_partition_that_could_not_be_opened_says_why_and_the_others_work() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=2)
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"a"))
        path = node.broker.partition("t", 0).log.active.path
        await node.logs.stop()
        node.abandon()
        node.disk.overwrite(path, b"")
        await node.start()
        with pytest.raises(PartitionOfflineError, match="bytes that were synced"):
            node.broker.partition("t", 0)
        assert await node.values("t", 1) == [b"a"]
        await node.broker.delete_topic("t")
        node.abandon()

    run(main())


def test_a_partition_whose_files_are_lost_is_not_made_anew_for_whoever_asks() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=2)
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"a"))
        directory = node.broker.partition("t", 0).log.directory
        await node.logs.stop()
        node.abandon()
        node.disk.rename(directory, "/elsewhere")
        await node.start()
        await node.broker.complete_topic(await node.broker.ensure_topic("t"))
        with pytest.raises(PartitionOfflineError, match="put it back"):
            node.broker.partition("t", 0)
        assert not node.disk.exists(directory)
        assert await node.values("t", 1) == [b"a"]
        await node.broker.create_partitions("t", 3)
        assert await node.values("t", 2) == []
        await node.broker.delete_topic("t")
        await node.make()
        assert await node.values() == []
        node.abandon()

    run(main())


def test_damage_found_while_folds_are_restored_refuses_only_its_partition() -> None:
    async def main() -> None:
        node = await Node().start()
        await node.make(partitions=2)
        for index in (0, 1):
            await node.broker.partition("t", index).append(batch(b"a"))
        partition = node.broker.partition("t", 0)
        await node.logs.stop()
        node.abandon()
        for path in node.disk.files():
            if path.endswith(".snapshot"):
                node.disk.remove(path)
        node.disk.flip_bit(partition.log.active.path, 16 * 8)
        await node.start()
        with pytest.raises(PartitionOfflineError, match="magic"):
            node.broker.partition("t", 0)
        assert await node.values("t", 1) == [b"a"]
        node.abandon()

    run(main())


def test_files_of_a_topic_that_the_metadata_does_not_know_are_left_alone() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make()
        await partition.append(batch(b"precious"))
        await node.kill()
        kept = Node(disk=node.disk, seed=2)
        node.abandon()
        await kept.start()
        await kept.make("other")
        await kept.broker.delete_topic("other")
        await kept.restart()
        assert any(partition.log.directory in path for path in node.disk.files())
        kept.abandon()
        await node.start()
        assert await node.values() == [b"precious"]
        node.abandon()

    run(main())
