"""A group changes its protocol over a simulated node: durable before it is told, with its offsets, and refused where
the coordinator could not take over."""

import pytest
from tests.broker.group.world import SESSION_MS, GroupNode
from tests.broker.node import run

from headrace.broker.group.consumer_port import ConsumerHeard
from headrace.broker.group.port import Caller, OffsetCommit, Sync
from headrace.folds.group.consumer_member import of_topics
from headrace.folds.group.consumer_request import ConsumerHeartbeat, Partitions
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import Joined
from headrace.folds.group.protocol import read_assignment, write_assignment
from headrace.folds.group.request import Leaving
from headrace.model.errors import (
    GroupUnsettledError,
    IllegalGenerationError,
    InconsistentProtocolError,
    RebalanceInProgressError,
    UnknownGroupError,
    UnknownMemberError,
)
from headrace.testing.clock import settle
from headrace.wire.kafka.messages.consumer_protocol_assignment import (
    ConsumerProtocolAssignment,
    write_data,
)
from headrace.wire.kafka.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.kafka.messages.consumer_protocol_subscription import write_data as write_subscription
from headrace.wire.kafka.primitives import INT16, Writer

NOTHING: Partitions = frozenset()
EVERYTHING = [("t", index) for index in range(4)]


def metadata(*topics: str) -> bytes:
    writer = Writer()
    writer.put(INT16.pack(0))
    write_subscription(writer, ConsumerProtocolSubscription(topics, None), 0)
    return writer.getvalue()


RANGE = (("range", metadata("t")),)


async def begin(node: GroupNode) -> Joined:
    """A classic group of one member that reads everything, and has committed an offset."""
    await node.make(partitions=4)
    joined = await node.join(protocols=RANGE)
    given = ((joined.member_id, write_assignment(EVERYTHING)),)
    await node.groups.sync(Sync(caller=caller(joined), assignments=given))
    await node.commit(5, who=joined)
    return joined


def caller(joined: Joined) -> Caller:
    return Caller(group_id="g", member_id=joined.member_id, generation=joined.generation)


async def assigned(node: GroupNode, joined: Joined) -> list[int]:
    synced = await node.groups.sync(Sync(caller=caller(joined)))
    found = read_assignment(synced.assignment, "range")
    assert found is not None
    return [index for _, index in found]


async def beat(
    node: GroupNode, member_id: str = "new", epoch: int = 0, owned: Partitions | None = None
) -> ConsumerHeard:
    if epoch != 0:
        return await node.groups.consumers.heartbeat("g", ConsumerHeartbeat(member_id, epoch, owned=owned))
    request = ConsumerHeartbeat(member_id, 0, rebalance_timeout_ms=5000, topic_names=("t",), owned=NOTHING)
    return await node.groups.consumers.heartbeat("g", request)


async def kind(node: GroupNode) -> GroupKind:
    return (await node.groups.describe("g")).kind


def test_a_group_goes_over_and_back_and_each_step_outlives_the_node() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        old = await begin(node)
        heard = await beat(node)
        assert await kind(node) is GroupKind.CONSUMER
        assert heard.assignment == (), "the old member still reads everything"
        await node.kill()
        assert [one.is_classic for one in (await node.groups.consumers.describe("g")).members] == [True, False]
        assert await node.groups.commit(caller(old), [OffsetCommit("t", 0, 6)]) == [None]
        with pytest.raises(RebalanceInProgressError):
            await node.groups.heartbeat(caller(old))
        with pytest.raises(RebalanceInProgressError):
            await node.groups.sync(Sync(caller=caller(old)))
        again = await node.join(old.member_id, protocols=RANGE)
        assert again.generation == heard.member_epoch > old.generation
        assert again.leader != again.member_id, "nobody is asked to share anything out"
        await node.kill()
        with pytest.raises(IllegalGenerationError):
            await node.groups.commit(caller(old), [OffsetCommit("t", 0, 7)])
        kept = await assigned(node, again)
        told = await beat(node, epoch=heard.member_epoch)
        assert told.assignment is not None
        taken = [one.partition for one in of_topics(told.assignment)]
        assert sorted(kept + taken) == [0, 1, 2, 3]
        await node.groups.heartbeat(caller(again))

        await beat(node, epoch=-1)
        assert await kind(node) is GroupKind.CLASSIC
        await node.kill()
        with pytest.raises(RebalanceInProgressError):
            await node.groups.heartbeat(caller(again))
        assert await node.groups.commit(caller(again), [OffsetCommit("t", 0, 8)]) == [None]
        back = await node.join(again.member_id, protocols=RANGE)
        assert back.generation > again.generation
        assert back.leader == back.member_id
        assert await node.committed() == 8
        node.abandon()

    run(main())


