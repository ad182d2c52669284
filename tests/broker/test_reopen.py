"""A partition that went offline is recovered and served again without a restart of the node."""

import asyncio
import random
from typing import Any

import pytest
from tests.broker.group.world import GroupNode
from tests.broker.queue.damaged import (
    LOST,
    break_partition,
    broken_queue,
    check_says_all,
    damage,
    damaged_queue,
    files_of,
    fill,
    key_of,
)
from tests.broker.queue.world import NAME, QueueWorld, bodies_of
from tests.broker.transaction.world import World

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.broker.partition import Partition
from headrace.folds.transaction.transaction import State
from headrace.log.config import LogConfig
from headrace.model.errors import (
    CoordinatorUnavailableError,
    InvalidRequestError,
    PartitionOfflineError,
    UnknownTopicError,
)
from headrace.model.message import Message
from headrace.model.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle

from .node import Node, batch, produced, run

LARGE = b"x" * 3000  # above what goes through the journal


async def break_disk(node: Node, partition: Partition) -> None:
    """Let a sync of its segment fail, under something that is not acknowledged."""
    node.disk.fail("fdatasync", path_part=partition.log.directory)
    with pytest.raises(PartitionOfflineError):
        await partition.append(batch(LARGE))
    node.disk.heal()


@pytest.mark.parametrize("reason", ["disk", "unexpected"])
def test_a_reopened_topic_has_what_was_acknowledged_and_goes_on_under_a_new_epoch(reason: str) -> None:
    async def main() -> None:
        node = await Node().start()
        old, other = await node.make("t"), await node.make("other")
        for number in range(5):
            await old.append(batch(b"%d" % number))
        if reason == "disk":
            await break_disk(node, old)
        else:
            node.logs.stop_unexpectedly(old.log, RuntimeError("planted"))
        with pytest.raises(PartitionOfflineError):
            node.broker.partition("t", 0)
        new = await node.broker.reopen("t", 0)
        assert new is node.broker.partition("t", 0)
        assert new.epoch == old.epoch + 1
        assert (await node.values("t"))[:5] == [b"0", b"1", b"2", b"3", b"4"]
        await new.append(batch(b"5"))
        await other.append(batch(b"beside"))
        values = await node.values("t")
        await node.kill()
        assert await node.values("t") == values
        await node.restart()
        assert await node.values("t") == values
        assert node.broker.partition("t", 0).log.was_clean
        node.abandon()

    run(main())


def test_what_only_the_journal_holds_is_kept_for_a_broken_partition_and_let_go_once_it_is_reopened() -> None:
    async def main() -> None:
        for seed in range(4):
            node = await Node(log_config=LogConfig(journal_bytes=16 * 1024, disk_reserve_bytes=0)).start()
            struck, other = await node.make("t"), await node.make("other")
            for number in range(4):
                await struck.append(batch(b"only in the journal %d" % number))
            node.disk.fail("fdatasync", path_part=struck.log.directory, times=-1)
            for _ in range(120):  # the journal goes round, and its first file wants this partition synced
                await other.append(batch(b"x" * 900))
            assert struck.log.broken is not None
            kept = [one for one in node.logs._journal._files if one.is_retired]
            assert kept
            with pytest.raises(PartitionOfflineError, match="stays offline"):
                await node.broker.reopen("t", 0)
            assert struck.log.broken is not None
            assert all(one.is_retired for one in kept)
            node.disk.heal()
            new = await node.broker.reopen("t", 0)
            expected = [b"only in the journal %d" % number for number in range(4)]
            assert await node.values("t") == expected
            assert not any(one.is_retired for one in node.logs._journal._files)
            for _ in range(60):
                await other.append(batch(b"x" * 900))
                await new.append(batch(b"y"))
            node.abandon()
            node.disk.crash(random.Random(seed))
            await node.start()
            assert await node.values("t") == expected + [b"y"] * 60
            node.abandon()

    run(main())


