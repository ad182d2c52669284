"""A disk that cannot be read while a node starts takes the partition there offline, with the reason, and no other."""

import pytest
from tests.broker.transaction.world import World

from headrace.model.errors import CoordinatorUnavailableError, PartitionOfflineError
from headrace.model.names import TRANSACTIONS_TOPIC

from .node import Node, batch, run

REASON = "Input/output error; check the disk"


def test_a_partition_whose_snapshots_cannot_be_listed_is_offline_alone() -> None:
    async def main() -> None:
        node = await Node().start()
        struck, spared = await node.make("struck"), await node.make("spared")
        for partition in (struck, spared):
            await partition.append(batch(b"kept"))
        await node.restart()
        node.disk.fail("list_directory", path_part=f"{struck.log.directory}/folds")
        await node.kill()
        with pytest.raises(PartitionOfflineError, match=REASON):
            node.broker.partition("struck", 0)
        assert await node.values("spared") == [b"kept"]
        await node.kill()
        assert await node.values("struck") == [b"kept"]
        node.abandon()

    run(main())


def test_a_coordinator_whose_snapshots_cannot_be_listed_says_why_and_takes_its_partition_offline() -> None:
    async def main() -> None:
        world = await World().start()
        await world.begin()
        await world.restart()
        partitions = [world.broker.partition(TRANSACTIONS_TOPIC, index) for index in range(2)]
        for partition in partitions:
            # The first look is for the producers of the partition, and finds what it wants.
            world.disk.fail("list_directory", nth=2, path_part=f"{partition.log.directory}/folds")
        await world.kill()
        with pytest.raises(CoordinatorUnavailableError, match=REASON):
            await world.begin()
        broken = [world.logs.logs[partition.id].broken for partition in partitions]
        assert any(REASON in str(error) for error in broken)
        await world.kill()
        await world.begin()
        world.abandon()

    run(main())