def test_a_group_whose_last_newcomer_falls_silent_is_a_classic_one_again() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        old = await begin(node)
        await beat(node)
        again = await node.join(old.member_id, protocols=RANGE)
        for _ in range(6):
            node.clock.advance(SESSION_MS - 1000)
            await settle()
            if await kind(node) is GroupKind.CLASSIC:
                break
            try:
                await node.groups.heartbeat(caller(again))
            except RebalanceInProgressError:
                again = await node.join(old.member_id, protocols=RANGE)
        assert await kind(node) is GroupKind.CLASSIC
        assert [one.member_id for one in (await node.groups.describe("g")).members] == [old.member_id]
        node.abandon()

    run(main())


def test_a_member_that_is_told_to_join_again_and_does_not_is_dropped() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        old = await begin(node)
        heard = await beat(node)
        with pytest.raises(RebalanceInProgressError):
            await node.groups.heartbeat(caller(old))
        for _ in range(7):
            node.clock.advance(5_000)
            await settle()
            told = await beat(node, epoch=heard.member_epoch)
            if told.assignment:
                break
            with pytest.raises(RebalanceInProgressError):
                await node.groups.heartbeat(caller(old))
        assert len((await node.groups.consumers.describe("g")).members) == 1
        node.abandon()

    run(main())


def test_a_member_that_does_not_come_back_to_a_classic_group_is_dropped_also_after_a_restart() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        old = await begin(node)
        await beat(node)
        await beat(node, epoch=-1)
        await node.kill()
        for _ in range(7):
            try:
                await node.groups.heartbeat(caller(old))
            except RebalanceInProgressError:
                node.clock.advance(5_000)
                await settle()
            except UnknownMemberError:
                break
        assert (await node.groups.describe("g")).members == []
        node.abandon()

    run(main())


def test_a_newcomer_waits_until_a_classic_group_is_stable() -> None:
    """Who reads what is not known before: the members' own assignor is at work."""

    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=4)
        joined = await node.join(protocols=RANGE)
        with pytest.raises(GroupUnsettledError):
            await beat(node)
        await node.groups.sync(Sync(caller=caller(joined), assignments=()))
        assert (await beat(node)).member_epoch > joined.generation
        node.abandon()

    run(main())


def test_a_newcomer_that_is_refused_leaves_the_group_as_it_was() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        old = await begin(node)
        request = ConsumerHeartbeat(
            "new", 0, rebalance_timeout_ms=5000, topic_names=("t",), owned=NOTHING, assignor="x"
        )
        with pytest.raises(Exception, match="assignor"):
            await node.groups.consumers.heartbeat("g", request)
        assert await kind(node) is GroupKind.CLASSIC
        await node.groups.heartbeat(caller(old))
        node.abandon()

    run(main())


def test_a_group_with_an_assignor_of_its_own_stays_classic() -> None:
    """What such an assignor tells its members beside the partitions, the coordinator could not."""

    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=4)
        joined = await node.join(protocols=(("stream", metadata("t")),))
        writer = Writer()
        writer.put(INT16.pack(0))
        write_data(writer, ConsumerProtocolAssignment((), b"tasks"), 0)
        given = ((joined.member_id, writer.getvalue()),)
        await node.groups.sync(Sync(caller=caller(joined), assignments=given))
        with pytest.raises(UnknownGroupError, match="assignor"):
            await beat(node)
        node.abandon()

    run(main())


def test_members_that_could_not_be_together_in_a_classic_group_are_not_together_here() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await begin(node)
        await beat(node)
        for options in ({"protocols": (("sticky", metadata("t")),)}, {"protocols": RANGE, "protocol_type": "connect"}):
            with pytest.raises(InconsistentProtocolError):
                await node.join(**options)
        node.abandon()

    run(main())


def test_an_operator_removes_the_newcomer_by_its_instance() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await begin(node)
        request = ConsumerHeartbeat(
            "new", 0, instance_id="i", rebalance_timeout_ms=5000, topic_names=("t",), owned=NOTHING
        )
        await node.groups.consumers.heartbeat("g", request)
        assert await node.groups.leave("g", [Leaving("", "i")]) == [None]
        assert await kind(node) is GroupKind.CLASSIC
        node.abandon()

    run(main())
