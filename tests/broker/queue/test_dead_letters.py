"""Dead letters and redrives; also a crash at every disk call between a copy and the end at its source (row 34)."""

import asyncio
import random
from typing import Any

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

from headrace.broker.queue.port import MessageState, RedriveFilter, RedriveState, Rejection, Release
from headrace.model.errors import (
    DiskFullError,
    InvalidConfigError,
    InvalidRequestError,
    RedriveRunningError,
    UnknownQueueError,
    UnknownRedriveError,
)
from headrace.model.message import MOVE_HEADER, Message
from headrace.model.queue import Guarantee, Overflow, QueueConfig
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.threads import HeldThreads

DEAD = "orders-dead"


async def reborn(world: QueueWorld, disk: SimulatedDisk, chooser: random.Random) -> QueueWorld:
    disk = disk.copy()
    if chooser.random() < 0.7:
        disk.crash(chooser)
    node = Node(disk=disk)
    node.store = world.node.store
    node.clock.advance(world.node.clock.monotonic_ms() + 1000)
    await node.start()
    return QueueWorld(node)


async def released(threads: HeldThreads, task: "asyncio.Task[Any]") -> Any:
    """What a task returns whose calls are let through."""
    while not task.done() or len(threads):
        threads.release()
        await settle()
    return task.result()


async def kill_many(world: QueueWorld, bodies: list[bytes]) -> None:
    await world.send(*bodies)
    for message in await world.receive(100):
        await world.queues.reject(NAME, [Rejection(message.receipt, f"because of {message.body.decode()}")])
    await world.node.clock.elapse(1000)


def test_a_crash_at_any_moment_of_a_move_neither_loses_nor_doubles_a_dead_letter() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=1)
        await world.queues.create(DEAD, QueueConfig(max_deliveries=None))
        await world.send(b"a", b"b")
        moments: list[SimulatedDisk] = []
        disk = world.node.disk
        await world.receive(2, lease_ms=1000)
        disk.on_call = lambda *_: moments.append(disk.copy())
        await world.node.clock.elapse(1500)
        disk.on_call = None
        assert len(moments) > 3
        assert world.counts(DEAD).visible == 2
        for at, moment in enumerate([*moments, disk.copy()]):
            heir = await reborn(world, moment, random.Random(at))
            await heir.node.clock.elapse(40_000)
            # A lease that the log had not got yet is given again, and the message dies after that.
            await heir.receive(10, lease_ms=1000)
            await heir.node.clock.elapse(40_000)
            assert sorted(await heir.bodies(queue=DEAD)) == [b"a", b"b"], f"after a crash at call {at}"
            assert heir.counts().dead_lettered == 2
            heir.node.abandon()

    run(main())


@pytest.mark.parametrize("wait_ms", [0, 5000])
@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"guarantee": Guarantee.EXACTLY_ONCE}])
def test_a_receive_is_answered_once_the_message_that_it_found_dying_is_in_the_dead_letter_queue(
    options: dict[str, Any], wait_ms: int
) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=2, dead_letter=DEAD, **options)
        await world.queues.create(DEAD, QueueConfig(max_deliveries=None, ordered=options.get("ordered", False)))
        for later in (b"a", b"b"):  # which was not there at the first delivery of the other, and so goes behind it
            await world.send(later, key=b"k")
            assert bodies_of(await world.receive(1, lease_ms=0)) == [b"a"]
        letters: list[int] = []
        receive = world.queues.receive(NAME, count_max=10, lease_ms=60_000, wait_ms=wait_ms)
        world.queues.after_moves(NAME, receive.promise).then(lambda _: letters.append(world.counts(DEAD).visible))
        await world.node.clock.elapse(wait_ms + 500)
        assert letters == [1]

    run(main())


def test_an_answer_does_not_wait_for_messages_that_die_after_it() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=2, max_deliveries=1, dead_letter=DEAD)
        await world.queues.create(DEAD, QueueConfig(max_deliveries=None))
        mover, answered = world.queues._mover, []
        working, moves = mover._send, 0

        async def send(*given: Any) -> Any:
            nonlocal moves
            moves += 1
            if moves < 20:  # while one is moved, the next one dies
                await world.send(b"more")
                await world.receive(1, lease_ms=0)
            return await working(*given)

        mover._send = send
        await world.send(b"first")
        await world.receive(1, lease_ms=0)
        promise = world.queues.receive(NAME, count_max=1).promise
        world.queues.after_moves(NAME, promise).then(lambda _: answered.append(moves))
        await world.node.clock.elapse(900)
        assert moves == 20
        assert 1 <= answered[0] < 5

    run(main())