def test_a_partition_that_was_refused_after_a_crash_gets_its_journal_records_when_it_is_reopened() -> None:
    async def main() -> None:
        for seed in range(4):
            node = await Node().start()
            struck, other = await node.make("t"), await node.make("other")
            for number in range(5):
                await struck.append(batch(b"only in the journal %d" % number))
                await other.append(batch(b"%d" % number))
            node.disk.fail("fdatasync", path_part=struck.log.directory, times=-1)
            await node.kill()
            with pytest.raises(PartitionOfflineError):
                node.broker.partition("t", 0)
            for _ in range(120):  # the journal goes round, and keeps what was not replayed
                await node.broker.partition("other", 0).append(batch(b"x" * 900))
            node.disk.heal()
            new = await node.broker.reopen("t", 0)
            expected = [b"only in the journal %d" % number for number in range(5)]
            assert await node.values("t") == expected
            await new.append(batch(b"after"))
            node.abandon()
            node.disk.crash(random.Random(seed))
            await node.start()
            assert await node.values("t") == [*expected, b"after"]
            assert len(await node.values("other")) == 125
            node.abandon()

    run(main())


def test_a_reopening_that_fails_leaves_the_journal_records_that_the_next_one_needs() -> None:
    async def main() -> None:
        node = await Node(log_config=LogConfig(journal_bytes=16 * 1024, disk_reserve_bytes=0)).start()
        struck, other = await node.make("t"), await node.make("other")
        for number in range(4):
            await struck.append(batch(b"only in the journal %d" % number))
        # Its records are in the file that the journal is writing to.
        node.disk.fail("fdatasync", path_part=struck.log.directory, times=-1)
        assert not await node.logs.checkpoint(struck.log)
        with pytest.raises(PartitionOfflineError, match="stays offline"):
            await node.broker.reopen("t", 0)
        for path in [path for path in node.disk.files() if path.startswith(struck.log.directory) and ".log" in path]:
            node.disk.overwrite(path, b"")  # what the failed sync left in the page cache is not on the device
        for _ in range(120):
            await other.append(batch(b"x" * 900))
        node.disk.heal()
        await node.broker.reopen("t", 0)
        assert await node.values("t") == [b"only in the journal %d" % number for number in range(4)]
        node.abandon()

    run(main())


def test_old_journal_records_are_not_replayed_over_what_is_appended_after_a_reopening() -> None:
    async def main() -> None:
        for seed in range(8):
            node = await Node().start()
            partition = await node.make("t")
            await partition.append(batch(b"kept"))
            # A write of the journal fails, and the segment too: nobody is told that this is stored.
            node.disk.fail("fdatasync", path_part=".journal")
            node.disk.fail("fdatasync", path_part=partition.log.directory)
            with pytest.raises(PartitionOfflineError, match="may have been stored"):
                await partition.append(batch(b"doubtful"))
            node.disk.heal()
            new = await node.broker.reopen("t", 0)
            values = await node.values("t")
            assert values in ([b"kept"], [b"kept", b"doubtful"])
            await new.append(batch(b"after"))
            node.abandon()
            node.disk.crash(random.Random(seed))
            await node.start()
            assert await node.values("t") == [*values, b"after"]
            node.abandon()

    run(main())


