"""The coordinator of groups on a simulated node: what is answered when, and what a node that comes back knows."""

import asyncio
import errno

import pytest
from tests.broker.group.world import SESSION_MS, GroupNode, join, parked
from tests.broker.node import batch, run

from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.port import Caller, OffsetCommit, Sync
from headrace.broker.group.shards import shard_index
from headrace.folds.group.request import Leaving
from headrace.model.errors import (
    CoordinatorUnavailableError,
    GroupNotEmptyError,
    GroupSubscribedError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidPartitionsError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    OffsetMetadataTooLargeError,
    ProducerFencedError,
    UnknownGroupError,
    UnknownMemberError,
    UnknownTopicError,
    UnknownTopicIdError,
    UnstableOffsetError,
)
from headrace.model.names import GROUPS_TOPIC
from headrace.testing.clock import settle


def test_a_group_lives_where_javas_hash_of_its_id_says() -> None:
    assert shard_index("a", 50) == 97 % 50
    assert shard_index("hello", 50) == 99162322 % 50
    assert shard_index("polygenelubricants", 50) == 0, "its hash is the one number that has no absolute value"


def test_the_internal_topic_comes_into_being_with_the_first_group() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        assert GROUPS_TOPIC not in node.catalog.topics
        assert await node.groups.list_groups() == []
        await node.make()
        assert await node.committed() == -1
        topic = node.catalog.topics[GROUPS_TOPIC]
        assert topic.partition_count == 2
        assert topic.config.retention_ms == -1

    run(main())


def test_the_internal_topic_is_neither_deleted_nor_enlarged() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.commit(1)
        with pytest.raises(InvalidRequestError):
            await node.broker.delete_topic(GROUPS_TOPIC)
        with pytest.raises(InvalidPartitionsError):
            await node.broker.create_partitions(GROUPS_TOPIC, 9)
        assert await node.committed() == 1

    run(main())


def test_first_uses_at_the_same_time_make_one_topic() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        assert await asyncio.gather(*(node.commit(7, group=f"g{at}") for at in range(10))) == [[None]] * 10

    run(main())


def test_committed_offsets_and_members_survive_a_kill() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make(partitions=2)
        member = await node.become_stable()
        assert await node.commit(5, who=member) == [None]
        assert await node.commit(6, partition=1, who=member) == [None]
        for _ in range(2):
            await node.kill()
            assert await node.committed() == 5
            assert await node.committed(partition=1) == 6
            caller = Caller(group_id="g", member_id=member.member_id, generation=member.generation)
            await node.groups.heartbeat(caller)
            synced = await node.groups.sync(Sync(caller=caller))
            assert synced.assignment == b"all"
        await node.restart()
        assert await node.commit(7, who=member) == [None]

    run(main())


def test_nobody_is_told_of_a_commit_that_is_not_on_disk() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.commit(1)
        node.disk.fail("fdatasync", error=errno.EIO)
        with pytest.raises(CoordinatorUnavailableError):
            await node.commit(2)
        with pytest.raises(CoordinatorUnavailableError):
            await node.committed()
        node.disk.heal()

    run(main())


def test_everything_of_a_group_is_in_its_own_partition_and_a_broken_one_concerns_no_other() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.commit(1, group="a")
        await node.commit(1, group="b")
        assert shard_index("a", 2) != shard_index("b", 2)
        node.broker.partition(GROUPS_TOPIC, shard_index("a", 2)).log.fail(OSError(errno.EIO, "broken"))
        with pytest.raises(CoordinatorUnavailableError):
            await node.commit(2, group="a")
        assert await node.commit(2, group="b") == [None]

    run(main())


def test_a_zombie_commits_nothing() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        zombie = await node.become_stable()
        await node.commit(5, who=zombie)
        await node.clock.elapse(SESSION_MS)
        heir = await node.become_stable()
        await node.commit(9, who=heir)
        with pytest.raises(UnknownMemberError):
            await node.commit(6, who=zombie)
        with pytest.raises(IllegalGenerationError):
            await node.commit(6, who=heir._replace(generation=zombie.generation))
        with pytest.raises(UnknownMemberError):
            await node.commit(6)
        assert await node.committed() == 9

    run(main())


def test_a_commit_of_a_generation_in_a_group_that_nobody_knows_is_refused() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        with pytest.raises(IllegalGenerationError):
            await node.groups.commit(Caller(group_id="g", member_id="m", generation=3), [OffsetCommit("t", 0, 1)])
        with pytest.raises(UnknownMemberError):
            await node.groups.heartbeat(Caller(group_id="g", member_id="m", generation=3))
        with pytest.raises(UnknownMemberError):
            await node.groups.leave("g", [Leaving("m")])
        with pytest.raises(UnknownMemberError):
            await node.join("m")
        with pytest.raises(InvalidGroupIdError):
            await node.commit(1, group="")

    run(main())


