"""Queues through the broker: send, receive, acknowledge, and everything about leases."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pytest
from tests.broker.node import Node, batch, fetch, gathered, run
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

from headrace.broker.queue import attempts
from headrace.broker.queue.port import Extension, MessageState, Rejection, Release
from headrace.model.batch import CRC_POSITION, CRC_START, read_header
from headrace.model.errors import (
    DiskFullError,
    InvalidReceiptError,
    QueueFullError,
    StaleReceiptError,
    TooManyLeasedError,
    UnknownQueueError,
    UnknownTopicError,
)
from headrace.model.message import Message, Sent
from headrace.model.queue import Backoff, QueueConfig
from headrace.testing.clock import settle
from headrace.testing.threads import HeldThreads, InlineThreads
from headrace.wire.crc import crc32c
from headrace.wire.kafka.records import Record, encode_batch

T = TypeVar("T")


def test_what_is_sent_is_received_and_after_its_acknowledgement_is_gone() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        sent = await world.send(b"a", b"b")
        assert [(one.id, one.is_duplicate) for one in sent] == [(f"0-{one.offset}", False) for one in sent]
        messages = await world.receive()
        assert bodies_of(messages) == [b"a", b"b"]
        assert [message.id for message in messages] == [one.id for one in sent]
        assert [message.attempt for message in messages] == [1, 1]
        assert await world.receive() == []
        assert await world.acknowledge(*messages) == [None, None]
        await world.node.clock.elapse(60_000)
        assert await world.receive() == []
        counts = world.counts()
        assert (counts.sent, counts.acknowledged, counts.visible, counts.leased) == (2, 2, 0, 0)

    run(main())


def test_a_message_reappears_when_its_lease_expires_and_its_old_receipt_is_stale() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (first,) = await world.receive(lease_ms=1000)
        await world.node.clock.elapse(999)
        assert await world.receive() == []
        await world.node.clock.elapse(1)
        (second,) = await world.receive(lease_ms=1000)
        assert (second.attempt, second.id, second.first_received_ms) == (2, first.id, first.first_received_ms)
        (outcome,) = await world.acknowledge(first)
        assert isinstance(outcome, StaleReceiptError)
        assert await world.acknowledge(second) == [None]

    run(main())


def test_who_may_be_late_acknowledges_with_the_newest_receipt_and_others_do_not() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (first,) = await world.receive(lease_ms=1000)
        await world.node.clock.elapse(1000)
        (second,) = await world.receive(lease_ms=0)
        (outcome,) = await world.acknowledge(second)
        assert isinstance(outcome, StaleReceiptError)
        (outcome,) = await world.acknowledge(first, may_be_late=True)
        assert isinstance(outcome, StaleReceiptError)
        assert world.counts().visible == 1
        assert await world.acknowledge(second, may_be_late=True) == [None]
        assert await world.acknowledge(second, may_be_late=True) == [None], "may be repeated"
        assert (world.counts().visible, world.counts().acknowledged) == (0, 1)
        await world.node.restart()
        assert await world.receive() == []

    run(main())


def test_a_late_acknowledgement_is_good_after_a_restart_if_the_log_has_the_lease() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee="exactly_once")
        await world.send(b"a", b"b")
        over, left = await world.receive(lease_ms=1000)
        await world.node.clock.elapse(1000)
        await world.node.restart()
        assert await world.acknowledge(over, may_be_late=True) == [None]
        # A lease of this process, and with another number: neither is the receipt's any more.
        (again,) = await world.receive(lease_ms=0)
        assert again.body == b"b"
        (outcome,) = await world.acknowledge(left, may_be_late=True)
        assert isinstance(outcome, StaleReceiptError)
        await world.node.kill()
        assert await world.acknowledge(again, may_be_late=True) == [None]
        assert world.counts().visible == 0

    run(main())


def test_an_expired_lease_is_extended_and_released_where_the_caller_may_be_late_also_over_restarts() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee="exactly_once", fair=True)
        await world.send(b"a", b"b", key=b"k")
        first, second = await world.receive(lease_ms=1000)
        await world.node.clock.elapse(2000)
        extension, release = [Extension(first.receipt, 60_000)], [Release(second.receipt, 0)]
        for outcome in (await world.queues.extend(NAME, extension), await world.queues.release(NAME, release)):
            assert isinstance(outcome[0], StaleReceiptError), "only who may be late"
        await world.node.restart()
        assert await world.queues.extend(NAME, extension, may_be_late=True) == [None]
        assert await world.queues.release(NAME, release, may_be_late=True) == [None]
        assert (world.counts().leased, world.counts().visible) == (1, 1)
        await world.node.kill()
        assert (world.counts().leased, world.counts().visible) == (1, 1)
        assert await world.queues.extend(NAME, extension) == [None], "its lease is held again"
        (again,) = await world.receive()
        assert (again.body, again.attempt) == (b"b", 2)
        (outcome,) = await world.queues.release(NAME, release, may_be_late=True)
        assert isinstance(outcome, StaleReceiptError)
        assert not outcome.is_gone
        assert await world.acknowledge(first, again) == [None, None]
        for call in (world.queues.extend(NAME, extension, may_be_late=True), world.queues.extend(NAME, extension)):
            (outcome,) = await call
            assert isinstance(outcome, StaleReceiptError)
            assert outcome.is_gone

    run(main())


def test_a_receiver_that_waits_gets_what_is_released_late_and_only_once() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(backoff=Backoff(first_ms=60_000, last_ms=60_000))
        await world.send(b"a")
        (first,) = await world.receive(lease_ms=1000)
        await world.node.clock.elapse(2000)
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=30_000)
        assert await world.queues.release(NAME, [Release(first.receipt, 0)], may_be_late=True) == [None]
        (again,) = await waiting.promise
        assert (again.body, again.attempt) == (b"a", 2)
        assert await world.acknowledge(again) == [None]

    run(main())


def test_the_receipt_of_a_forgotten_lease_is_not_taken_for_a_later_one_that_was_acknowledged() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (forgotten,) = await world.receive(lease_ms=1000)
        await world.node.kill()
        (known,) = await world.receive()
        assert known.attempt == forgotten.attempt
        # In one call, in two, and after it.
        together = await world.acknowledge(known, forgotten, known)
        (later,) = await world.acknowledge(forgotten)
        assert [together[0], together[2]] == [None, None]
        for outcome in (together[1], later):
            assert isinstance(outcome, StaleReceiptError)
        assert await world.acknowledge(known) == [None], "its own may be repeated"

    run(main())


def test_a_late_acknowledgement_of_a_forgotten_lease_is_refused_though_a_later_one_has_its_number() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (forgotten,) = await world.receive(lease_ms=1000)
        await world.node.kill()
        (known,) = await world.receive(lease_ms=0)
        assert known.attempt == forgotten.attempt
        (outcome,) = await world.acknowledge(forgotten, may_be_late=True)
        assert isinstance(outcome, StaleReceiptError)
        assert await world.acknowledge(known, may_be_late=True) == [None]

    run(main())


def test_a_waiting_receive_is_served_when_a_message_is_committed() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=20_000)
        await settle()
        assert not waiting.promise.done()
        await world.send(b"a")
        await settle()
        assert bodies_of(waiting.promise.result()) == [b"a"]

    run(main())


def test_a_waiting_receive_gets_what_a_lease_or_a_delay_gives_back_and_ends_by_itself() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"delayed", delay_ms=5000)
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=20_000)
        await world.node.clock.elapse(4999)
        assert not waiting.promise.done()
        await world.node.clock.elapse(1)
        assert bodies_of(waiting.promise.result()) == [b"delayed"]
        empty = world.queues.receive(NAME, count_max=1, wait_ms=20_000)
        await world.node.clock.elapse(20_000)
        assert empty.promise.result() == []

    run(main())


def test_those_who_wait_are_served_in_the_order_in_which_they_came() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        waiting = [world.queues.receive(NAME, count_max=1, wait_ms=20_000) for _ in range(3)]
        waiting[1].cancel()
        await world.send(b"a")
        await world.send(b"b")
        await settle()
        assert bodies_of(waiting[0].promise.result()) == [b"a"]
        assert bodies_of(waiting[2].promise.result()) == [b"b"]

    run(main())


def test_a_queue_over_several_partitions_looks_like_one() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=4)
        for number in range(20):
            await world.send(b"%d" % number)
        messages = await world.receive(100)
        assert sorted(int(message.body) for message in messages) == list(range(20))
        assert len({message.partition for message in messages}) == 4
        assert await world.acknowledge(*messages) == [None] * 20
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=20_000)
        await world.send(b"last")
        await settle()
        assert bodies_of(waiting.promise.result()) == [b"last"]

    run(main())


def test_a_receive_that_is_repeated_gets_the_same_messages_as_far_as_they_are_leased() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2)
        for number in range(6):
            await world.send(b"%d" % number)
        first = await world.receive(4, attempt_id="x", lease_ms=10_000)
        await world.node.clock.elapse(9_000)
        again = await world.receive(4, attempt_id="x", lease_ms=10_000)
        assert {message.receipt for message in again} == {message.receipt for message in first}
        assert [message.attempt for message in again] == [1] * 4
        assert len(await world.receive(4, attempt_id="y", lease_ms=1_000)) == 2, "another one gets what is left"
        await world.node.clock.elapse(9_000)
        assert await world.acknowledge(*first[:3]) == [None] * 3, "their leases began anew"
        assert bodies_of(await world.receive(4, attempt_id="x")) == [first[3].body]
        assert await world.acknowledge(first[3]) == [None]
        assert len(await world.receive(4, attempt_id="x")) == 2, "nothing of it is left to be repeated"

    run(main())


def test_a_receive_that_is_repeated_while_its_first_try_waits_gets_what_comes() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        ask = {"count_max": 1, "wait_ms": 20_000}
        lost = world.queues.receive(NAME, attempt_id="x", **ask)
        other = world.queues.receive(NAME, attempt_id="y", **ask)
        again = world.queues.receive(NAME, attempt_id="x", **ask)
        await settle()
        assert lost.promise.result() == [], "nobody listens to this one any more"
        await world.send(b"a", b"b")
        await settle()
        assert bodies_of(other.promise.result()) == [b"a"], "its turn came first"
        assert bodies_of(again.promise.result()) == [b"b"]

    run(main())


def test_what_repeated_receives_would_get_is_bounded_by_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "_LEASES_MAX", 10)

    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(*(b"%d" % number for number in range(40)))
        received = [await world.receive(4, attempt_id=str(number)) for number in range(5)]
        for number in (4, 3):
            again = await world.receive(4, attempt_id=str(number))
            assert bodies_of(again) == bodies_of(received[number])
        live = await world.queues.live(NAME)
        assert sorted(live._attempts._known) == ["3", "4"]
        assert len(await world.receive(15, attempt_id="large")) == 15
        assert sorted(live._attempts._known) == ["large"], "the last one is always known"
        assert len(await world.receive(15, attempt_id="large")) == 15

    run(main())


def test_a_partition_that_may_lease_no_more_holds_nothing_back_that_another_one_has() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2, leased_max=1)
        for number in range(6):
            await world.send(b"%d" % number)
        first = await world.receive(4)
        assert len(first) == 2, "one of each partition"
        with pytest.raises(TooManyLeasedError, match="leased_max"):
            await world.receive(4)
        assert await world.acknowledge(first[0]) == [None]
        second = await world.receive(4)
        assert [message.partition for message in second] == [first[0].partition]
        assert await world.acknowledge(second[0]) == [None]
        third = await world.receive(4, wait_ms=1000)
        assert [message.partition for message in third] == [first[0].partition]
        assert world.counts().leased == 2, "nobody holds what nobody was handed"

    run(main())


def test_leases_and_attempts_survive_a_restart() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee="exactly_once")
        await world.send(b"a", b"b")
        (first,) = await world.receive(1, lease_ms=10_000)
        await world.node.clock.elapse(4000)
        await world.node.restart()
        assert await world.bodies() == [b"b"]
        await world.node.clock.elapse(5999)
        assert await world.bodies() == []
        assert await world.acknowledge(first) == [None]

    run(main())


def test_the_time_that_a_node_is_down_is_nobodys_lease_time() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee="exactly_once")
        await world.send(b"a")
        (message,) = await world.receive(1, lease_ms=10_000)
        await world.node.queues.stop()
        world.node.abandon()
        world.node.clock.advance(3_600_000)
        world.node.clock.jump_wall(86_400_000)
        await world.node.start()
        assert await world.bodies() == []
        assert await world.acknowledge(message) == [None]

    run(main())


def test_a_restart_gives_a_lease_back_no_more_than_a_minute() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(guarantee="exactly_once")
        await world.send(b"a")
        await world.receive(1, lease_ms=600_000)
        await world.node.clock.elapse(550_000)
        await world.node.kill()
        assert await world.bodies() == []
        await world.node.clock.elapse(120_000)
        assert await world.bodies() == [b"a"]

    run(main())


def test_ids_are_forgotten_though_nothing_else_happens() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(*[b"x"] * 10, deduplication_id=None)
        await world.queues.send(NAME, [Message(b"y", deduplication_id=str(number)) for number in range(100)])
        (partition,) = world.queues._live.find(NAME).partitions.opened
        assert len(partition.fold.deduplication) == 100
        await world.node.clock.elapse(8 * 60_000)
        assert not partition.fold.deduplication

    run(main())


def test_forged_and_foreign_receipts_are_refused() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.create("other")
        await world.send(b"a")
        (message,) = await world.receive()
        forged = message.receipt[:-2] + ("AA" if message.receipt[-2:] != "AA" else "BB")
        for receipt in (forged, "", "x" * 40, "é" * 40, message.receipt + "A"):
            (outcome,) = await world.queues.acknowledge(NAME, [receipt])
            assert isinstance(outcome, InvalidReceiptError)
        (outcome,) = await world.queues.acknowledge("other", [message.receipt])
        assert isinstance(outcome, InvalidReceiptError)
        assert await world.acknowledge(message, message) == [None, None]
        assert await world.acknowledge(message) == [None]  # said again by somebody who did not hear the answer

    run(main())


def test_leases_are_extended_released_and_rejected() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(lease_ms=1000)
        await world.send(b"a", b"b", b"c")
        a, b, c = await world.receive()
        assert await world.queues.extend(NAME, [Extension(a.receipt, 60_000)]) == [None]
        assert await world.release(b, delay_ms=500) == [None]
        assert await world.queues.reject(NAME, [Rejection(c.receipt, "not json")]) == [None]
        assert await world.bodies() == []
        await world.node.clock.elapse(500)
        assert await world.bodies() == [b"b"]
        (dead,) = await world.receive(queue="orders-dead")
        headers = {name: value.decode() for name, value in dead.headers}
        assert dead.body == b"c"
        assert dead.id == c.id
        assert headers["headrace-dead-reason"] == "not json"
        assert (headers["headrace-dead-source"], headers["headrace-dead-offset"]) == (NAME, c.place)
        assert headers["headrace-dead-attempts"] == "1"
        assert world.counts().dead_lettered == 1

    run(main())


def test_a_message_is_a_dead_letter_after_its_deliveries_and_a_redrive_brings_it_back() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=2, backoff=Backoff(first_ms=100, last_ms=100))
        await world.send(b"poison", priority=7)
        for attempt in (1, 2):
            (message,) = await world.receive(lease_ms=1000)
            assert message.attempt == attempt
            await world.node.clock.elapse(1100)
        assert await world.bodies() == []
        assert world.counts().dead_lettered == 1
        assert world.counts("orders-dead").visible == 1
        assert world.queues.dead_letter_sources("orders-dead") == [NAME]
        redrive = await world.queues.redrive("orders-dead")
        await world.node.clock.elapse(2000)
        (progress,) = world.queues.redrives("orders-dead")
        assert (progress.id, progress.state.value, progress.moved) == (redrive.id, "completed", 1)
        (again,) = await world.receive()
        assert (again.body, again.attempt, again.priority, again.id) == (b"poison", 1, 7, message.id)
        assert not [name for name, _ in again.headers if name.startswith("headrace-dead")]

    run(main())


def test_the_highest_priority_comes_first_and_within_one_the_oldest() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        for body, priority in ((b"low", 0), (b"mid-1", 5), (b"high", 9), (b"mid-2", 5)):
            await world.send(body, priority=priority)
        assert await world.bodies() == [b"high", b"mid-1", b"mid-2", b"low"]

    run(main())


def test_an_ordered_queue_hands_out_each_key_in_order_and_blocks_it_meanwhile() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ordered=True)
        for body, key in ((b"a1", b"a"), (b"a2", b"a"), (b"b1", b"b")):
            await world.send(body, key=key)
        (first,) = await world.receive(1)
        assert first.body == b"a1"
        assert await world.bodies() == [b"b1"]
        why = await world.queues.explain(NAME, key=b"a")
        assert (why.state, why.offset, why.waiting) == (MessageState.LEASED, first.offset, 1)
        await world.acknowledge(first)
        assert await world.bodies() == [b"a2"]

    run(main())


def test_a_duplicate_gets_the_first_ones_answer_and_is_not_delivered() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        first, _, again = await world.queues.send(
            NAME, [Message(b"a", deduplication_id="1"), Message(b"b"), Message(b"a", deduplication_id="1")]
        )
        assert (again.offset, again.is_duplicate, first.is_duplicate) == (first.offset, True, False)
        (later,) = await world.send(b"a", deduplication_id="1")
        assert later == Sent(first.id, 0, first.offset, True)
        await world.acknowledge(*await world.receive())
        await world.node.restart()
        (later,) = await world.send(b"a", deduplication_id="1")
        assert later.is_duplicate
        assert await world.bodies() == []
        await world.node.clock.elapse(5 * 60_000)
        (fresh,) = await world.send(b"a", deduplication_id="1")
        assert not fresh.is_duplicate

    run(main())


def test_single_sends_of_a_turn_are_one_batch_and_each_gets_its_own_answer() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3)
        sends = [
            world.queues.send_one(NAME, message)
            for message in (Message(b"a"), Message(b"b", deduplication_id="1"), Message(b"b", deduplication_id="1"))
        ]
        sends += [world.queues.send_one(NAME, Message(body)) for body in (b"c", b"one too many")]
        assert [send.done() for send in sends] == [False, False, False, False, True]
        assert isinstance(sends[-1].exception(), QueueFullError)
        sent = [await send for send in sends[:-1]]
        places = [(one.offset - sent[0].offset, one.is_duplicate) for one in sent]
        assert places == [(0, False), (1, False), (1, True), (2, False)]
        assert await world.bodies() == [b"a", b"b", b"c"]

    run(main())


def test_a_single_send_goes_where_its_key_goes_or_to_each_partition_in_turn() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        keyed = [await world.queues.send_one(NAME, Message(b"x", key=b"k")) for _ in range(3)]
        assert len({sent.partition for sent in keyed}) == 1
        assert (await world.send(b"x", b"y", key=b"k"))[0].partition == keyed[0].partition
        free = [await world.queues.send_one(NAME, Message(b"x")) for _ in range(3)]
        assert {sent.partition for sent in free} == {0, 1, 2}

    run(main())


def test_a_single_send_to_a_full_disk_is_refused_at_once() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        world.node.logs.space.is_full = True
        refused = world.queues.send_one(NAME, Message(b"b"))
        assert isinstance(refused.exception(), DiskFullError)

    run(main())


def test_a_repeated_request_stores_nothing_and_gets_the_first_ones_answer() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        messages = [Message(b"%d" % number, key=b"%d" % (number % 5), headers=(("a", b"b"),)) for number in range(20)]
        first = world.queues.send(NAME, messages, request_id="r1")
        meanwhile = world.queues.send(NAME, messages, request_id="r1")
        places = [(one.partition, one.offset) for one in await first]
        assert [(one.partition, one.offset) for one in await meanwhile] == places
        assert all(one.is_duplicate for one in await meanwhile)
        await world.node.kill()
        again = await world.queues.send(NAME, messages, request_id="r1")
        assert [(one.partition, one.offset) for one in again] == places
        received = await world.receive(100)
        assert sorted(int(message.body) for message in received) == list(range(20))
        assert {message.headers for message in received} == {(("a", b"b"),)}
        other = await world.queues.send(NAME, messages, request_id="r2")
        assert not any(one.is_duplicate for one in other)

    run(main())


def test_messages_of_one_send_stay_in_order_when_some_have_ids() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.send(NAME, [Message(b"1"), Message(b"2", deduplication_id="x"), Message(b"3")])
        assert await world.bodies() == [b"1", b"2", b"3"]

    run(main())


def test_what_kafka_producers_write_is_in_the_queue_too() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        partition = world.node.broker.partition(NAME, 0)
        await gathered([partition.append(batch(b"x", b"y", codec=1))])
        assert await world.bodies() == [b"x", b"y"]
        await world.send(b"z")
        assert await world.node.values(NAME) == [b"x", b"y", b"z"]

    run(main())


def test_a_message_with_a_headers_name_that_is_no_text_is_handed_out() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        sent = encode_batch([Record(1_700_000_000_000, None, b"x", (("ab", b"1"),))]).replace(b"ab", b"\xff\xfe")
        sent[CRC_POSITION:CRC_START] = crc32c(memoryview(sent)[CRC_START:]).to_bytes(4, "big")
        await gathered([world.node.broker.partition(NAME, 0).append(memoryview(sent))])
        (message,) = await world.receive()
        assert (message.body, message.headers) == (b"x", ((chr(0xFFFD) * 2, b"1"),))

    run(main())


def test_an_empty_queue_has_no_oldest_message() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"x")
        sent_ms = world.node.clock.wall_ms()
        await world.node.clock.elapse(10_000)
        assert world.node.queues.describe(NAME).counts.oldest_ms == sent_ms
        (message,) = await world.receive()
        await world.node.queues.acknowledge(NAME, [message.receipt])
        assert world.node.queues.describe(NAME).counts.oldest_ms is None

    run(main())


def test_the_first_send_makes_a_queue_and_a_receive_does_not() -> None:
    async def main() -> None:
        node = Node()
        await node.start()
        receive = node.queues.receive("new", count_max=1)
        assert isinstance(receive.promise.exception(), UnknownQueueError)
        both = [node.queues.send("new", [Message(b"%d" % number)]) for number in range(2)]
        for promise in both:
            assert isinstance((await promise)[0], Sent)
        assert node.queues.names() == ["new"]
        assert node.queues.describe("new").counts.visible == 2

    run(main())


def test_a_queue_that_is_being_made_makes_its_first_users_wait_and_refuses_none() -> None:
    async def main() -> None:
        node = Node()
        await node.start()
        creating = asyncio.ensure_future(node.queues.create("new", partition_count=3))
        sends, receives = [], []
        for _ in range(60):
            sends.append(node.queues.send("new", [Message(b"x")]))
            if "new" in node.queues.names():
                receives.append(node.queues.receive("new", count_max=1, wait_ms=1000))
            await asyncio.sleep(0)
        await creating
        for send in sends:
            assert isinstance((await send)[0], Sent)
        await node.clock.elapse(1000)
        assert len(receives) > 1
        assert sum(len(receive.promise.result()) for receive in receives) == len(receives)

    run(main())


def test_a_clock_that_was_ahead_and_is_set_back_before_a_restart_makes_nothing_come_too_soon_or_too_late() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(backoff=Backoff(first_ms=1000, last_ms=1000), retention_ms=7_000_000)
        await world.send(b"before", delay_ms=20_000)
        world.node.clock.jump_wall(-3_600_000)
        await world.node.restart()
        await world.send(b"short-lived", ttl_ms=60_000)
        await world.send(b"later", delay_ms=20_000)
        (first,) = await world.send(b"once", deduplication_id="x")
        (again,) = await world.send(b"once", deduplication_id="x")
        assert (again.offset, again.is_duplicate) == (first.offset, True)
        messages = await world.receive()
        assert [message.body for message in messages] == [b"short-lived", b"once"]
        await world.release(*messages)
        assert await world.bodies() == []
        await world.node.clock.elapse(1000)
        assert await world.bodies() == [b"short-lived", b"once"]
        await world.node.clock.elapse(19_000)
        assert await world.bodies() == [b"before", b"later"]
        await world.node.clock.elapse(7_100_000)
        assert (world.counts().visible, world.counts().expired) == (0, 4)

    run(main())


def test_a_full_disk_refuses_sends_and_takes_acknowledgements() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (message,) = await world.receive()
        world.node.logs.space.is_full = True
        (outcome,) = await world.queues.send(NAME, [Message(b"b")])
        assert isinstance(outcome, DiskFullError)
        assert await world.acknowledge(message) == [None]
        world.node.logs.space.is_full = False
        await world.send(b"b")
        assert await world.bodies() == [b"b"]

    run(main())


def test_an_acknowledgement_is_written_beside_a_send_for_which_there_is_no_space() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        (message,) = await world.receive()
        node = world.node
        node.disk.capacity_bytes = sum(map(len, node.disk.files().values())) + node.log_config.disk_reserve_bytes
        node.logs.space.left_bytes = 0
        send = world.queues.send_one(NAME, Message(b"b"))
        assert await world.acknowledge(message) == [None]
        with pytest.raises(DiskFullError, match="reserve"):
            await send
        assert node.logs.is_full
        node.disk.capacity_bytes = None
        await node.clock.elapse(node.log_config.disk_check_interval_ms)
        await world.send(b"c")
        assert await world.bodies() == [b"c"]

    run(main())


def test_a_full_queue_refuses_sends_until_something_is_done() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=2)
        outcomes = await world.queues.send(NAME, [Message(b"1"), Message(b"2"), Message(b"3")])
        assert [type(outcome) for outcome in outcomes] == [Sent, Sent, QueueFullError]
        await world.acknowledge(*await world.receive(1))
        assert isinstance((await world.queues.send(NAME, [Message(b"3")]))[0], Sent)

    run(main())


def test_the_limit_of_a_queue_is_over_all_its_partitions() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3, messages_max=6)
        outcomes = await world.queues.send(NAME, [Message(b"%d" % number, key=b"k") for number in range(4)])
        assert [type(outcome) for outcome in outcomes] == [Sent] * 4
        outcomes = await world.queues.send(NAME, [Message(b"%d" % number, key=b"%d" % number) for number in range(4)])
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["QueueFullError"] * 2 + ["Sent"] * 2
        assert str(outcomes[-1]).startswith("queue orders holds its 6 messages")
        await world.acknowledge(*await world.receive(1))
        assert isinstance((await world.queues.send(NAME, [Message(b"x", key=b"k")]))[0], Sent)
        planned, refused = (await world.queues.live(NAME)).sending.plan([Message(b"y")])
        assert (planned, [type(error) for error in refused.values()]) == ({}, [QueueFullError])

    run(main())


def test_a_full_queue_drops_its_oldest_in_whichever_partition_they_lie() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3, messages_max=6, overflow="drop_oldest")
        sent = []
        for number in range(6):
            # Of three keys, which lie in three partitions.
            sent += await world.send(b"%d" % number, key=b"gab"[number // 2 : number // 2 + 1])
            await world.node.clock.elapse(10)
        assert len({one.partition for one in sent}) == 3
        await world.send(b"6", key=b"b")
        await world.send(b"7", b"8", key=b"b")
        assert world.counts().dropped == 3
        await world.node.restart()
        await world.send(b"9")
        assert sorted(await world.bodies()) == [b"4", b"5", b"6", b"7", b"8", b"9"]

    run(main())


def test_a_full_queue_drops_its_oldest_where_it_is_told_to_and_never_a_leased_one() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(messages_max=3, overflow="drop_oldest")
        await world.send(b"held", b"old", b"new")
        (held,) = await world.receive(1)
        await world.send(b"newer")
        assert await world.bodies() == [b"new", b"newer"]
        assert world.counts().dropped == 1
        assert await world.acknowledge(held) == [None]

    run(main())


def test_a_noisy_key_does_not_starve_the_quiet_ones_in_a_fair_queue() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(fair=True)
        for number in range(20):
            await world.send(b"noisy %d" % number, key=b"noisy")
        await world.send(b"quiet", key=b"quiet")
        assert b"quiet" in await world.bodies(2)

    run(main())


def test_a_new_configuration_is_obeyed_at_once_and_after_a_restart() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.update(NAME, QueueConfig(lease_ms=1000, max_deliveries=1))
        await world.send(b"a")
        (message,) = await world.receive()
        assert message.lease_ms == 1000
        await world.node.restart()
        assert world.queues.find(NAME).config.max_deliveries == 1
        await world.node.clock.elapse(2000)
        assert await world.bodies(queue="orders-dead") == [b"a"]

    run(main())


def test_two_who_change_different_settings_at_once_both_have_their_way() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await asyncio.gather(
            world.queues.update(NAME, lambda config: msgspec.structs.replace(config, lease_ms=7000)),
            world.queues.update(NAME, lambda config: msgspec.structs.replace(config, delay_ms=9000)),
            world.queues.update(NAME, lambda config: msgspec.structs.replace(config, fair=True)),
        )
        wanted = QueueConfig(lease_ms=7000, delay_ms=9000, fair=True)
        assert world.queues.find(NAME).config == wanted
        await world.node.restart()
        assert world.queues.find(NAME).config == wanted

    run(main())


def test_partitions_that_are_added_take_part() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.node.broker.create_partitions(NAME, 3)
        await settle()
        for number in range(6):
            await world.send(b"%d" % number)
        messages = await world.receive(10)
        assert {message.partition for message in messages} == {0, 1, 2}
        assert await world.acknowledge(*messages) == [None] * 6

    run(main())


def test_a_topic_that_changes_again_while_its_queue_gets_partitions_does_no_harm() -> None:
    class SlowThreads(InlineThreads):
        """Whose calls take some turns of the loop."""

        def run(self, call: Callable[[], T]) -> "asyncio.Future[T]":
            async def later() -> T:
                for _ in range(20):
                    await asyncio.sleep(0)
                return call()

            return asyncio.ensure_future(later())

    async def main() -> None:
        world = await QueueWorld(Node(sync_threads=SlowThreads())).start()
        failed = asyncio.ensure_future(world.queues.wait_failed())
        broker = world.node.broker
        await broker.create_partitions(NAME, 2)
        await broker.alter_config(NAME, {**broker.topic(NAME).overrides, "segment.bytes": "1000000"})
        await broker.create_partitions(NAME, 4)
        live = await world.queues.live(NAME)
        for _ in range(100):  # of as many turns as it takes
            await settle()
        assert [partition.index for partition in live.partitions] == [0, 1, 2, 3]
        assert not failed.done(), failed.exception()
        failed.cancel()

    run(main())


def test_purge_drops_what_is_there_in_any_state() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a", b"b")
        await world.send(b"c", delay_ms=1000)
        (leased,) = await world.receive(1)
        assert await world.queues.purge(NAME) == 3
        await world.send(b"d")
        assert await world.bodies() == [b"d"]
        (outcome,) = await world.acknowledge(leased)
        assert isinstance(outcome, StaleReceiptError)

    run(main())


def test_whoever_waits_for_an_answer_of_a_deleted_queue_is_told() -> None:
    async def main() -> None:
        threads = HeldThreads()
        node = Node(sync_threads=threads)
        starting = asyncio.ensure_future(QueueWorld(node).start())
        while not starting.done():
            await settle()
            threads.release()
        world = await starting
        send = world.queues.send(NAME, [Message(b"a")])
        await settle()
        assert not send.done()
        deleting = asyncio.ensure_future(world.queues.delete(NAME))
        while not deleting.done():
            await settle()
            threads.release()
        assert isinstance((await send)[0], UnknownQueueError | UnknownTopicError | Sent)

    run(main())


def test_a_deleted_queue_is_gone_with_its_messages_and_its_waiting_consumers_are_told() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        await world.receive()
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=20_000)
        await world.queues.delete(NAME)
        assert isinstance(waiting.promise.exception(), UnknownQueueError)
        await world.queues.create(NAME)
        assert await world.bodies() == []

    run(main())


def test_messages_of_a_queue_are_stored_in_the_codec_of_its_topic() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        overrides = world.node.broker.topic(NAME).overrides
        await world.node.broker.alter_config(NAME, {**overrides, "compression.type": "zstd"})
        sent = await world.send(*[b"x" * 500] * 20)
        (stored,) = await world.node.fetched(fetch(sent[0].offset, topic=NAME))
        assert read_header(stored.buffers[0]).codec == 4
        await world.node.restart()
        messages = await world.receive(20)
        assert bodies_of(messages) == [b"x" * 500] * 20
        assert await world.acknowledge(*messages) == [None] * 20

    run(main())