def test_the_power_may_fail_at_any_call_of_a_reopening() -> None:
    async def broken() -> Node:
        node = await Node().start()
        partition = await node.make("t")
        for number in range(4):
            await partition.append(batch(b"%d" % number))
        await partition.append(batch(LARGE))
        await partition.append(batch(b"5"))
        await break_disk(node, partition)
        return node

    async def crash_at(call: int) -> bool:
        node = await broken()
        left = call
        images: list[Any] = []

        def strike(operation: str, path: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                node.disk.on_call = None
                images.append(node.disk.copy())

        node.disk.on_call = strike
        await node.broker.reopen("t", 0)
        node.abandon()
        if not images:
            return False
        node.disk = images[0]
        node.disk.crash(random.Random(call))
        await node.start()
        expected = [b"0", b"1", b"2", b"3", LARGE, b"5"]
        assert (await node.values("t"))[:6] == expected
        node.abandon()
        return True

    async def main() -> None:
        call = 1
        while await crash_at(call):
            call += 1
        assert call > 10

    run(main())


def test_any_call_of_the_disk_may_fail_in_a_reopening_which_is_then_tried_again() -> None:
    async def main() -> None:
        operations = ["open", "pread", "pwritev", "fdatasync", "truncate", "rename", "sync_directory", "list_directory"]
        refused = 0
        for operation in operations:
            for nth in range(1, 6):
                node = await Node().start()
                partition = await node.make("t")
                for number in range(3):
                    await partition.append(batch(b"%d" % number))
                await break_disk(node, partition)
                node.disk.fail(operation, nth=nth)  # type: ignore[arg-type]
                outcome = (await asyncio.gather(node.broker.reopen("t", 0), return_exceptions=True))[0]
                if not isinstance(outcome, Partition):
                    refused += 1
                    assert isinstance(outcome, PartitionOfflineError)
                    assert "t-0 stays offline" in str(outcome)
                    with pytest.raises(PartitionOfflineError):
                        node.broker.partition("t", 0)
                    node.disk.heal()
                    await node.broker.reopen("t", 0)
                node.disk.heal()
                assert (await node.values("t"))[:3] == [b"0", b"1", b"2"]
                node.abandon()
        assert refused > 10

    run(main())


def test_an_idempotent_producer_goes_on_after_a_reopening_and_stores_nothing_twice() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make("t")
        await partition.append(produced(b"a", sequence=0))
        node.logs.stop_unexpectedly(partition.log, RuntimeError("planted"))
        new = await node.broker.reopen("t", 0)
        assert (await new.append(produced(b"a", sequence=0))).base_offset == 0
        await new.append(produced(b"b", sequence=1))
        assert await node.values("t") == [b"a", b"b"]
        node.abandon()

    run(main())


def test_what_is_not_offline_is_not_reopened() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make("t")
        with pytest.raises(InvalidRequestError, match="not offline"):
            await node.broker.reopen("t", 0)
        with pytest.raises(UnknownTopicError):
            await node.broker.reopen("t", 1)
        with pytest.raises(UnknownTopicError):
            await node.broker.reopen("nothing", 0)
        node.logs.stop_unexpectedly(partition.log, RuntimeError("planted"))
        both = await asyncio.gather(node.broker.reopen("t", 0), node.broker.reopen("t", 0), return_exceptions=True)
        assert [type(one) for one in both].count(Partition) == 1
        node.abandon()

    run(main())


# Queues.


def test_a_reopened_partition_of_a_queue_takes_part_in_it_again() -> None:
    async def main() -> None:
        world = await broken_queue()
        node = world.node
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=10_000)
        assert len(bodies_of(await world.receive(10))) == 1
        assert len(bodies_of(waiting.promise.result())) == 1
        waiting = world.queues.receive(NAME, count_max=1, wait_ms=10_000)
        await settle()
        assert not waiting.promise.done()
        await node.broker.reopen(NAME, LOST)
        await settle()
        (message,) = waiting.promise.result()
        assert message.body == b"old 1"
        assert world.queues.describe(NAME).offline == []
        assert await world.acknowledge(message) == [None]
        (sent,) = await world.send(b"new", key=key_of(LOST))
        assert sent.partition == LOST
        bodies = await world.bodies(10)
        assert b"new" in bodies
        assert b"old 1" not in bodies
        node.abandon()

    run(main())


def test_a_lease_from_before_a_reopening_is_honoured_if_it_was_on_disk_and_ends_in_its_time() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(lease_ms=5000)
        node = world.node
        await world.send(b"a")
        await world.send(b"b")
        first, second = await world.receive(2)
        await world.acknowledge(first)  # which writes the leases too
        node.logs.stop_unexpectedly(node.broker.partition(NAME, 0).log, RuntimeError("planted"))
        await node.broker.reopen(NAME, 0)
        assert await world.receive(1) == []
        assert await world.acknowledge(second) == [None]
        await node.clock.elapse(10_000)
        assert await world.receive(1) == []
        node.abandon()

    run(main())