def test_what_is_wrong_with_one_offset_does_not_keep_the_others_out() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        topic_id = node.catalog.topics["t"].id
        outcomes = await node.groups.commit(
            Caller(group_id="g"),
            [
                OffsetCommit("missing", 0, 1),
                OffsetCommit("t", 9, 1),
                OffsetCommit("t", 0, 1, metadata="x" * 5000),
                OffsetCommit(topic_id, 0, 4, 2, "note"),
            ],
        )
        assert [type(one) for one in outcomes] == [
            UnknownTopicError,
            UnknownTopicError,
            OffsetMetadataTooLargeError,
            type(None),
        ]
        (found,) = await node.groups.committed(Caller(group_id="g"), None)
        assert found == ("t", 0, 4, 2, "note", None)
        (by_id, unknown) = await node.groups.committed(Caller(group_id="g"), [(topic_id, 0), (node.rand.uuid(), 0)])
        assert by_id.offset == 4
        assert isinstance(unknown.error, UnknownTopicIdError)

    run(main())


def test_a_topic_that_is_made_again_begins_anew() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.commit(5)
        await node.broker.delete_topic("t")
        await settle()
        await node.make()
        assert await node.committed() == -1
        assert await node.groups.committed(Caller(group_id="g"), None) == []
        await node.kill()
        assert await node.committed() == -1

    run(main())


def test_a_rebalance_answers_those_who_wait_together() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        first = await node.become_stable()
        second = asyncio.create_task(node.join())
        await parked(second)
        again = await node.join(first.member_id)
        newcomer = await second
        assert again.generation == newcomer.generation == 2
        assert {member.member_id for member in again.members} == {first.member_id, newcomer.member_id}
        await node.groups.leave("g", [Leaving(newcomer.member_id)])
        with pytest.raises(UnknownMemberError):
            await node.groups.heartbeat(Caller(group_id="g", member_id=newcomer.member_id, generation=2))

    run(main())


def test_a_member_that_is_not_heard_of_is_dropped_when_its_session_ends() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.become_stable()
        await node.clock.elapse(SESSION_MS - 1)
        assert (await node.groups.describe("g")).state == "Stable"
        await node.clock.elapse(1)
        assert (await node.groups.describe("g")).state == "Empty"

    run(main())


def test_a_new_member_is_given_an_id_with_its_clients_name() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        with pytest.raises(MemberIdRequiredError) as refused:
            await node.join(client_id="app", is_id_required=True)
        assert refused.value.member_id.startswith("app-")
        joined = await node.join(refused.value.member_id, is_id_required=True)
        assert joined.member_id == refused.value.member_id

    run(main())


def test_session_time_outs_have_bounds() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        for session_ms in (999, 30 * 60 * 1000 + 1):
            with pytest.raises(InvalidSessionTimeoutError):
                await node.join(session_timeout_ms=session_ms)

    run(main())


def test_a_members_metadata_and_assignment_have_bounds() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        with pytest.raises(InvalidRequestError):
            await node.join(protocols=(("range", bytes(1024 * 1024)),))
        member = await node.join()
        caller = Caller(group_id="g", member_id=member.member_id, generation=1)
        with pytest.raises(InvalidRequestError):
            await node.groups.sync(Sync(caller=caller, assignments=((member.member_id, bytes(2**20 + 1)),)))

    run(main())


def test_a_stopping_node_sends_those_who_wait_elsewhere() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.become_stable()
        waiting = asyncio.create_task(node.join())
        await parked(waiting)
        node.groups.send_home()
        with pytest.raises(CoordinatorUnavailableError):
            await waiting
        with pytest.raises(CoordinatorUnavailableError):
            await node.groups.join(join())

    run(main())


def test_offsets_of_a_transaction_are_seen_when_it_commits_and_survive_a_kill_before() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.commit(1)
        caller = Caller(group_id="g")
        offsets = [OffsetCommit("t", 0, 8)]
        assert await node.groups.commit_transactional(caller, offsets, producer_id=5, producer_epoch=1) == [None]
        await node.kill()
        assert await node.committed() == 1
        (unstable,) = await node.groups.committed(caller, [("t", 0)], require_stable=True)
        assert isinstance(unstable.error, UnstableOffsetError)
        await node.groups.end_transaction(5, 0, commit=False)
        for _ in range(2):
            await node.groups.end_transaction(5, 1, commit=True)
        await node.kill()
        assert await node.committed() == 8
        with pytest.raises(ProducerFencedError):
            await node.groups.commit_transactional(caller, offsets, producer_id=5, producer_epoch=0)

    run(main())