def test_an_answer_does_not_wait_for_a_dead_letter_that_cannot_be_moved() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=1, dead_letter=DEAD)
        await world.queues.create(DEAD, QueueConfig(max_deliveries=None))
        mover = world.queues._mover
        hanging, working = asyncio.Event(), mover._send

        async def send(*_: Any) -> list[Any]:
            await hanging.wait()
            return [DiskFullError("full")]

        mover._send = send
        await world.send(b"a")
        await world.receive(1, lease_ms=0)
        answered: list[int] = []

        def receive() -> None:
            promise = world.queues.receive(NAME, count_max=1).promise
            started_ms = world.node.clock.monotonic_ms()
            told = world.queues.after_moves(NAME, promise)
            told.then(lambda _: answered.append(world.node.clock.monotonic_ms() - started_ms))

        receive()
        await world.node.clock.elapse(3000)
        assert answered == [1000], "a move that hangs is waited for no longer than that"
        receive()
        assert answered == [1000, 0], "and by one receive alone"
        hanging.set()
        await settle()
        receive()
        assert answered == [1000, 0, 0], "nothing waits while a move that failed is tried again"
        mover._send = working
        await world.node.clock.elapse(1000)
        assert world.counts(DEAD).visible == 1
        await world.send(b"b")
        await world.receive(1, lease_ms=0)
        receive()
        assert answered == [1000, 0, 0]
        await world.node.clock.elapse(500)
        assert len(answered) == 4
        assert world.counts(DEAD).visible == 2, "a move that works is waited for again"

    run(main())


@pytest.mark.parametrize("options", [{}, {"ordered": True}, {"guarantee": Guarantee.EXACTLY_ONCE}])
def test_a_queue_may_be_its_own_dead_letter_queue(options: dict[str, Any]) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=2, dead_letter=NAME, **options)
        for later in (b"a", b"b"):  # which was not there at the first delivery of the other, and so goes behind it
            await world.send(later, key=b"k")
            for message in await world.receive(1, lease_ms=0):
                assert message.body == b"a"
            await world.node.clock.elapse(1)
        await world.node.clock.elapse(1000)
        assert (world.counts().visible, world.counts().dead_lettered) == (2, 1)
        # It is at the end of the queue now, and begins again.
        assert await world.bodies() == [b"b", b"a"]
        await world.node.restart()
        assert world.counts().visible + world.counts().leased == 2

    run(main())


@pytest.mark.parametrize("overflow", [Overflow.REJECT, Overflow.DROP_OLDEST])
def test_a_full_queue_takes_its_own_dead_letters(overflow: Overflow) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=1, dead_letter=NAME, messages_max=1, overflow=overflow)
        await world.send(b"a")
        await world.receive(lease_ms=0)
        await world.node.clock.elapse(5000)
        (again,) = await world.receive()
        assert again.body == b"a"
        assert await world.acknowledge(again) == [None]

    run(main())


def test_a_topic_is_made_a_queue_that_is_its_own_dead_letter_queue() -> None:
    async def main() -> None:
        world = QueueWorld(Node())
        await world.node.start()
        await world.node.broker.create_topic(NAME, partition_count=1)
        with pytest.raises(InvalidConfigError, match="a topic and not a queue"):
            await world.queues.create("other", QueueConfig(dead_letter=NAME))
        await world.queues.create(NAME, QueueConfig(dead_letter=NAME))
        with pytest.raises(InvalidConfigError, match="its own dead-letter queue"):
            await world.queues.update(NAME, QueueConfig(dead_letter=NAME, dead_letter_expired=True))

    run(main())


def test_a_move_that_is_made_again_after_partitions_were_added_stores_no_second_letter() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        letters = [
            Message(b"%d" % at, b"%d" % at if at % 2 else None, ((MOVE_HEADER, b"source/0/%d" % at),))
            for at in range(8)
        ]
        sending = (await world.queues.live(NAME)).sending
        first = await sending.send_moved(letters)
        await world.node.broker.create_partitions(NAME, 5)
        await settle()
        again = await sending.send_moved(letters)
        assert [(one.partition, one.offset) for one in again] == [(one.partition, one.offset) for one in first]
        assert world.counts().visible == 8

    run(main())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_dead_lettered_message_says_what_its_last_attempt_failed_with_and_where_it_came_from(is_killed: bool) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=2)
        first, _ = await world.send(b"a", b"b")
        for error in ("ValueError: first", "KeyError: last"):
            a, _ = sorted(await world.receive(lease_ms=1000), key=lambda message: message.body)
            if error.endswith("last"):
                # Nothing is copied before the restart.
                await world.queues.update(NAME, QueueConfig(max_deliveries=2, dead_letter="later"))
                await world.node.broker.create_topic("later", partition_count=1)
            assert await world.queues.release(NAME, [Release(a.receipt, error=error)]) == [None]
            await world.node.clock.elapse(1000)
        known = await world.queues.explain(NAME, id=first.id)
        assert (known.state, "failed with KeyError: last" in known.text) == (MessageState.DYING, True)
        await (world.node.kill() if is_killed else world.node.restart())
        await world.queues.create("later", QueueConfig(max_deliveries=None))
        await world.node.clock.elapse(60_000)
        page = await world.queues.browse("later", count_max=10)
        headers = {message.body: dict(message.headers) for message in page.messages}
        assert headers[b"a"]["headrace-dead-error"] == b"KeyError: last"
        assert headers[b"a"]["headrace-dead-reason"] == b"delivered 2 times without an acknowledgement"
        assert headers[b"a"]["headrace-dead-source"] == NAME.encode()
        assert "headrace-dead-error" not in headers[b"b"], "its lease was over, and nobody said why"

    run(main())


