"""Consumer groups over a simulated node: durable before they are told, and one kind of group at a time."""

import random
from typing import NamedTuple

import pytest
from tests.broker.group.world import CONFIG, GroupNode
from tests.broker.node import run

from headrace.broker.group.consumer_port import ConsumerHeard
from headrace.broker.group.port import Caller, OffsetCommit
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_member import of_topics
from headrace.folds.group.consumer_request import ConsumerHeartbeat, Partitions
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.request import Leaving
from headrace.model.errors import (
    HeadraceError,
    InconsistentProtocolError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownGroupError,
    UnknownMemberError,
)
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk

NOTHING: Partitions = frozenset()


async def join(node: GroupNode, member_id: str, *, topic: str = "t", group: str = "g") -> ConsumerHeard:
    request = ConsumerHeartbeat(member_id, 0, rebalance_timeout_ms=5000, topic_names=(topic,), owned=NOTHING)
    return await node.groups.consumers.heartbeat(group, request)


async def beat(node: GroupNode, member_id: str, epoch: int, owned: Partitions | None = None) -> ConsumerHeard:
    return await node.groups.consumers.heartbeat("g", ConsumerHeartbeat(member_id, epoch, owned=owned))


def partitions(heard: ConsumerHeard) -> list[int]:
    assert heard.assignment is not None
    return [index for _, indexes in heard.assignment for index in indexes]


async def refusal(node: GroupNode, member_id: str, epoch: int) -> type[HeadraceError]:
    with pytest.raises(HeadraceError) as caught:
        await beat(node, member_id, epoch)
    return type(caught.value)


def test_partitions_move_when_their_owner_has_given_them_up() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=4)
        a = await join(node, "a")
        assert partitions(a) == [0, 1, 2, 3]
        b = await join(node, "b")
        assert partitions(b) == []
        assert b.heartbeat_interval_ms < a.heartbeat_interval_ms == CONFIG.consumer_heartbeat_interval_ms
        told = await beat(node, "a", a.member_epoch)
        assert told.assignment is not None
        done = await beat(node, "a", a.member_epoch, of_topics(told.assignment))
        assert done.member_epoch == b.member_epoch
        taken = await beat(node, "b", b.member_epoch)
        assert sorted(partitions(taken) + partitions(told)) == [0, 1, 2, 3]
        assert (await beat(node, "b", b.member_epoch)).assignment is None
        node.abandon()

    run(main())


def test_members_and_assignments_outlive_the_node() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=2)
        heard = await join(node, "a")
        before = await node.groups.consumers.describe("g")
        for again in (node.restart, node.kill):
            await again()
            assert await node.groups.consumers.describe("g") == before
            assert (await beat(node, "a", heard.member_epoch)).member_epoch == heard.member_epoch
        node.clock.advance(CONFIG.consumer_session_timeout_ms)
        await settle()
        assert (await node.groups.consumers.describe("g")).members == ()
        assert await refusal(node, "a", heard.member_epoch) is UnknownMemberError
        node.abandon()

    run(main())


def test_commits_and_reads_of_offsets_go_by_the_members_epoch() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        heard = await join(node, "a")
        caller = Caller(group_id="g", member_id="a", generation=heard.member_epoch)
        stale = Caller(group_id="g", member_id="a", generation=heard.member_epoch + 1)
        assert await node.groups.commit(caller, [OffsetCommit("t", 0, 7)]) == [None]
        (found,) = await node.groups.committed(caller, [("t", 0)])
        assert found.offset == 7
        with pytest.raises(StaleMemberEpochError):
            await node.groups.commit(stale, [OffsetCommit("t", 0, 8)])
        with pytest.raises(StaleMemberEpochError):
            await node.groups.committed(stale, [("t", 0)])
        with pytest.raises(UnknownMemberError):
            await node.groups.committed(Caller(group_id="g", member_id="x", generation=1), [("t", 0)])
        assert await node.committed() == 7
        node.abandon()

    run(main())


