"""What a newer headrace wrote: a fold stops at it, and says which version knows it. Everything else goes on."""

import msgspec
import pytest
from tests.broker.group.world import GroupNode
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld
from tests.broker.transaction.world import World

from headrace.broker.group.config import GroupsConfig
from headrace.broker.partition import Partition
from headrace.broker.transaction.config import TransactionsConfig
from headrace.log.partition_log import Incoming
from headrace.model.batch import read_header
from headrace.model.errors import CoordinatorUnavailableError, PartitionOfflineError
from headrace.model.names import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle
from headrace.wire.kafka.records import Record, encode_batch
from headrace.wire.queue_entry import HEAD, EntryKind

LEVEL = 3  # of the version that wrote it
UNKNOWN_KIND = 190


async def write_newer(node: Node, partition: Partition, kind: int, value: bytes) -> None:
    """Write an entry as a newer version does."""
    key = LEVEL.to_bytes(2, "big") + kind.to_bytes(2, "big")
    data = memoryview(encode_batch([Record(node.clock.wall_ms(), key, value)], is_control=True))
    base = partition.end_offset
    partition.log.append([Incoming(read_header(data), data)], epoch=partition.epoch, now_ms=node.clock.wall_ms())
    node.logs.committer.commit(partition.log, base, [data], len(data))
    await settle()
    node.abandon()
    await node.start()


def shard(node: Node, topic: str) -> Partition:
    return node.broker.partition(topic, 0)


@pytest.mark.parametrize(
    ("kind", "body", "why"),
    [
        (UNKNOWN_KIND, b"", "the entry of type 190 at offset 1 is of a kind that is not known here"),
        (EntryKind.CONFIGURED, b'{"colour":"red"}', "of type 110 at offset 1 has a setting that is not known .*colour"),
    ],
)
def test_a_queue_stops_at_what_a_newer_version_wrote_and_the_others_go_on(kind: int, body: bytes, why: str) -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.queues.create("other")
        await world.send(b"here", queue="other")
        await world.send(b"a")
        partition = world.node.broker.partition(NAME, 0)
        value = HEAD.pack(world.queues.find(NAME).id.bytes, 1, 1) + body
        await write_newer(world.node, partition, kind, value)
        with pytest.raises(PartitionOfflineError, match=why) as refused:
            await world.queues.send(NAME, [])
        assert f"feature level {LEVEL}, and this node has level 0" in str(refused.value)
        with pytest.raises(PartitionOfflineError, match="feature level 3"):
            world.node.broker.partition(NAME, 0)
        assert await world.bodies(queue="other") == [b"here"]
        world.node.abandon()

    run(main())


def test_an_entry_of_another_subscription_is_not_a_queue_s_concern() -> None:
    async def main() -> None:
        world = await QueueWorld(Node()).start()
        await world.send(b"a")
        await write_newer(
            world.node, world.node.broker.partition(NAME, 0), UNKNOWN_KIND, HEAD.pack(b"x" * 16, 1, 1) + b"more"
        )
        assert await world.bodies() == [b"a"]
        world.node.abandon()

    run(main())


def test_a_group_shard_stops_at_an_entry_that_it_does_not_know() -> None:
    async def main() -> None:
        node = await GroupNode(GroupsConfig(partitions=1)).start()
        await node.make()
        await node.commit(1)
        await write_newer(node, shard(node, GROUPS_TOPIC), 299, b"?")
        with pytest.raises(CoordinatorUnavailableError, match=r"type 299 .* feature level 3"):
            await node.committed()
        with pytest.raises(PartitionOfflineError, match="feature level 3"):
            shard(node, GROUPS_TOPIC)
        node.abandon()

    run(main())


def test_a_transaction_shard_stops_at_an_entry_that_it_does_not_know() -> None:
    async def main() -> None:
        world = await World(config=TransactionsConfig(partitions=1)).start()
        await world.begin()
        await write_newer(world, shard(world, TRANSACTIONS_TOPIC), 399, b"?")
        with pytest.raises(CoordinatorUnavailableError, match=r"type 399 .* feature level 3"):
            await world.begin()
        world.abandon()

    run(main())


def test_a_setting_that_has_its_default_is_not_written_so_that_older_versions_can_read_the_queue() -> None:
    assert msgspec.json.encode(QueueConfig()) == b"{}"
    assert msgspec.json.encode(QueueConfig(fair=True)) == b'{"fair":true}'


def test_the_defaults_of_a_queue_which_are_part_of_what_is_written_have_not_changed() -> None:
    assert {name: msgspec.to_builtins(getattr(QueueConfig(), name)) for name in QueueConfig.__struct_fields__} == {
        "guarantee": "at_least_once",
        "ordered": False,
        "lease_ms": 30_000,
        "delay_ms": 0,
        "ttl_ms": None,
        "retention_ms": 604_800_000,
        "history_ms": 0,
        "max_deliveries": 10,
        "dead_letter": None,
        "dead_letter_expired": False,
        "backoff": None,
        "deduplication": "id",
        "deduplication_window_ms": 300_000,
        "messages_max": None,
        "overflow": "reject",
        "leased_max": 1_000_000,
        "fair": False,
        "reader_lag_ms_max": 604_800_000,
        "reader_lag_bytes_max": 68_719_476_736,
    }
