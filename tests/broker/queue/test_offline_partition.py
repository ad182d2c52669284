"""A queue of which one partition is offline: the others go on, and whoever needs that one is told (rows 15 and 17)."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.damaged import (
    COUNT,
    LOST,
    break_partition,
    broken_queue,
    check_says_all,
    damage,
    damaged_queue,
    files_of,
    fill,
    key_of,
    refusal,
)
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

from headrace.broker.queue.port import Extension, MessageState, RedriveState
from headrace.model.errors import HeadraceError, PartitionOfflineError
from headrace.model.message import Message, Received, Sent
from headrace.model.queue import Guarantee, QueueConfig
from headrace.testing.clock import settle

HEALTHY = {0, 2}
WINDOW_MS = QueueConfig().deduplication_window_ms
MAKERS: list[Callable[..., Coroutine[Any, Any, QueueWorld]]] = [damaged_queue, broken_queue]
either_way = pytest.mark.parametrize("make", MAKERS)


def request_of(partition: int) -> str:
    """A request whose home is this partition."""
    return key_of(partition).decode()


@either_way
def test_messages_bound_to_no_partition_are_taken_by_the_healthy_ones(make: Any) -> None:
    async def main() -> None:
        world = await make()
        sent = [(await world.send(b"one %d" % number))[0] for number in range(12)]
        sent += [await world.queues.send_one(NAME, Message(b"single")) for _ in range(12)]
        sent += await world.send(*(b"several %d" % number for number in range(12)))
        assert {one.partition for one in sent} == HEALTHY
        world.node.abandon()

    run(main())


@either_way
def test_a_key_or_an_id_of_the_lost_partition_is_refused_and_never_goes_elsewhere(make: Any) -> None:
    async def main() -> None:
        world = await make(ordered=True)
        lost, there = key_of(LOST), key_of(0)
        outcomes = await world.queues.send(NAME, [Message(b"a", key=there), Message(b"b", key=lost), Message(b"c")])
        assert [isinstance(outcome, Sent) for outcome in outcomes] == [True, False, True]
        check_says_all(outcomes[1])
        check_says_all(await refusal(world.queues.send_one(NAME, Message(b"b", key=lost))))
        (outcome,) = await world.queues.send(NAME, [Message(b"b", deduplication_id=lost.decode())])
        check_says_all(outcome)
        assert b"b" not in await world.bodies(100)
        world.node.abandon()

    run(main())


@either_way
def test_content_that_is_compared_in_the_lost_partition_is_refused(make: Any) -> None:
    async def main() -> None:
        world = await make(deduplication="content")
        outcomes = [
            outcome for number in range(20) for outcome in await world.queues.send(NAME, [Message(b"%d" % number)])
        ]
        assert {outcome.partition for outcome in outcomes if isinstance(outcome, Sent)} == HEALTHY
        refused = [outcome for outcome in outcomes if isinstance(outcome, HeadraceError)]
        assert refused
        check_says_all(refused[0])
        world.node.abandon()

    run(main())


@either_way
def test_healthy_partitions_are_received_from_and_acknowledged(make: Any) -> None:
    async def main() -> None:
        world = await make()
        messages = await world.receive(10)
        assert sorted(bodies_of(messages)) == [b"old 0", b"old 2"]
        assert await world.acknowledge(*messages) == [None, None]
        assert await world.receive(10) == []
        await world.send(b"new")
        (message,) = await world.receive(10)
        extended = await world.queues.extend(NAME, [Extension(message.receipt, 1000)])
        assert extended == [None]
        assert await world.release(message, delay_ms=0) == [None]
        world.node.abandon()

    run(main())


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_no_receive_is_handed_or_failed_by_a_partition_that_broke(guarantee: Guarantee) -> None:
    async def main() -> None:
        world = await broken_queue(guarantee=guarantee)
        got = [body for _ in range(2 * COUNT) for body in await world.bodies(1)]
        assert sorted(got) == [b"old 0", b"old 2"]
        world.node.abandon()

    run(main())


def test_a_receipt_of_the_lost_partition_is_told_so_and_its_neighbours_are_acknowledged() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        await fill(world)
        messages: list[Received] = sorted(await world.receive(10), key=lambda message: message.partition)
        await damage(world, LOST)
        outcomes = await world.acknowledge(*messages)
        assert [outcomes[0], outcomes[2]] == [None, None]
        check_says_all(outcomes[1])
        world.node.abandon()

    run(main())


def test_a_lease_that_cannot_be_committed_keeps_no_other_from_being_handed_out() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT, guarantee=Guarantee.EXACTLY_ONCE)
        await fill(world)
        receive = world.queues.receive(NAME, count_max=10)
        world.node.broker.partition(NAME, LOST).log.fail(OSError("the disk is gone"))
        await settle()
        assert sorted(bodies_of(await receive.promise)) == [b"old 0", b"old 2"]
        world.node.abandon()

    run(main())


@either_way
def test_a_receive_waits_on_the_healthy_partitions(make: Any) -> None:
    async def main() -> None:
        world = await make()
        await world.receive(10)
        receive = world.queues.receive(NAME, count_max=1, wait_ms=1000)
        await settle()
        assert not receive.promise.done()
        await world.send(b"awaited", key=key_of(2))
        assert bodies_of(await receive.promise) == [b"awaited"]
        world.node.abandon()

    run(main())


@either_way
def test_a_description_and_a_page_name_what_is_offline_and_count_the_rest(make: Any) -> None:
    async def main() -> None:
        world = await make()
        description = world.queues.describe(NAME)
        assert (description.partition_count, description.counts.visible) == (COUNT, 2)
        (offline,) = description.offline
        assert offline.partition == LOST
        assert "magic expected" in offline.reason or "disk failed" in offline.reason
        page = await world.queues.browse(NAME, state=MessageState.VISIBLE, count_max=1)
        (first,) = page.messages
        assert (first.partition, [one.partition for one in page.offline]) == (0, [LOST])
        page = await world.queues.browse(NAME, count_max=1, after=page.next)
        assert [message.partition for message in page.messages] == [2]
        assert page.next is None
        world.node.abandon()

    run(main())


@either_way
def test_what_needs_the_lost_partition_is_refused_and_changes_nothing(make: Any) -> None:
    async def main() -> None:
        world = await make(ordered=True)
        check_says_all(await refusal(world.queues.purge(NAME)))
        assert world.counts().visible == 2
        check_says_all(await refusal(world.queues.explain(NAME, id=f"{LOST}-0")))
        check_says_all(await refusal(world.queues.explain(NAME, key=b"who knows where")))
        assert (await world.queues.explain(NAME, key=key_of(0))).partition == 0
        check_says_all(await refusal(world.queues.move_reader(NAME, "new", {0: 1})))
        assert world.queues.readers(NAME) == []
        world.node.abandon()

    run(main())


def test_a_reader_goes_on_in_the_healthy_partitions() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        await fill(world)
        await world.queues.move_reader(NAME, "audit", {})
        await damage(world, LOST)
        assert (await world.queues.move_reader(NAME, "audit", {0: 1})).positions == {0: 1, 2: 0}
        check_says_all(await refusal(world.queues.move_reader(NAME, "audit", {LOST: 1})))
        check_says_all(await refusal(world.queues.remove_reader(NAME, "audit")))
        world.node.abandon()

    run(main())


@either_way
def test_a_queue_is_configured_without_its_lost_partition(make: Any) -> None:
    async def main() -> None:
        world = await make()
        await world.queues.update(NAME, QueueConfig(delay_ms=60_000))
        await world.send(b"later")
        assert world.counts().delayed == 1
        world.node.abandon()

    run(main())


def test_files_of_a_damaged_partition_stay_as_they_are() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        await fill(world)
        files = await damage(world, LOST)
        await world.send(*(b"%d" % number for number in range(50)))
        messages = await world.receive(100)
        await world.acknowledge(*messages)
        await world.node.clock.elapse(120_000)
        await world.node.restart()
        assert files_of(world, LOST) == files
        world.node.abandon()

    run(main())


def test_a_repaired_partition_comes_back_with_what_it_held_and_with_settings_made_meanwhile() -> None:
    async def main() -> None:
        world = await damaged_queue()
        await world.queues.update(NAME, QueueConfig(lease_ms=7_000))
        await world.node.queues.stop()
        await world.node.logs.stop()
        world.node.abandon()
        (segment,) = [path for path in files_of(world, LOST) if path.endswith(".log")]
        world.node.disk.flip_bit(segment, 16 * 8)
        await world.node.start()
        assert world.queues.describe(NAME).offline == []
        messages = {message.body: message for message in await world.receive(10)}
        assert messages[b"old 1"].lease_ms == 7_000
        assert (await world.send(b"new", key=key_of(LOST)))[0].partition == LOST
        world.node.abandon()

    run(main())


def test_a_queue_without_any_healthy_partition_is_refused_at_the_start() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        await fill(world)
        await damage(world, *range(COUNT))
        error = await refusal(world.queues.send_one(NAME, Message(b"a")))
        assert "could not be opened when the node started" in str(error)
        with pytest.raises(PartitionOfflineError, match="magic expected"):
            world.queues.describe(NAME)
        world.node.abandon()

    run(main())


def test_whoever_waits_is_told_when_the_last_partition_breaks() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=COUNT)
        receive = world.queues.receive(NAME, count_max=1, wait_ms=10_000)
        for index in range(COUNT):
            assert not receive.promise.done()
            await break_partition(world, index)
        check = await refusal(receive.promise)
        assert "offline" in str(check)
        assert "offline" in str(await refusal(world.queues.receive(NAME, count_max=1, wait_ms=10).promise))
        world.node.abandon()

    run(main())


@either_way
def test_a_request_that_may_be_stored_in_the_lost_partition_waits_until_no_id_is_remembered(make: Any) -> None:
    async def main() -> None:
        world = await make()
        messages = [Message(b"a"), Message(b"b")]
        outcomes = await world.queues.send(NAME, messages, request_id=request_of(LOST))
        for outcome in outcomes:
            check_says_all(outcome)
        healthy = await world.queues.send(NAME, messages, request_id=request_of(0))
        assert {sent.partition for sent in healthy} == {0}
        await world.node.clock.elapse(WINDOW_MS)
        first = await world.queues.send(NAME, messages, request_id=request_of(LOST))
        again = await world.queues.send(NAME, messages, request_id=request_of(LOST))
        assert {sent.partition for sent in first} == {2}
        assert [sent.offset for sent in first] == [sent.offset for sent in again]
        assert all(sent.is_duplicate for sent in again)
        world.node.abandon()

    run(main())


def test_a_request_that_went_elsewhere_is_known_when_its_home_is_back() -> None:
    async def main() -> None:
        world = await broken_queue()
        messages = [Message(b"a"), Message(b"b")]
        await world.queues.send(NAME, messages, request_id=request_of(LOST))
        await world.node.clock.elapse(WINDOW_MS)
        first = await world.queues.send(NAME, messages, request_id=request_of(LOST))
        await world.node.restart()
        assert world.queues.describe(NAME).offline == []
        again = await world.queues.send(NAME, messages, request_id=request_of(LOST))
        assert [(sent.partition, sent.offset) for sent in again] == [(sent.partition, sent.offset) for sent in first]
        assert all(sent.is_duplicate for sent in again)
        world.node.abandon()

    run(main())


@either_way
def test_a_redrive_moves_what_it_can_and_says_what_it_left(make: Any) -> None:
    async def main() -> None:
        world = await make()
        await world.queues.create("elsewhere")
        await world.queues.redrive(NAME, target="elsewhere")
        await settle()
        await world.node.clock.elapse(1000)
        (redrive,) = world.queues.redrives(NAME)
        assert (redrive.state, redrive.moved) == (RedriveState.FAILED, 2)
        assert f"partition {LOST}" in str(redrive.failure)
        world.node.abandon()

    run(main())