def test_a_group_without_members_becomes_one_of_the_kind_that_its_next_member_speaks() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        classic = await node.become_stable()
        await node.commit(5, who=classic)
        with pytest.raises(UnknownGroupError, match="classic"):
            await join(node, "a")
        with pytest.raises(UnknownGroupError):
            await node.groups.consumers.describe("g")
        await node.groups.leave("g", [Leaving(classic.member_id)])
        heard = await join(node, "a")
        assert heard.member_epoch > classic.generation, "epochs go on from the generations"
        assert await node.committed() == 5
        (listed,) = await node.groups.list_groups()
        assert (listed.kind, listed.protocol_type, listed.state) == (GroupKind.CONSUMER, "consumer", "Stable")
        with pytest.raises(InconsistentProtocolError):
            await node.join()
        await beat(node, "a", -1)
        await node.become_stable()
        assert (await node.groups.describe("g")).kind is GroupKind.CLASSIC
        assert await refusal(node, "a", heard.member_epoch) is UnknownMemberError, (
            "it joins again, and changes the group"
        )
        await node.kill()
        assert (await node.groups.describe("g")).kind is GroupKind.CLASSIC
        node.abandon()

    run(main())


def test_whoever_is_not_in_a_group_is_told_to_join() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        assert await refusal(node, "a", 3) is UnknownMemberError
        assert await refusal(node, "", 0) is InvalidRequestError
        assert await refusal(node, "a" * (CONFIG.member_bytes_max + 1), 1) is InvalidRequestError
        request = ConsumerHeartbeat("", 0, rebalance_timeout_ms=1, topic_names=("t",), owned=NOTHING)
        named = await node.groups.consumers.heartbeat("g", request, is_named_here=True)
        assert named.member_id
        node.abandon()

    run(main())


def test_internal_topics_are_not_read_by_expression() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=3)
        request = ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1, topic_regex=".*", owned=NOTHING)
        heard = await node.groups.consumers.heartbeat("g", request)
        assert [topic_id for topic_id, _ in heard.assignment or ()] == [node.catalog.topics["t"].id]
        node.abandon()

    run(main())


class Moment(NamedTuple):
    disk: SimulatedDisk
    owned: dict[str, Partitions]  # what each client was told, and has not said that it gave up
    epochs: dict[str, int]


async def record(node: GroupNode, moments: list[Moment]) -> None:
    """Two members share a topic out, and the first leaves."""
    owned: dict[str, Partitions] = {}
    epochs: dict[str, int] = {}
    await node.make(partitions=4)
    await node.commit(0, group="other")
    node.disk.on_call = lambda *_: moments.append(Moment(node.disk.copy(), dict(owned), dict(epochs)))

    def hear(name: str, heard: ConsumerHeard) -> None:
        epochs[name] = heard.member_epoch
        if heard.assignment is not None:
            owned[name] = of_topics(heard.assignment)

    hear("a", await join(node, "a"))
    hear("b", await join(node, "b"))
    told = await beat(node, "a", epochs["a"])
    assert told.assignment is not None
    owned["a"] = of_topics(told.assignment)  # given up before it says so
    hear("a", await beat(node, "a", epochs["a"], owned["a"]))
    hear("b", await beat(node, "b", epochs["b"]))
    del owned["a"], epochs["a"]
    await beat(node, "a", -1)
    hear("b", await beat(node, "b", epochs["b"]))
    node.disk.on_call = None
    moments.append(Moment(node.disk.copy(), dict(owned), dict(epochs)))


def test_a_crash_at_any_moment_takes_no_partition_from_whom_it_was_given() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        moments: list[Moment] = []
        await record(node, moments)
        assert len(moments) > 10
        node.abandon()
        for at, moment in enumerate(moments):
            for chooser in (None, random.Random(at)):
                disk = moment.disk.copy()
                if chooser is not None:
                    disk.crash(chooser)
                heir = GroupNode(disk=disk)
                heir.store = node.store
                await heir.start()
                if moment.epochs:
                    found = {one.member_id: one for one in (await heir.groups.consumers.describe("g")).members}
                    group = (await heir.groups.shard("g")).machines["g"]
                    assert isinstance(group, ConsumerGroup)
                    for name, partitions_ in moment.owned.items():
                        assert found[name].member_epoch >= moment.epochs[name]
                        assert partitions_ <= group.members[name].held
                heir.abandon()

    run(main())