def test_a_redrive_takes_what_its_filter_says_and_leaves_the_rest() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"a", b"b", b"c"])
        await world.queues.redrive(DEAD, filter=RedriveFilter(reason="of b"))
        await world.node.clock.elapse(1000)
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.skipped, redrive.total) == (RedriveState.COMPLETED, 1, 2, 3)
        assert await world.bodies() == [b"b"]
        assert sorted(await world.bodies(queue=DEAD)) == [b"a", b"c"]

    run(main())


def test_a_redrive_that_leaves_letters_with_nowhere_to_go_fails_and_moves_the_others() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.create("gone", QueueConfig(dead_letter=DEAD))
        await world.send(b"orphan", queue="gone")
        (message,) = await world.receive(queue="gone")
        await world.queues.reject("gone", [Rejection(message.receipt, "no good")])
        await kill_many(world, [b"a", b"b"])
        await world.queues.delete("gone")
        await world.queues.redrive(DEAD)
        await world.node.clock.elapse(1000)
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.skipped) == (RedriveState.FAILED, 2, 1)
        assert (redrive.failure_code, "no queue gone" in redrive.failure) == ("unknown_queue", True)
        assert sorted(await world.bodies()) == [b"a", b"b"]
        await world.send(b"direct", queue=DEAD)
        await world.queues.redrive(DEAD)
        await world.node.clock.elapse(1000)
        redrive, _ = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.failure_code) == (RedriveState.FAILED, 0, "no_source")
        assert redrive.failure.startswith("1 stay: they do not say which queue they came from")
        await world.queues.redrive(DEAD, filter=RedriveFilter(reason="of a"))
        await world.node.clock.elapse(1000)
        assert world.queues.redrives(DEAD)[0].state is RedriveState.COMPLETED, "what was not asked for may stay"
        await world.queues.redrive(DEAD, target=NAME)
        await world.node.clock.elapse(1000)
        await world.node.restart()
        redrives = world.queues.redrives(DEAD)
        assert [one.failure_code for one in redrives] == [None, None, "no_source", "unknown_queue"]
        assert (redrives[0].state, redrives[0].moved) == (RedriveState.COMPLETED, 2)

    run(main())


def test_a_redrive_by_places_takes_exactly_those_and_leaves_what_is_leased() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"a", b"b", b"c", b"d"])
        (leased,) = await world.receive(1, queue=DEAD, lease_ms=60_000)
        assert leased.body == b"a"
        page = await world.queues.browse(DEAD, count_max=10)
        offsets = {message.body: message.offset for message in page.messages}
        places = (*(f"0-{offsets[body]}" for body in (b"d", b"a", b"b")), "0-999999", "7-0")
        await world.queues.redrive(DEAD, filter=RedriveFilter(places=places))
        await world.node.clock.elapse(1000)
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.total) == (RedriveState.COMPLETED, 2, 4)
        assert sorted(await world.bodies()) == [b"b", b"d"]
        left = await world.queues.browse(DEAD, count_max=10)
        assert sorted(message.body for message in left.messages) == [b"a", b"c"]

    run(main())


def test_a_redrive_by_places_goes_on_after_a_restart_with_those_places() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"%d" % number for number in range(30)])
        page = await world.queues.browse(DEAD, count_max=100)
        places = tuple(f"0-{message.offset}" for message in page.messages if int(message.body) % 2)
        await world.queues.redrive(DEAD, filter=RedriveFilter(places=places), rate_per_second=10)
        await world.node.clock.elapse(800)
        await world.node.restart()
        assert 0 < world.counts().visible < 15
        await world.node.clock.elapse(10_000)
        assert sorted(await world.bodies(100), key=int) == [b"%d" % number for number in range(1, 30, 2)]
        assert world.counts(DEAD).visible == 15

    run(main())


