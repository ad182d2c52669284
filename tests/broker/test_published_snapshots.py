"""A fold opens from the older of its two snapshots, whatever has become of the newest one.

Each log is cleaned first, or its oldest part expires, so that the log alone no longer makes the state. Then its newest
snapshot is damaged or lost, or the log is cut below it, and a new process must know what the old one knew.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.broker.group.world import GroupNode
from tests.broker.node import LOG_CONFIG, Node, batch, gathered, produced, run
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.transaction.world import World

from headrace.broker.group.config import GroupsConfig
from headrace.broker.transaction.config import TransactionsConfig
from headrace.log.partition_log import PartitionLog
from headrace.model.errors import CoordinatorUnavailableError
from headrace.model.ids import Offset, PartitionId
from headrace.model.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk

CONFIG = msgspec.structs.replace(LOG_CONFIG, clean_gain_bytes_min=1, clean_active_bytes=1000, checkpoint_bytes=1 << 30)
CUT_COUNT = 3  # entries that a truncation takes below the newest snapshot
HARMS = ["flipped", "cut short", "deleted", "above the end"]

every_harm = pytest.mark.parametrize("harm", HARMS)


def snapshots_of(disk: SimulatedDisk, directory: str, name: str) -> list[str]:
    """The files of one fold, newest first."""
    pattern = re.compile(rf"{re.escape(directory)}/folds/{name}[^/]*-(\d{{20}})(\.(\d))?\.snapshot")
    found = [(match[1], match[3] or "", path) for path in disk.files() if (match := pattern.fullmatch(path))]
    return [path for *_, path in sorted(found, reverse=True)]


async def cleaned(node: Node, log: PartitionLog) -> None:
    """Have everything removed that may be."""
    await node.clock.elapse(10_000)  # a queue looks every few seconds how much of its log may go
    if log.active.size:
        log.roll(now_ms=node.clock.wall_ms())
    for _ in range(3):
        await node.logs.maintain(log, floor=log.open_limit())
        while await node.logs.clean(log):
            pass
    assert log.cleaned_offset > 0, "nothing was cleaned, and the log alone would do"


async def harmed(node: Node, id: PartitionId, name: str, harm: str, work: Callable[[], Awaitable[Any]]) -> None:
    """Do some more work, publish, harm the newest snapshot and start a new process on what is left."""
    log = node.logs.logs[id]
    await cleaned(node, log)
    await node.logs.checkpoint(log)
    await work()
    await settle()
    await node.logs.checkpoint(log)
    newest, *older = snapshots_of(node.disk, log.directory, name)
    assert len(older) == 1, "two are kept"
    data = node.disk.files()[newest]
    match harm:
        case "flipped":
            node.disk.flip_bit(newest, 8 * len(data) // 2)
        case "cut short":
            node.disk.overwrite(newest, data[:-1])
        case "deleted":
            node.disk.remove(newest)
        case "above the end":
            await node.logs.truncate(log, Offset(log.end_offset - CUT_COUNT))
            assert snapshots_of(node.disk, log.directory, name) == older
    node.abandon()
    await node.start()
    assert id not in node.logs.refused
    opened = node.logs.logs[id]
    assert opened.broken is None
    # And it goes on: the next snapshots replace the one that was lost, and never the one that is left.
    await node.logs.checkpoint(opened)
    assert older[0] in snapshots_of(node.disk, log.directory, name)


@every_harm
def test_a_producer_s_retry_is_known_from_the_older_snapshot(harm: str) -> None:
    async def main() -> None:
        node = await Node(log_config=CONFIG).start()
        partition = await node.make(segment_bytes="4096", retention_bytes="4096")
        (first,) = await gathered([partition.append(produced(b"once", sequence=0))])
        for _ in range(10):
            await gathered([partition.append(batch(b"x" * 1500))])

        async def work() -> None:
            for number in range(CUT_COUNT + 1):
                await gathered([partition.append(batch(b"%d" % number))])

        await harmed(node, partition.id, "producer", harm, work)
        partition = node.broker.partition("t", 0)
        assert partition.start_offset > 1
        (again,) = await gathered([partition.append(produced(b"once", sequence=0))])
        assert again.base_offset == first.base_offset  # type: ignore[union-attr]
        node.abandon()

    run(main())


@every_harm
def test_a_queue_opens_from_the_older_snapshot(harm: str) -> None:
    async def main() -> None:
        world = await QueueWorld(Node(log_config=CONFIG)).start()
        await world.send(b"later", delay_ms=600_000)
        for number in range(20):
            await world.send(b"%d" % number)
            (message,) = await world.receive()
            assert await world.acknowledge(message) == [None]
        partition = world.node.broker.partition(NAME, 0)

        async def work() -> None:
            await world.send(b"kept")
            for number in range(CUT_COUNT + 1):
                await world.send(b"cut %d" % number)

        await harmed(world.node, partition.id, "queue", harm, work)
        assert world.counts().delayed == 1
        bodies = await world.bodies(100)
        lost_count = CUT_COUNT if harm == "above the end" else 0
        assert bodies == [b"kept", *(b"cut %d" % number for number in range(CUT_COUNT + 1 - lost_count))]
        await world.node.clock.elapse(600_000)
        assert b"later" in await world.bodies(100)
        world.node.abandon()

    run(main())


@every_harm
def test_a_group_shard_opens_from_the_older_snapshot(harm: str) -> None:
    async def main() -> None:
        node = await GroupNode(GroupsConfig(partitions=1), log_config=CONFIG).start()
        await node.make()
        await node.commit(7, group="h")
        for offset in range(20):
            await node.commit(offset, group="g")
        log = shard_log(node, GROUPS_TOPIC)

        async def work() -> None:
            for offset in range(CUT_COUNT + 1):
                await node.commit(100 + offset, group="g")

        await harmed(node, log.id, "group", harm, work)
        assert await node.committed() == (100 if harm == "above the end" else 100 + CUT_COUNT)
        assert await node.committed(group="h") == 7
        await node.commit(200)
        assert await node.committed() == 200
        node.abandon()

    run(main())


def test_a_group_shard_without_either_snapshot_is_refused_and_not_taken_for_an_empty_one() -> None:
    async def main() -> None:
        node = await GroupNode(GroupsConfig(partitions=1), log_config=CONFIG).start()
        await node.make()
        for offset in range(20):
            await node.commit(offset)
        log = shard_log(node, GROUPS_TOPIC)
        await cleaned(node, log)
        for path in snapshots_of(node.disk, log.directory, "group"):
            node.disk.flip_bit(path, 100)
        node.abandon()
        await node.start()
        with pytest.raises(CoordinatorUnavailableError, match="could not be opened"):
            await node.committed()
        node.abandon()

    run(main())


@every_harm
def test_a_transaction_shard_opens_from_the_older_snapshot(harm: str) -> None:
    async def main() -> None:
        world = await World(log_config=CONFIG, config=TransactionsConfig(partitions=1)).start()
        await world.make()
        first = await world.begin("first")
        producers = [await world.begin("tx") for _ in range(20)]
        log = shard_log(world, TRANSACTIONS_TOPIC)

        async def work() -> None:
            for _ in range(CUT_COUNT + 1):
                producers.append(await world.begin("tx"))

        await harmed(world, log.id, "transaction", harm, work)
        lost_count = CUT_COUNT if harm == "above the end" else 0
        following = await world.begin("tx")
        assert following.epoch == producers[-1 - lost_count].epoch + 1
        assert (await world.begin("first")).producer_id == first.producer_id
        world.abandon()

    run(main())


def shard_log(node: Node, topic: str) -> PartitionLog:
    (log,) = [log for id, log in node.logs.logs.items() if node.catalog.topics_by_id[id.topic_id].name == topic]
    return log


def test_snapshots_of_the_very_end_are_published_twice_when_a_log_that_stands_still_is_cleaned() -> None:
    async def main() -> None:
        world = await QueueWorld(Node(log_config=CONFIG)).start()
        for number in range(20):
            await world.send(b"%d" % number)
            (message,) = await world.receive()
            await world.acknowledge(message)
        await asyncio.sleep(0)
        log = world.node.broker.partition(NAME, 0).log
        await cleaned(world.node, log)
        for name in ("producer", "queue"):
            first, second = snapshots_of(world.node.disk, log.directory, name)
            assert {first.removesuffix(".1.snapshot"), second.removesuffix(".snapshot")} == {
                second.removesuffix(".snapshot")
            }
            world.node.disk.flip_bit(first, 100)
        world.node.abandon()
        await world.node.start()
        assert world.node.logs.refused == {}
        assert (world.counts().sent, world.counts().acknowledged) == (20, 20)
        world.node.abandon()

    run(main())