def test_a_queue_that_could_not_be_opened_is_reopened_once_its_file_is_repaired() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start(partitions=3)
        await fill(world)
        await damage(world, 0, 1, 2)
        node = world.node
        with pytest.raises(PartitionOfflineError, match="stays offline"):
            await node.broker.reopen(NAME, 0)
        (segment,) = [path for path in files_of(world, 0) if path.endswith(".log")]
        node.disk.flip_bit(segment, 16 * 8)
        await node.broker.reopen(NAME, 0)
        assert await world.bodies() == [b"old 0"]
        assert [one.partition for one in world.queues.describe(NAME).offline] == [1, 2]
        (segment,) = [path for path in files_of(world, 1) if path.endswith(".log")]
        node.disk.flip_bit(segment, 16 * 8)
        await node.broker.reopen(NAME, 1)
        assert await world.bodies() == [b"old 1"]
        node.abandon()

    run(main())


def test_a_damaged_partition_of_a_queue_is_reopened_with_settings_that_were_made_meanwhile() -> None:
    async def main() -> None:
        world = await damaged_queue()
        node = world.node
        await world.queues.update(NAME, QueueConfig(lease_ms=7000))
        (segment,) = [path for path in files_of(world, LOST) if path.endswith(".log")]
        node.disk.flip_bit(segment, 16 * 8)
        await node.broker.reopen(NAME, LOST)
        messages = {message.body: message for message in await world.receive(10)}
        assert messages[b"old 1"].lease_ms == 7000
        node.abandon()

    run(main())


def test_one_id_is_stored_once_also_over_a_reopening() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        node = world.node
        await world.send(b"a", deduplication_id="1")
        await break_disk(node, node.broker.partition(NAME, 0))
        await node.broker.reopen(NAME, 0)
        (again,) = await node.queues.send(NAME, [Message(b"a", deduplication_id="1")])
        assert again.is_duplicate  # type: ignore[union-attr]
        node.abandon()

    run(main())


def test_a_request_whose_home_goes_offline_again_waits_as_long_as_the_first_time() -> None:
    async def main() -> None:
        world = await broken_queue()
        node, messages, id = world.node, [Message(b"a"), Message(b"b")], key_of(LOST).decode()
        for outcome in await world.queues.send(NAME, messages, request_id=id):
            check_says_all(outcome)
        await node.broker.reopen(NAME, LOST)
        await node.clock.elapse(QueueConfig().deduplication_window_ms)
        await break_partition(world, LOST)
        for outcome in await world.queues.send(NAME, messages, request_id=id):
            check_says_all(outcome)
        node.abandon()

    run(main())


# Groups and transactions.


def test_a_reopened_shard_of_groups_has_what_was_committed() -> None:
    async def main() -> None:
        node = await GroupNode().start()
        await node.make("t")
        joined = await node.become_stable()
        await node.commit(7, who=joined)
        shard = await node.groups.shard("g")
        partition = shard._log.partition
        await break_disk(node, partition)
        with pytest.raises(CoordinatorUnavailableError):
            await node.commit(8, who=joined)
        await node.broker.reopen(GROUPS_TOPIC, partition.id.partition)
        assert await node.committed() == 7
        await node.commit(9, who=joined)
        assert await node.committed() == 9
        # Nobody has said anything since: its session ends in time, on the new shard's timer.
        await node.clock.elapse(60_000)
        assert (await node.groups.shard("g")).machines["g"].is_empty
        await node.kill()
        assert await node.committed() == 9
        node.abandon()

    run(main())


