"""Settings of single groups: obeyed at once, kept over restarts, and independent of whether the group exists."""

import pytest
from tests.broker.group.share_world import NAME, ShareNode, acquired, bodies, offsets
from tests.broker.group.test_consumer_groups import beat, join, refusal
from tests.broker.group.world import CONFIG, GroupNode
from tests.broker.node import run

from headrace.broker.group.share_port import AckType, Holder
from headrace.folds.group.share import ShareHeartbeat
from headrace.model.errors import InvalidConfigError, InvalidRequestError, UnknownMemberError
from headrace.testing.clock import settle


def test_consumer_groups_obey_their_own_times_and_others_the_nodes() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        await node.groups.configure(
            "g", {"consumer.session.timeout.ms": "3000", "consumer.heartbeat.interval.ms": "1000"}
        )
        member = await join(node, "a")
        other = await join(node, "b", group="h")
        assert member.heartbeat_interval_ms == 1000
        assert other.heartbeat_interval_ms == CONFIG.consumer_heartbeat_interval_ms
        await node.clock.elapse(3001)
        assert await refusal(node, "a", member.member_epoch) is UnknownMemberError
        assert (await node.groups.consumers.describe("h")).members
        node.abandon()

    run(main())


def test_a_change_holds_at_once_for_members_that_are_there_and_over_restarts() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make()
        member = await join(node, "a")
        await node.groups.configure("g", {"consumer.session.timeout.ms": "6000"})
        await node.clock.elapse(6001)
        assert await refusal(node, "a", member.member_epoch) is UnknownMemberError
        for again in (node.restart, node.kill):
            await again()
            member = await join(node, "a")
            await node.clock.elapse(5000)
            await beat(node, "a", member.member_epoch)
            await node.clock.elapse(6001)
            assert await refusal(node, "a", member.member_epoch) is UnknownMemberError
        node.abandon()

    run(main())


def test_settings_are_replaced_listed_and_kept_when_their_group_is_deleted() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        assert node.groups.settings("g").overrides == {}
        assert node.groups.settings("g").defaults["consumer.session.timeout.ms"] == "45000"
        await node.groups.configure("g", {"consumer.session.timeout.ms": "7000"}, validate_only=True)
        assert node.groups.configured() == []
        await node.groups.configure("g", {"consumer.session.timeout.ms": "7000"})
        await node.make()
        await node.commit(1)
        await node.groups.delete("g")
        await node.kill()
        assert node.groups.settings("g").overrides == {"consumer.session.timeout.ms": "7000"}
        assert node.groups.configured() == ["g"]
        with pytest.raises(InvalidConfigError):
            await node.groups.configure("g", {"consumer.session.timeout.ms": "1"})
        await node.groups.configure("g", {})
        assert (node.groups.configured(), node.groups.settings("g").overrides) == ([], {})
        node.abandon()

    run(main())


def test_a_share_group_obeys_its_own_session_and_heartbeat_times() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.shares.heartbeat("g", ShareHeartbeat("m", 0, (NAME,)))
        await node.groups.configure("g", {"share.session.timeout.ms": "2000", "share.heartbeat.interval.ms": "500"})
        assert node.shares.heartbeat_interval_ms("g") == 500
        assert node.shares.heartbeat_interval_ms("h") == CONFIG.share_heartbeat_interval_ms
        await node.clock.elapse(2001)
        assert (await node.shares.describe("g")).state == "Empty"
        node.abandon()

    run(main())


def test_a_share_group_holds_messages_for_its_own_time() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(lease_ms=30_000)
        await node.groups.configure("g", {"share.record.lock.duration.ms": "1000"})
        await node.send(b"a")
        holder = Holder("g")
        found = await node.acquire(holder)
        assert (found.lease_ms, node.shares.lease_ms("g", node.places())) == (1000, 1000)
        assert node.shares.lease_ms("h", node.places()) == 30_000
        (offset,) = offsets(found)
        await node.clock.elapse(900)
        assert await node.acknowledge(holder, offset, offset, AckType.RENEW) is None
        await node.clock.elapse(900)
        assert acquired(await node.acquire(Holder())) == []
        await node.clock.elapse(101)
        assert acquired(await node.acquire(Holder())) == [(b"a", 2)]
        node.abandon()

    run(main())


def test_a_share_group_is_not_handed_what_was_delivered_more_often_than_its_limit() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(dead_letter="dead")
        await node.groups.configure("g", {"share.delivery.count.limit": "2"})
        await node.send(b"bad", b"good")
        holder = Holder("g")
        for _ in range(2):
            first, last = offsets(await node.acquire(holder))
            assert await node.acknowledge(holder, first, last, AckType.RELEASE) is None
        await node.send(b"new")
        assert bodies(await node.acquire(holder)) == [b"new"]
        await settle()
        assert [message.body for message in await node.receive(name="dead")] == [b"bad", b"good"]
        node.abandon()

    run(main())


def test_a_share_group_that_may_not_renew_is_told_so_and_keeps_its_lease() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.groups.configure("g", {"share.renew.acknowledge.enable": "false"})
        await node.send(b"a")
        holder = Holder("g")
        (offset,) = offsets(await node.acquire(holder))
        error = await node.acknowledge(holder, offset, offset, AckType.RENEW)
        assert isinstance(error, InvalidRequestError)
        assert await node.acknowledge(holder, offset, offset) is None
        node.abandon()

    run(main())