def test_offsets_of_a_transaction_that_aborts_are_never_seen() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        member = await node.become_stable()
        caller = Caller(group_id="g", member_id=member.member_id, generation=member.generation)
        zombie = Caller(group_id="g", member_id=member.member_id, generation=0)
        offsets = [OffsetCommit("t", 0, 8)]
        with pytest.raises(IllegalGenerationError):
            await node.groups.commit_transactional(zombie, offsets, producer_id=5, producer_epoch=1)
        await node.groups.commit_transactional(caller, offsets, producer_id=5, producer_epoch=1)
        await node.groups.end_transaction(5, 1, commit=False)
        assert await node.committed() == -1

    run(main())


def test_a_group_is_deleted_when_it_is_empty() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        with pytest.raises(UnknownGroupError):
            await node.groups.delete("g")
        member = await node.become_stable()
        await node.commit(3, who=member)
        with pytest.raises(GroupNotEmptyError):
            await node.groups.delete("g")
        await node.groups.leave("g", [Leaving(member.member_id)])
        await node.groups.delete("g")
        for _ in range(2):
            with pytest.raises(UnknownGroupError):
                await node.groups.describe("g")
            assert await node.committed() == -1
            await node.kill()

    run(main())


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.make("u")
        with pytest.raises(UnknownGroupError):
            await node.groups.delete_offsets("g", [("t", 0)])
        member = await node.become_stable()
        await node.commit(3, who=member)
        await node.commit(4, topic="u", who=member)
        read, free, unknown = await node.groups.delete_offsets("g", [("t", 0), ("u", 0), ("v", 0)])
        assert isinstance(read, GroupSubscribedError)
        assert free is None
        assert isinstance(unknown, UnknownTopicError)
        assert await node.committed() == 3
        assert await node.committed(topic="u") == -1

    run(main())


def test_offsets_expire_some_time_after_the_group_is_empty_and_the_group_with_them() -> None:
    async def main() -> None:
        config = GroupsConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=5_000, expiry_interval_ms=1_000)
        node = await GroupNode(config).start()
        await node.make()
        member = await node.become_stable()
        await node.commit(3, who=member)
        await node.clock.elapse(SESSION_MS)
        assert (await node.groups.describe("g")).state == "Empty"
        await node.clock.elapse(4_000)
        assert await node.committed() == 3
        await node.clock.elapse(3_000)
        assert await node.committed() == -1
        assert await node.groups.list_groups() == []

    run(main())


def test_offsets_do_not_expire_by_a_clock_that_is_not_believed() -> None:
    async def main() -> None:
        config = GroupsConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=5_000, expiry_interval_ms=1_000)
        node = await GroupNode(config).start()
        await node.make()
        await node.commit(3, group="idle")
        node.clock.jump_wall(3_600_000, is_believed=False)
        await node.commit(4, group="ahead")
        await node.clock.elapse(3_000)
        assert [await node.committed(group=name) for name in ("idle", "ahead")] == [3, 4]
        node.clock.jump_wall(-7_200_000, is_believed=False)
        await node.commit(5, group="behind")
        node.clock.jump_wall(3_600_000)  # it is right again
        await node.clock.elapse(1_000)
        assert await node.committed(group="behind") == 5
        await node.clock.elapse(3_000)
        assert await node.committed(group="idle") == -1, "by steady time it has been long enough"

    run(main())


def test_groups_are_listed_described_and_their_lag_is_known() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        partition = await node.make()
        await partition.append(batch(b"1", b"2", b"3"))
        await node.commit(1, group="alone")
        member = await node.become_stable()
        listed = {group.group_id: (group.state, group.member_count) for group in await node.groups.list_groups()}
        assert listed == {"alone": ("Empty", 0), "g": ("Stable", 1)}
        described = await node.groups.describe("g")
        assert [one.member_id for one in described.members] == [member.member_id]
        assert described.members[0].assignment == b"all"
        assert await node.groups.lag("alone") == [("t", 0, 1, 3, 2)]
        assert await node.groups.lag("g") == []

    run(main())


def test_many_commits_come_back_from_a_snapshot() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        for number in range(300):
            await node.commit(number)
        await node.restart()
        assert await node.committed() == 299

    run(main())
