"""Where share groups stand in their queues: shown, moved forward and forgotten."""

from typing import Any

import pytest
from tests.broker.group.share_world import NAME, ShareNode, bodies, offsets
from tests.broker.node import run

from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.share_port import Holder, PartitionStart, TopicStarts
from headrace.folds.group.share import ShareHeartbeat
from headrace.model.errors import (
    GroupNotEmptyError,
    HeadraceError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownTopicError,
)

CONFIG = GroupsConfig(partitions=2, offsets_retention_ms=600_000, expiry_interval_ms=60_000)


async def working(*, partitions: int = 1, **config: Any) -> ShareNode:
    """A node whose group `g` has worked from the queue, and has no members."""
    node = await ShareNode(CONFIG).start()
    await node.make_queue(partitions=partitions, **config)
    await node.shares.heartbeat("g", ShareHeartbeat("m", 0, (NAME,)))
    await node.shares.heartbeat("g", ShareHeartbeat("m", -1))
    return node


async def start_of(node: ShareNode, partition: int = 0) -> PartitionStart:
    ((_, _, parts),) = await node.shares.offsets.describe("g", [(NAME, [partition])])
    return parts[0]


async def alter(node: ShareNode, offset: int, *, topic: str = NAME, partition: int = 0) -> HeadraceError | None:
    ((_, _, parts),) = await node.shares.offsets.alter("g", [(topic, [(partition, offset)])])
    return parts[0].error


def test_the_start_is_the_first_message_that_is_not_done_and_the_lag_counts_the_others() -> None:
    async def main() -> None:
        node = await working()
        await node.send(b"a", b"b", b"c")
        holder = Holder("g")
        first, second, _ = offsets(await node.acquire(holder))
        start = await start_of(node)
        assert (start.offset, start.lag, start.error) == (first, 3, None)
        assert start.epoch == node.broker.partition(NAME, 0).epoch
        await node.acknowledge(holder, second, second)
        assert (await start_of(node))[1:4:2] == (first, 2)
        await node.acknowledge(holder, first, first)
        assert (await start_of(node))[1:4:2] == (second + 1, 1)
        node.abandon()

    run(main())


def test_all_queues_that_a_group_has_worked_from_are_shown_and_no_others() -> None:
    async def main() -> None:
        node = await working(partitions=2)
        await node.make_queue("other")
        await node.make("plain")
        (found,) = await node.shares.offsets.describe("g", None)
        assert (found.topic, found.topic_id) == (NAME, node.catalog.topics[NAME].id)
        assert [part.partition for part in found.partitions] == [0, 1]
        for name in ("other", "plain", "missing"):
            topic = node.catalog.topics.get(name)
            unknown = TopicStarts(name, None if topic is None else topic.id, [PartitionStart(0)])
            assert await node.shares.offsets.describe("g", [(name, [0])]) == [unknown]
        assert isinstance((await start_of(node, 2)).error, UnknownTopicError)
        await node.broker.delete_topic(NAME)
        assert await node.shares.offsets.describe("g", None) == []
        await node.groups.delete("g")
        with pytest.raises(UnknownGroupError):
            await node.shares.offsets.describe("g", None)
        node.abandon()

    run(main())


def test_a_start_that_moves_forward_drops_what_lies_below_it() -> None:
    async def main() -> None:
        node = await working()
        await node.send(b"a", b"b", b"c")
        start = await start_of(node)
        assert await alter(node, start.offset + 2) is None
        await node.kill()
        assert ((await start_of(node)).offset, node.counts().purged) == (start.offset + 2, 2)
        assert bodies(await node.acquire(Holder("g"))) == [b"c"]
        node.abandon()

    run(main())


def test_a_start_does_not_move_back_over_messages_that_are_done() -> None:
    async def main() -> None:
        node = await working()
        await node.send(b"a", b"b")
        assert await alter(node, 0) is None, "nothing is done below the start"
        holder = Holder("g")
        first, last = offsets(await node.acquire(holder))
        await node.acknowledge(holder, first, first)
        error = await alter(node, first)
        assert isinstance(error, InvalidRequestError)
        assert f"give {last} or a later offset" in str(error)
        assert await alter(node, last) is None
        end = node.broker.partition(NAME, 0).end_offset
        assert isinstance(await alter(node, end + 1), OffsetOutOfRangeError)
        assert (await start_of(node)).lag == 1
        assert await alter(node, end) is None
        assert (await start_of(node)).lag == 0
        node.abandon()

    run(main())


def test_only_an_empty_group_is_altered_and_each_partition_is_told_its_error() -> None:
    async def main() -> None:
        node = await working()
        await node.make("plain")
        assert isinstance(await alter(node, 0, topic="plain"), InvalidRequestError)
        assert isinstance(await alter(node, 0, topic="missing"), UnknownTopicError)
        assert isinstance(await alter(node, 0, partition=7), UnknownTopicError)
        await node.shares.heartbeat("g", ShareHeartbeat("m", 0, (NAME,)))
        for call in (alter(node, 0), node.shares.offsets.delete("g", [NAME])):
            with pytest.raises(GroupNotEmptyError):
                await call
        node.abandon()

    run(main())


def test_deleted_offsets_are_forgotten_and_the_messages_stay() -> None:
    async def main() -> None:
        node = await working()
        await node.send(b"a")
        known, unknown = await node.shares.offsets.delete("g", [NAME, "missing"])
        assert (known.topic_id, known.error) == (node.catalog.topics[NAME].id, None)
        assert isinstance(unknown.error, UnknownTopicError)
        await node.kill()
        assert await node.shares.offsets.describe("g", None) == []
        assert bodies(await node.acquire(Holder("g"))) == [b"a"]
        node.abandon()

    run(main())


def test_a_group_without_members_is_known_for_as_long_as_offsets_are_kept() -> None:
    async def main() -> None:
        node = await working()
        await node.clock.elapse(CONFIG.offsets_retention_ms - 1000)
        assert len(await node.shares.offsets.describe("g", None)) == 1
        await node.clock.elapse(CONFIG.expiry_interval_ms * 2)
        with pytest.raises(UnknownGroupError):
            await node.shares.offsets.describe("g", None)
        node.abandon()

    run(main())
