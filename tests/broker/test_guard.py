"""One failure policy: an error that no rule expects ends its partition's term, answers its callers and nothing else."""

import ast
import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.broker.group.world import GroupNode, join
from tests.broker.queue.damaged import LOST, key_of
from tests.broker.queue.world import NAME, QueueWorld, bodies_of

import headrace.broker
from headrace.broker.partition import Partition
from headrace.broker.promise import Promise
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Extension, Release
from headrace.model.errors import CoordinatorUnavailableError, PartitionOfflineError
from headrace.model.ids import Offset
from headrace.model.message import Message
from headrace.model.names import GROUPS_TOPIC
from headrace.testing.clock import settle

from .node import Node, batch, run

REASON = "planted"


def strike(*_: Any, **__: Any) -> Any:
    raise RuntimeError(REASON)


def check_offline(node: Node, partition: Partition, *, is_first: bool = True) -> None:
    """It says why, and nothing else of the node is offline."""
    assert REASON in repr(partition.log.broken)
    with pytest.raises(PartitionOfflineError, match=REASON):
        partition.log.check_usable()
    assert [one.id for one in node.broker.partitions() if one.log.broken is not None] == [partition.id]
    assert node.logs.unexpected_count == 1
    check_serves(node)


def check_serves(node: Node) -> None:
    """No task died of it that the node would not outlive."""
    assert node.logs._failure is not None
    assert not node.logs._failure.done()
    assert not node.queues._tasks._failure.done()


def once(call: Callable[..., Any]) -> Callable[..., Any]:
    """Fail the first time."""
    calls = [strike]
    return lambda *args: (calls.pop() if calls else call)(*args)


def tracebacks(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.exc_info and REASON in repr(record.exc_info[1])]


