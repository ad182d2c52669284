"""Share consumers and HTTP consumers at one queue: each message is one's, and everybody obeys the queue's rules."""

import asyncio

import pytest
from tests.broker.group.share_world import NAME, ShareNode, acquired, bodies, offsets, records_in
from tests.broker.node import batch, run

from headrace.broker.group.share_port import AckBatch, AckType, Holder
from headrace.folds.group.share import ShareHeartbeat
from headrace.model.errors import (
    InvalidRequestError,
    StaleReceiptError,
    UnknownMemberError,
    UnknownQueueError,
    UnknownTopicError,
    UnknownTopicIdError,
)
from headrace.model.ids import PartitionId
from headrace.model.queue import Guarantee
from headrace.testing.clock import settle


def test_two_share_consumers_and_an_http_consumer_share_the_work() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(*[b"%d" % at for at in range(9)])
        first, second = Holder(), Holder()
        got = bodies(await node.acquire(first, 3))
        got += [message.body for message in await node.receive(3)]
        got += bodies(await node.acquire(second, 9))
        assert sorted(str(body) for body in got) == sorted(str(b"%d" % at) for at in range(9))
        assert (await node.acquire(first)).parts == []
        node.abandon()

    run(main())


def test_what_is_accepted_is_durable_when_that_is_answered() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"a", b"b")
        holder = Holder()
        found = offsets(await node.acquire(holder))
        assert await node.acknowledge(holder, found[0], found[1]) is None
        await node.kill()
        assert node.counts().acknowledged == 2
        node.abandon()

    run(main())


def test_what_is_released_comes_again_with_its_count() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"a", b"b", b"c")
        holder = Holder()
        first, _, last = offsets(await node.acquire(holder))
        types = (AckType.ACCEPT, AckType.RELEASE, AckType.GAP)
        assert await node.acknowledge(holder, first, last, *types) is None
        assert acquired(await node.acquire(Holder())) == [(b"b", 2)]
        node.abandon()

    run(main())


def test_what_is_rejected_goes_to_the_dead_letters() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(dead_letter="dead")
        await node.send(b"bad", b"good")
        holder = Holder()
        first, last = offsets(await node.acquire(holder))
        assert await node.acknowledge(holder, first, last, AckType.REJECT, AckType.ACCEPT) is None
        await settle()
        assert [message.body for message in await node.receive(name="dead")] == [b"bad"]
        node.abandon()

    run(main())


def test_what_is_rejected_where_nothing_takes_dead_letters_is_dropped_and_counted() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(max_deliveries=None)
        await node.send(b"bad")
        holder = Holder()
        (offset,) = offsets(await node.acquire(holder))
        assert await node.acknowledge(holder, offset, offset, AckType.REJECT) is None
        assert (node.counts().dropped, node.counts().visible, node.counts().leased) == (1, 0, 0)
        node.abandon()

    run(main())


def test_a_lease_that_is_over_is_somebody_elses() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(lease_ms=1000)
        await node.send(b"a", b"b")
        slow, quick = Holder(), Holder()
        first, last = offsets(await node.acquire(slow))
        await node.clock.elapse(1001)
        assert acquired(await node.acquire(quick, 1)) == [(b"a", 2)]
        assert isinstance(await node.acknowledge(slow, first, last), StaleReceiptError)
        assert node.counts().acknowledged == 0, "all or nothing"
        assert isinstance(await node.acknowledge(quick, first, last), StaleReceiptError), "it holds one of them"
        assert await node.acknowledge(quick, first, first) is None
        assert isinstance(await node.acknowledge(quick, first, first), StaleReceiptError)
        node.abandon()

    run(main())


def test_a_renewed_lease_lasts_longer() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(lease_ms=1000)
        await node.send(b"a")
        holder = Holder()
        (offset,) = offsets(await node.acquire(holder))
        await node.clock.elapse(900)
        assert await node.acknowledge(holder, offset, offset, AckType.RENEW) is None
        await node.clock.elapse(900)
        assert await node.acknowledge(holder, offset, offset) is None
        node.abandon()

    run(main())


def test_a_consumer_that_is_gone_gives_back_what_it_held() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"a", b"b")
        gone = Holder()
        await node.acquire(gone)
        node.shares.let_go(gone)
        assert acquired(await node.acquire(Holder())) == [(b"a", 2), (b"b", 2)]
        node.abandon()

    run(main())