@pytest.mark.parametrize("guarantee", list(Guarantee))
@pytest.mark.parametrize("ordered", [False, True])
def test_a_queue_that_is_made_for_dead_letters_is_of_the_kind_of_their_source(
    ordered: bool, guarantee: Guarantee
) -> None:
    async def main() -> None:
        world = QueueWorld(Node())
        await world.start(partitions=2, ordered=ordered, guarantee=guarantee, dead_letter_expired=True)
        await world.send(b"a", key=b"k", ttl_ms=10)
        await world.node.clock.elapse(1000)
        made = world.queues.describe(DEAD)
        is_exact = ordered and guarantee is Guarantee.EXACTLY_ONCE
        assert made.queue.config.ordered == ordered
        assert made.queue.config.guarantee is (Guarantee.EXACTLY_ONCE if is_exact else Guarantee.AT_LEAST_ONCE)
        assert made.partition_count == (2 if ordered else 1)
        assert await world.bodies(queue=DEAD) == [b"a"]

    run(main())


async def ordered_letters(keys: bytes) -> tuple[QueueWorld, list[str]]:
    """A message for each letter, which is its key, in an ordered queue of dead letters; and their places."""
    world = await QueueWorld(Node()).start(ordered=True, dead_letter=DEAD)
    await world.queues.create(DEAD, QueueConfig(ordered=True, max_deliveries=None))
    sent = [(await world.send(b"%c%d" % (key, at), queue=DEAD, key=bytes([key])))[0].id for at, key in enumerate(keys)]
    return world, sent


@pytest.mark.parametrize("rate", [None, 20])
def test_a_redrive_of_an_ordered_queue_takes_all_of_each_key_in_its_order(rate: int | None) -> None:
    async def main() -> None:
        world, _ = await ordered_letters(b"aaabbc")
        await world.queues.redrive(DEAD, target=NAME, rate_per_second=rate)
        await world.node.clock.elapse(10_000)
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.total) == (RedriveState.COMPLETED, 6, 6)
        assert await world.bodies() == [b"a0", b"a1", b"a2", b"b3", b"b4", b"c5"]

    run(main())


def test_a_redrive_moves_every_message_that_the_count_includes_though_none_is_on_disk_yet() -> None:
    async def main() -> None:
        threads = HeldThreads()
        node = Node(sync_threads=threads)
        world = await released(threads, asyncio.create_task(QueueWorld(node).start(dead_letter=DEAD)))
        await released(threads, asyncio.create_task(world.queues.create(DEAD, QueueConfig(max_deliveries=None))))
        sent = world.queues.send(DEAD, [Message(b"%d" % number) for number in range(10)])
        await settle()
        assert (world.counts(DEAD).visible, sent.done()) == (10, False), "they are counted and not on disk"
        redrive = await world.queues.redrive(DEAD, target=NAME)
        assert redrive.total == 10
        while world.queues.redrives(DEAD)[0].state is RedriveState.RUNNING:
            assert threads.release(), "the redrive waits for nothing"
            await settle()
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved) == (RedriveState.COMPLETED, 10)
        assert (world.counts(DEAD).visible, world.counts().visible) == (0, 10)
        node.abandon()

    run(main())


def test_a_redrive_of_an_ordered_queue_leaves_what_would_pass_a_letter_that_somebody_holds() -> None:
    async def main() -> None:
        world, places = await ordered_letters(b"abab")
        (held,) = await world.receive(1, queue=DEAD, lease_ms=60_000)
        assert held.body == b"a0"
        await world.queues.redrive(DEAD, target=NAME)
        await world.node.clock.elapse(1000)
        assert await world.bodies() == [b"b1", b"b3"]
        await world.queues.release(DEAD, [Release(held.receipt)])
        await world.queues.redrive(DEAD, target=NAME, filter=RedriveFilter(places=(places[2],)))
        await world.node.clock.elapse(1000)
        assert await world.bodies() == [b"a2"], "it was asked for by its place"
        assert await world.bodies(queue=DEAD) == [b"a0"]

    run(main())


def test_a_redrive_refuses_what_is_no_place() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"a"])
        with pytest.raises(InvalidRequestError, match="0-1234"):
            await world.queues.redrive(DEAD, filter=RedriveFilter(places=("first",)))
        assert world.counts(DEAD).visible == 1

    run(main())