def test_a_listener_that_fails_harms_no_other_promise_of_the_same_commit(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        node = await Node().start()
        struck, spared = await node.make("struck"), await node.make("spared")
        first, second, third = (struck.append(batch(b"%d" % number)) for number in range(3))
        beside = spared.append(batch(b"beside"))
        first.then(strike)
        second.then(strike)
        assert (await third).base_offset == 2
        assert (await beside).base_offset == 0
        await settle()
        with pytest.raises(PartitionOfflineError, match=REASON):
            node.broker.partition("struck", 0)
        assert node.logs.unexpected_count == 2
        assert len(tracebacks(caplog)) == 1
        assert (await spared.append(batch(b"goes on"))).base_offset == 1
        check_serves(node)
        await node.kill()
        assert await node.values("struck") == [b"0", b"1", b"2"]
        node.abandon()

    run(main())


def test_a_listener_that_fails_where_a_promise_is_kept_at_once_ends_that_partition_alone() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make("t", headrace_durability="memory")
        first, second = partition.append(batch(b"0")), partition.append(batch(b"1"))
        first.then(strike)
        assert (await second).base_offset == 1
        await settle()
        check_offline(node, partition)
        node.abandon()

    run(main())


def test_a_listener_that_fails_outside_any_partition_is_reported_and_harms_nobody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    promise: Promise[int] = Promise()
    promise.then(strike)
    promise.keep(1)
    broken: Promise[int] = Promise()
    broken.then(strike)
    broken.fail(ValueError("no"))
    assert promise.result() == 1
    assert len(tracebacks(caplog)) == 2


STEPS = ["contribute", "contributed", "written", "admit", "advanced"]


@pytest.mark.parametrize("step", STEPS)
def test_every_sender_of_a_turn_is_answered_when_a_subscriber_fails(step: str, monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        other = await world.node.make("other")
        partition = world.node.broker.partition(NAME, 0)
        subscriber = partition._subscriber
        monkeypatch.setattr(subscriber, step, once(getattr(subscriber, step)))
        sends = [world.queues.send_one(NAME, Message(b"%d" % number)) for number in range(2)]
        produced = [partition.append(batch(b"%d" % number)) for number in range(2)]
        await settle()
        monkeypatch.undo()
        await settle()
        for promise in (*sends, *produced):
            assert promise.done(), step
            assert isinstance(promise.exception(), PartitionOfflineError)
            if step in ("contributed", "written", "advanced"):
                assert "may have been stored" in str(promise.exception())
        check_offline(world.node, partition)
        assert (await other.append(batch(b"goes on"))).base_offset == 0
        receive = world.queues.receive(NAME, count_max=1, wait_ms=1000)
        with pytest.raises(PartitionOfflineError, match=REASON):
            await receive.promise
        world.node.abandon()

    run(main())


def test_every_waiter_is_answered_when_a_subscriber_fails(monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a", b"b")
        first, second = await world.receive(2)
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=60_000)
        monkeypatch.setattr(world.node.broker.partition(NAME, 0)._subscriber, "contributed", strike)
        acknowledged = [world.queues.acknowledge(NAME, [one.receipt]) for one in (first, second)]
        await settle()
        for promise in acknowledged:
            (outcome,) = promise.result()
            assert isinstance(outcome, PartitionOfflineError)
            assert "may have been stored" in str(outcome)
        with pytest.raises(PartitionOfflineError, match=REASON):
            waiting.promise.result()
        world.node.abandon()

    run(main())


def test_a_snapshot_that_fails_ends_the_term_and_not_the_node(monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        partition = world.node.broker.partition(NAME, 0)
        await world.send(b"a")
        monkeypatch.setattr(partition._subscriber, "snapshot", strike)
        assert not await world.node.logs.checkpoint(partition.log)
        check_offline(world.node, partition)
        monkeypatch.undo()
        await world.node.kill()
        assert await world.bodies() == [b"a"]
        world.node.abandon()

    run(main())


def test_maintenance_that_fails_ends_the_term_of_its_partition_and_looks_after_the_others(monkeypatch: Any) -> None:
    async def main() -> None:
        node = await Node().start()
        struck, spared = await node.make("struck"), await node.make("spared")
        monkeypatch.setattr(struck.log, "open_limit", strike)
        await node.clock.elapse(10 * node.log_config.maintenance_interval_ms)
        check_offline(node, struck)
        assert spared.log.broken is None
        node.abandon()

    run(main())


def test_a_queues_timer_that_fails_ends_the_term_and_no_message_is_in_no_state(monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(lease_ms=1000)
        other = await world.node.make("other")
        partition = world.node.broker.partition(NAME, 0)
        await world.send(b"a")
        await world.receive(1)
        monkeypatch.setattr(partition._subscriber.fold, "advance", strike)  # type: ignore[union-attr]
        await world.node.clock.elapse(2000)
        check_offline(world.node, partition)
        assert (await other.append(batch(b"goes on"))).base_offset == 0
        monkeypatch.undo()
        await world.node.kill()
        await world.node.clock.elapse(2000)
        assert await world.bodies() == [b"a"]
        world.node.abandon()

    run(main())


def test_a_timer_of_a_groups_shard_that_fails_ends_its_term_and_answers_its_members(monkeypatch: Any) -> None:
    async def main() -> None:
        node = await GroupNode().start()
        joined = await node.become_stable()
        shard = await node.groups.shard("g")
        waiting = asyncio.ensure_future(node.groups.join(join(group="g")))
        await settle()
        assert not waiting.done()
        monkeypatch.setattr(shard.machines["g"], "tick", strike)
        await node.clock.elapse(60_000)
        assert joined.member_id
        with pytest.raises(CoordinatorUnavailableError):
            await waiting
        offline = [one for one in node.broker.partitions() if one.log.broken is not None]
        assert [one.log.id.topic_id for one in offline] == [node.broker.topic(GROUPS_TOPIC).id]
        assert node.logs.unexpected_count == 1
        assert not node._expiry.done()
        node.abandon()

    run(main())


HOUSEKEEPING: dict[str, Callable[[PartitionQueue], tuple[Any, str]]] = {
    "the keeper": lambda queue: (queue, "follow_start"),
    "a ledger's timer": lambda queue: (queue._ledger, "want_turn"),
}


@pytest.mark.parametrize("what", HOUSEKEEPING)
def test_what_is_done_behind_a_queue_ends_its_term_and_not_the_node(what: str, monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        partition = world.node.broker.partition(NAME, LOST)
        for index in range(3):
            await world.send(b"%d" % index, key=key_of(index))
        queue = partition._subscriber
        assert isinstance(queue, PartitionQueue)
        monkeypatch.setattr(*HOUSEKEEPING[what](queue), strike)
        await world.receive(3)
        await world.node.clock.elapse(60_000)
        check_offline(world.node, partition)
        failure = asyncio.ensure_future(world.queues.wait_failed())
        await settle()
        assert not failure.done()
        failure.cancel()
        assert len(bodies_of(await world.receive(3))) == 2
        world.node.abandon()

    run(main())


CALLS: dict[str, tuple[str, Callable[[QueueWorld, str], Any]]] = {
    "acknowledge": ("acknowledge", lambda world, receipt: world.queues.acknowledge(NAME, [receipt])),
    "extend": ("extend", lambda world, receipt: world.queues.extend(NAME, [Extension(receipt, 1000)])),
    "release": ("release", lambda world, receipt: world.queues.release(NAME, [Release(receipt, 0)])),
    "receive": ("lease", lambda world, _: world.queues.receive(NAME, count_max=1, wait_ms=60_000).promise),
    "send": ("find_duplicate", lambda world, _: world.queues.send_one(NAME, Message(b"c", deduplication_id="c"))),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_in_which_the_queues_state_fails_is_answered_and_ends_the_term(call: str, monkeypatch: Any) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a", b"b")
        (message,) = await world.receive(1)
        partition = world.node.broker.partition(NAME, 0)
        struck, begin = CALLS[call]
        monkeypatch.setattr(partition._subscriber.fold, struck, strike)  # type: ignore[union-attr]
        promise = begin(world, message.receipt)
        await settle()
        assert promise.done()
        outcome = promise.exception() or promise.result()[0]
        assert isinstance(outcome, PartitionOfflineError)
        check_offline(world.node, partition)
        world.node.abandon()

    run(main())


STORE_CALLS = ["plan_flush", "write_tail"]


@pytest.mark.parametrize("step", STORE_CALLS)
def test_a_flush_that_fails_unexpectedly_ends_the_term_of_its_partition_alone(step: str, monkeypatch: Any) -> None:
    async def main() -> None:
        node = await Node().start()
        struck, spared = await node.make("struck"), await node.make("spared")
        monkeypatch.setattr(struck.log, step, strike)
        large = batch(b"x" * 3000)  # above what goes through the journal
        promises = [struck.append(large), spared.append(batch(b"x" * 3000))]
        await settle()
        assert isinstance(promises[0].exception(), PartitionOfflineError)
        assert promises[1].result().base_offset == 0
        check_offline(node, struck)
        node.abandon()

    run(main())


def test_a_snapshot_that_cannot_be_written_for_an_unexpected_reason_ends_the_term_of_its_partition(
    monkeypatch: Any,
) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        partition = world.node.broker.partition(NAME, 0)
        await world.send(b"a")
        monkeypatch.setattr("headrace.log.snapshots.save", strike)
        assert not await world.node.logs.checkpoint(partition.log)
        check_offline(world.node, partition)
        monkeypatch.undo()
        await world.node.broker.reopen(NAME, 0)
        assert await world.bodies() == [b"a"]
        world.node.abandon()

    run(main())


BROKEN: dict[str, Callable[[Partition], None]] = {
    "a committed offset behind the end": lambda partition: setattr(
        partition.progress, "committed", Offset(partition.end_offset + 1000)
    ),
    "a durable offset behind the end": lambda partition: setattr(
        partition.progress, "durable", Offset(partition.end_offset + 1000)
    ),
    "a message that is not accounted for": lambda partition: setattr(
        partition._subscriber.fold.counts,  # type: ignore[union-attr]
        "sent",
        7,
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_invariant_ends_the_term_within_some_hundred_turns(what: str) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        node = world.node
        await world.send(b"a")
        partition = node.broker.partition(NAME, 0)
        BROKEN[what](partition)
        for _ in range(300):
            promise = world.queues.send_one(NAME, Message(b"b"))
            await settle()
            if promise.exception() is not None:
                break
        assert isinstance(partition.log.broken, AssertionError)
        assert node.logs.unexpected_count == 1
        await node.broker.reopen(NAME, 0)
        assert b"a" in await world.bodies(100)
        node.abandon()

    run(main())


# Scheduling that is no partition's own, and so does not go through its guard.
SCHEDULES: dict[str, str] = {
    "guard.py": "the guard itself",
    "promise.py": "an error of a listener that no guard was running",
    "fetch.py": "the deadline of a fetch, which may read several partitions",
    "queue/live_queue.py": "the deadline of a receive, which waits for all of a queue's partitions",
    "queue/mover.py": "how long an answer waits for dead letters",
    "transaction/coordinator.py": "how long an answer waits for the end of a transaction",
}
SCHEDULING = {"call_soon", "call_later", "call_at", "call_soon_threadsafe"}
# What a log calls of its owner.
HOOKS = {"listener", "meanwhile"}  # the store guards the others
BROKER = Path(headrace.broker.__file__ or "").parent


def _scheduled(tree: ast.AST) -> list[str]:
    """What is scheduled otherwise than by a guard, or put where the log calls it."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in SCHEDULING:
            owner = node.value
            is_guarded = isinstance(owner, ast.Attribute | ast.Name) and ast.unparse(owner).endswith("guard")
            if not is_guarded:
                found.append(ast.unparse(node))
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr in HOOKS and "guard" not in ast.unparse(node):
                    found.append(ast.unparse(node))
    return found


def test_nothing_of_a_partition_is_scheduled_past_its_guard() -> None:
    unguarded = {
        str(path.relative_to(BROKER)): found
        for path in sorted(BROKER.rglob("*.py"))
        if (found := _scheduled(ast.parse(path.read_text())))
    }
    assert set(unguarded) == set(SCHEDULES), unguarded