def test_a_reopened_shard_of_transactions_goes_on_with_what_was_decided() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make("t")
        producer = await world.begin()
        await world.send(producer, b"a", sequence=0)
        shard = await world.coordinator._shards.find("tx")
        struck = shard._log.partition
        # Its participant is offline, so the decision is made and cannot be told.
        participant = world.broker.partition("t", 0)
        world.logs.stop_unexpectedly(participant.log, RuntimeError("planted"))
        ending = asyncio.ensure_future(world.coordinator.end(producer, is_commit=True))
        await world.clock.elapse(world.transactions_config.end_wait_ms + 1000)
        await ending
        world.logs.stop_unexpectedly(struck.log, RuntimeError("planted"))
        with pytest.raises(CoordinatorUnavailableError):
            await world.begin()
        await world.broker.reopen(TRANSACTIONS_TOPIC, struck.id.partition)
        await world.broker.reopen("t", 0)
        await world.clock.elapse(20_000)
        assert await world.committed() == [b"a"]
        transaction = world.coordinator.describe("tx")
        assert transaction.state not in (State.ONGOING, State.PREPARE_COMMIT)
        again = await world.begin()
        await world.send(again, b"b", sequence=0)
        await world.coordinator.end(again, is_commit=True)
        assert await world.committed() == [b"a", b"b"]
        world.abandon()

    run(main())


async def reopen_all(world: World) -> None:
    """End every partition's term, and reopen them in some order."""
    partitions = sorted(world.broker.partitions(), key=lambda one: one.id.directory)
    for partition in partitions:
        world.logs.stop_unexpectedly(partition.log, RuntimeError("planted"))
    for partition in partitions:
        topic = world.catalog.topics_by_id[partition.id.topic_id]
        await world.broker.reopen(topic.name, partition.id.partition)


def test_a_transaction_goes_on_when_all_that_takes_part_in_it_is_reopened_between_its_steps() -> None:
    async def main() -> None:
        world = await World().start()
        for topic in ("t", "u"):
            await world.make(topic)
        group = Caller(group_id="g")
        await world.groups.commit(group, [OffsetCommit("t", 0, 0)])
        producer = await world.begin()
        for turn in range(6):
            is_commit = turn % 3 != 2
            for topic in ("t", "u"):
                await world.send(producer, b"%d" % turn, sequence=turn, topic=topic)
                await reopen_all(world)
            await world.coordinator.commit_offsets(producer, group, [OffsetCommit("t", 0, turn + 1)], joins=True)
            await reopen_all(world)
            await world.coordinator.end(producer, is_commit=is_commit)
            await reopen_all(world)
        await world.begin()  # a new instance, so that nothing is open any more
        expected = [b"%d" % turn for turn in (0, 1, 3, 4)]
        assert await world.committed("t") == await world.committed("u") == expected
        (offset,) = await world.groups.committed(group, [("t", 0)], require_stable=True)
        assert offset.offset == 5
        await world.kill()
        assert await world.committed("t") == expected
        world.abandon()

    run(main())


def test_messages_that_are_acknowledged_in_a_transaction_are_held_over_a_reopening() -> None:
    async def main() -> None:
        world = await World().start()
        await world.queues.create("in")
        await world.queues.create("out")
        await world.queues.send("in", [Message(b"%d" % number) for number in range(4)])
        for turn in range(4):
            (message,) = await world.receive("in", count=1)
            begun = await world.transactions.begin()
            await world.transactions.send(begun.id, "out", [Message(message.body)])
            assert await world.transactions.acknowledge(begun.id, "in", [message.receipt]) == [None]
            await reopen_all(world)
            await world.transactions.commit(begun.id)
            assert await world.bodies("out", count=1) == [b"%d" % turn]
        assert await world.bodies("in") == []
        world.abandon()

    run(main())


def test_a_topic_that_is_deleted_while_it_is_offline_is_gone() -> None:
    async def main() -> None:
        node = await Node().start()
        partition = await node.make("t")
        await break_disk(node, partition)
        await node.broker.delete_topic("t")
        with pytest.raises(UnknownTopicError):
            await node.broker.reopen("t", 0)
        node.abandon()

    run(main())