def test_a_long_poll_is_answered_when_a_message_comes_to_any_of_its_queues() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.make_queue("mails", partitions=2)
        places = node.places() + node.places("mails")
        waiting = asyncio.create_task(node.acquire(Holder(), places=places, wait_ms=1000))
        await node.clock.elapse(500)
        assert not waiting.done()
        await node.send(b"a", name="mails")
        assert acquired(await waiting) == [(b"a", 1)]
        await node.send(b"b")
        assert [message.body for message in await node.receive()] == [b"b"], "nobody stands in the other line any more"
        node.abandon()

    run(main())


def test_a_long_poll_ends_when_its_time_is_over() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        waiting = asyncio.create_task(node.acquire(Holder(), wait_ms=1000))
        await node.clock.elapse(999)
        assert not waiting.done()
        await node.clock.elapse(1)
        assert (await waiting).parts == []
        node.abandon()

    run(main())


def test_a_long_poll_whose_client_is_gone_takes_nothing() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        waiting = asyncio.create_task(node.acquire(Holder(), wait_ms=1000))
        await settle()
        waiting.cancel()
        await settle()
        await node.send(b"a")
        assert acquired(await node.acquire(Holder())) == [(b"a", 1)]
        node.abandon()

    run(main())


def test_who_waits_for_one_partition_holds_up_nobody_behind_him() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(partitions=2)
        narrow = asyncio.create_task(node.acquire(Holder(), places=node.places()[1:], wait_ms=1000))
        await settle()
        wide = asyncio.create_task(node.acquire(Holder(), wait_ms=1000))
        await settle()
        node.broker.partition(NAME, 0).append(batch(b"a"))
        await settle()
        assert acquired(await wide) == [(b"a", 1)]
        assert not narrow.done()
        await node.clock.elapse(1000)
        assert (await narrow).parts == []
        node.abandon()

    run(main())


def test_an_ordered_queue_hands_out_no_later_message_of_a_key() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(ordered=True)
        await node.send(b"a1", b"a2", key=b"a")
        holder, other = Holder(), Holder()
        first = await node.acquire(holder, 1)
        assert bodies(first) == [b"a1"]
        assert (await node.acquire(other)).parts == []
        (offset,) = offsets(first)
        assert await node.acknowledge(holder, offset, offset) is None
        assert bodies(await node.acquire(other)) == [b"a2"]
        node.abandon()

    run(main())


def test_priorities_choose_and_delays_hold_back() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"low", priority=1)
        await node.send(b"high", priority=9)
        await node.send(b"later", priority=9, delay_ms=1000)
        assert bodies(await node.acquire(Holder(), 1)) == [b"high"]
        assert bodies(await node.acquire(Holder())) == [b"low"]
        await node.clock.elapse(1000)
        assert bodies(await node.acquire(Holder())) == [b"later"]
        node.abandon()

    run(main())


def test_of_a_batch_that_others_work_on_only_the_leased_messages_go_out() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(*[b"%d" % at for at in range(10)])
        few = await node.acquire(Holder(), 2)
        assert [record.value for record in records_in(few.parts[0].buffers)] == [b"0", b"1"]
        most = await node.acquire(Holder(), 8)
        assert len(records_in(most.parts[0].buffers)) == 10, "as it is stored"
        assert bodies(most) == [b"%d" % at for at in range(2, 10)]
        node.abandon()

    run(main())


def test_an_answer_has_about_as_many_bytes_as_were_asked_for() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        for at in range(20):
            await node.send(bytes([at]) * 1000)
        found = await node.acquire(Holder(), 100, bytes_max=5000)
        assert 1 <= len(acquired(found)) <= 6
        rest = await node.acquire(Holder(), 100, bytes_max=50_000)
        assert len(acquired(found)) + len(acquired(rest)) == 20
        node.abandon()

    run(main())


@pytest.mark.parametrize("guarantee", [Guarantee.EXACTLY_ONCE, Guarantee.AT_MOST_ONCE])
def test_what_stands_before_a_hand_out_is_in_the_log_when_it_is_answered(guarantee: Guarantee) -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(guarantee=guarantee)
        await node.send(b"a")
        holder = Holder()
        found = await node.acquire(holder)
        assert bodies(found) == [b"a"]
        await node.kill()
        assert (await node.acquire(Holder())).parts == []
        node.abandon()

    run(main())