def test_a_redrive_keeps_its_rate_shows_its_progress_and_can_be_cancelled() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"%d" % number for number in range(50)])
        redrive = await world.queues.redrive(DEAD, rate_per_second=10)
        await world.node.clock.elapse(1999)
        (progress,) = world.queues.redrives(DEAD)
        assert progress.state is RedriveState.RUNNING
        assert 15 <= progress.moved <= 21
        try:
            await world.queues.redrive(DEAD)
            raise AssertionError("two redrives at once")
        except RedriveRunningError:
            pass
        ended = await world.queues.cancel_redrive(DEAD, redrive.id)
        assert ended.state is RedriveState.CANCELLED
        before = world.counts().visible
        await world.node.clock.elapse(5000)
        assert world.counts().visible == before == 50 - world.counts(DEAD).visible
        try:
            await world.queues.cancel_redrive(DEAD, redrive.id)
            raise AssertionError("cancelled twice")
        except UnknownRedriveError:
            pass

    run(main())


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_redrive_goes_on_after_a_restart_and_has_counted_all_that_it_moved(is_killed: bool) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await kill_many(world, [b"%d" % number for number in range(30)])
        await world.queues.redrive(DEAD, rate_per_second=10)
        await world.node.clock.elapse(1500)
        await (world.node.kill() if is_killed else world.node.restart())
        assert 0 < world.counts().visible < 30
        await world.node.clock.elapse(10_000)
        (redrive,) = world.queues.redrives(DEAD)
        assert (redrive.state, redrive.moved, redrive.total) == (RedriveState.COMPLETED, 30, 30)
        found = await world.bodies(100)
        assert sorted(found, key=int) == [b"%d" % number for number in range(30)]
        assert world.counts(DEAD).visible == 0

    run(main())


def test_an_expired_message_becomes_a_dead_letter_where_the_queue_says_so() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(dead_letter_expired=True)
        await world.send(b"short", ttl_ms=1000)
        await world.send(b"long")
        await world.node.clock.elapse(1500)
        await settle()
        assert await world.bodies() == [b"long"]
        (dead,) = await world.receive(queue=DEAD)
        assert dead.body == b"short"
        assert "time to live" in dict(dead.headers)["headrace-dead-reason"].decode()

    run(main())


def test_an_expired_message_is_dropped_and_counted() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(ttl_ms=1000)
        await world.send(b"default")
        await world.send(b"own", ttl_ms=5000)
        await world.node.clock.elapse(1500)
        assert world.counts().expired == 1
        assert await world.bodies() == [b"own"]

    run(main())


def test_a_topic_is_not_made_a_queue_because_dead_letters_would_go_to_its_name() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.node.make(DEAD)
        await kill_many(world, [b"a"])
        with pytest.raises(UnknownQueueError):
            world.queues.find(DEAD)
        assert await world.node.values(DEAD) == []
        (waiting,) = (await world.queues.browse(NAME, state=MessageState.DYING)).messages
        assert waiting.body == b"a", "until there is somewhere to go"
        await world.queues.update(NAME, QueueConfig(dead_letter="graves"))
        await world.node.clock.elapse(60_000)
        assert await world.bodies(queue="graves") == [b"a"]

    run(main())


@pytest.mark.parametrize("name", ["q" * 244, "q" * 245, "q" * 249, "q" * 244 + "-dead"])
def test_a_queue_of_any_name_has_a_valid_one_for_its_dead_letters(name: str) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.create(name, QueueConfig(max_deliveries=1))
        await world.send(b"a", queue=name)
        (message,) = await world.receive(queue=name)
        await world.queues.reject(name, [Rejection(message.receipt, "no good")])
        await world.node.clock.elapse(1000)
        dead = world.queues.find(name).dead_letter_name
        assert dead not in (None, name)
        assert await world.bodies(queue=dead) == [b"a"]

    run(main())


@pytest.mark.parametrize("name", ["clicks", "__consumer_offsets"])
def test_a_topic_that_is_no_queue_is_not_taken_for_dead_letters(name: str) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.node.make("clicks")
        with pytest.raises(InvalidConfigError, match="not a queue"):
            await world.queues.update(NAME, QueueConfig(dead_letter=name))
        with pytest.raises(InvalidConfigError, match="not a queue"):
            await world.queues.create("other", QueueConfig(dead_letter=name))

    run(main())


def test_a_queue_without_a_dead_letter_queue_says_so_to_who_rejects() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(max_deliveries=None)
        await world.send(b"a")
        (message,) = await world.receive()
        (outcome,) = await world.queues.reject(NAME, [Rejection(message.receipt, "bad")])
        assert isinstance(outcome, InvalidRequestError)
        assert "dead_letter" in str(outcome)

    run(main())
