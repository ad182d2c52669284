"""A compacted topic behind a broker: idempotent producers, queues, and the work in the background."""

import msgspec
import pytest
from tests.broker.node import LOG_CONFIG, Node, run

from headrace.broker.partition import Partition
from headrace.model.errors import InvalidConfigError, InvalidRequestError, OutOfOrderSequenceError
from headrace.wire.kafka.records import Record, encode_batch

SMALL = msgspec.structs.replace(LOG_CONFIG, maintenance_interval_ms=1000)
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0.1"}


def batch(sequence: int, *, producer_id: int = 7) -> memoryview:
    records = [Record(1000, b"k%d" % (sequence % 3), b"%d." % sequence + b"v" * 200)]
    data = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    return memoryview(data)


async def fill(partition: Partition, sequences: range, *, producer_id: int = 7) -> None:
    for sequence in sequences:
        await partition.append(batch(sequence, producer_id=producer_id))


def test_an_idempotent_producer_goes_on_after_all_that_it_sent_was_compacted_away_by_others() -> None:
    async def main() -> None:
        node = await Node(log_config=SMALL).start()
        await node.broker.create_topic("t", partition_count=1, overrides=SETTINGS)
        partition = node.broker.partition("t", 0)
        await fill(partition, range(10))
        await fill(partition, range(200), producer_id=8)
        size = partition.size_bytes
        await node.clock.elapse(10_000)
        assert partition.size_bytes < size / 5
        for _ in range(2):
            partition = node.broker.partition("t", 0)
            end = partition.end_offset
            duplicate = await partition.append(batch(9))
            assert duplicate.base_offset == 9
            assert partition.end_offset == end
            with pytest.raises(OutOfOrderSequenceError):
                await partition.append(batch(12))
            await node.restart()
        partition = node.broker.partition("t", 0)
        assert (await partition.append(batch(10))).base_offset == end
        await node.kill()
        await node.start()
        assert (await node.broker.partition("t", 0).append(batch(10))).base_offset == end
        await node.kill()

    run(main())


def test_a_queue_is_not_compacted_and_a_compacted_topic_is_no_queue() -> None:
    async def main() -> None:
        node = await Node(log_config=SMALL).start()
        await node.broker.create_topic("t", partition_count=1, overrides=SETTINGS)
        with pytest.raises(InvalidConfigError, match="t is compacted"):
            await node.queues.create("t")
        await fill(node.broker.partition("t", 0), range(100))
        await node.clock.elapse(10_000)
        await node.broker.alter_config("t", {})
        with pytest.raises(InvalidRequestError, match="was compacted once"):
            await node.queues.create("t")
        await node.queues.create("q")
        overrides = node.catalog.topics["q"].overrides
        with pytest.raises(InvalidConfigError, match="q is a queue"):
            await node.broker.alter_config("q", {**overrides, "cleanup.policy": "compact,delete"})
        assert not node.catalog.topics["q"].config.is_compacted
        await node.kill()

    run(main())


def test_a_queue_is_not_compacted_where_topics_are_by_default() -> None:
    async def main() -> None:
        node = Node(log_config=SMALL)
        node.config = msgspec.structs.replace(node.config, topic_defaults={"cleanup.policy": "compact"})
        await node.start()
        await node.queues.create("q")
        assert not node.catalog.topics["q"].config.is_compacted
        await node.kill()

    run(main())


def transactional(partition: Partition, sequence: int, key: bytes, value: bytes) -> Promise[Appended]:
    records = [Record(1000, key, value)]
    data = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    return partition.append(memoryview(data), is_verified=True)