def test_what_was_handed_out_for_good_can_be_accepted_and_nothing_else() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(guarantee=Guarantee.AT_MOST_ONCE)
        await node.send(b"a")
        holder = Holder()
        (offset,) = offsets(await node.acquire(holder))
        assert await node.acknowledge(holder, offset, offset) is None
        assert isinstance(await node.acknowledge(holder, offset, offset, AckType.RELEASE), StaleReceiptError)
        node.abandon()

    run(main())


def test_who_holds_all_that_may_be_held_gets_nothing_until_he_is_done() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(leased_max=1)
        await node.send(b"a", b"b")
        holder = Holder()
        (offset,) = offsets(await node.acquire(holder))
        waiting = asyncio.create_task(node.acquire(holder, wait_ms=100))
        await node.clock.elapse(100)
        assert (await waiting).parts == []
        await node.acknowledge(holder, offset, offset)
        assert bodies(await node.acquire(holder)) == [b"b"]
        node.abandon()

    run(main())


def test_acknowledgements_that_contradict_themselves_are_refused() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"a", b"b")
        holder = Holder()
        first, last = offsets(await node.acquire(holder))
        for batches in (
            [AckBatch(last, first, (1,))],
            [AckBatch(first, last, (1, 1, 1))],
            [AckBatch(first, last, ())],
            [AckBatch(first, last, (5,))],
            [AckBatch(first, last, (-1,))],
            [AckBatch(first, last, (1,)), AckBatch(last, last, (1,))],
        ):
            with pytest.raises(InvalidRequestError):
                await node.shares.acknowledge(holder, node.places()[0], batches)
        with pytest.raises(StaleReceiptError):
            await node.shares.acknowledge(holder, node.places()[0], [AckBatch(first, 2**62, (1,))])
        assert await node.acknowledge(holder, first, last) is None
        node.abandon()

    run(main())


def test_partitions_that_are_not_there_and_topics_that_are_no_queues_answer_for_themselves() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.make("plain")
        await node.send(b"a")
        nowhere = PartitionId(node.rand.uuid(), 0)
        beyond = PartitionId(node.places()[0].topic_id, 7)
        asked = [nowhere, beyond, *node.places("plain"), *node.places()]
        found = await node.acquire(Holder(), places=asked, wait_ms=1000)
        errors = {part.place: type(part.error) for part in found.parts if part.error is not None}
        assert errors == {
            nowhere: UnknownTopicIdError,
            beyond: UnknownTopicError,
            node.places("plain")[0]: InvalidRequestError,
        }
        assert len(found.parts) == 4
        node.abandon()

    run(main())


def test_a_queue_that_is_deleted_takes_its_leases_along() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        await node.send(b"a")
        holder = Holder()
        (offset,) = offsets(await node.acquire(holder))
        place = node.places()[0]
        await node.queues.delete(NAME)
        assert isinstance(await node.acknowledge(holder, offset, offset, place=place), UnknownTopicIdError)
        node.shares.let_go(holder)
        await node.make_queue()
        await node.send(b"b")
        assert bodies(await node.acquire(holder)) == [b"b"]
        node.abandon()

    run(main())


def test_who_waits_when_the_node_stops_or_the_queue_goes_is_sent_home() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue()
        waiting = asyncio.create_task(node.acquire(Holder(), wait_ms=1000))
        await settle()
        node.queues.send_home()
        assert (await waiting).parts == []
        waiting = asyncio.create_task(node.acquire(Holder(), wait_ms=1000))
        await settle()
        await node.queues.delete(NAME)
        (part,) = (await waiting).parts
        assert isinstance(part.error, UnknownQueueError)
        node.abandon()

    run(main())


def test_members_are_known_after_a_crash_and_a_plain_topic_is_refused() -> None:
    async def main() -> None:
        node = await ShareNode().start()
        await node.make_queue(partitions=2)
        await node.make("plain")
        with pytest.raises(InvalidRequestError):
            await node.shares.heartbeat("g", ShareHeartbeat("m", 0, ("plain",)))
        joined = await node.shares.heartbeat("g", ShareHeartbeat("m", 0, (NAME, "not-yet")))
        assert joined.assignment is not None
        assert [topic.partition_count for topic in joined.assignment] == [2]
        await node.kill()
        assert (await node.shares.heartbeat("g", ShareHeartbeat("m", joined.member_epoch))).assignment is None
        await node.clock.elapse(45_000)
        with pytest.raises(UnknownMemberError):
            await node.shares.heartbeat("g", ShareHeartbeat("m", joined.member_epoch))
        node.abandon()

    run(main())
