"""A compacted topic behind a broker: idempotent producers, queues, and the work in the background."""

import msgspec
import pytest
from tests.broker.node import LOG_CONFIG, Node, fetch, run
from tests.log.cleaning import batches_of

from headrace.broker.partition import Partition
from headrace.model.batch import read_header
from headrace.model.errors import InvalidConfigError, InvalidRequestError, OutOfOrderSequenceError
from headrace.model.ids import Offset
from headrace.wire.kafka.marker import Marker, decode_marker
from headrace.wire.kafka.records import Record, decode_batch, encode_batch

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
        assert (await node.broker.partition("t", 0).append(batch(10))).base_offset == end
        node.abandon()

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
        node.abandon()

    run(main())


def test_a_queue_is_not_compacted_where_topics_are_by_default() -> None:
    async def main() -> None:
        node = Node(log_config=SMALL)
        node.config = msgspec.structs.replace(node.config, topic_defaults={"cleanup.policy": "compact"})
        await node.start()
        await node.queues.create("q")
        assert not node.catalog.topics["q"].config.is_compacted
        node.abandon()

    run(main())


async def transact(partition: Partition, sequence: int, pairs: dict[bytes, bytes], *, is_commit: bool) -> None:
    """A whole transaction of producer 7."""
    records = [Record(1000, key, value) for key, value in pairs.items()]
    data = encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    await partition.append(memoryview(data), is_verified=True)
    await partition.end_transaction(producer_id=7, epoch=0, marker=Marker(is_commit, 0), is_bumped=False)


async def committed_of(node: Node, offset: int) -> dict[bytes, bytes]:
    """What Kafka's clients read as committed: nothing of a producer from where it is said to abort to its marker."""
    found: dict[bytes, bytes] = {}
    end = node.broker.partition("t", 0).last_stable_offset
    while offset < end:
        (result,) = await node.fetched(fetch(offset)._replace(read_committed=True))
        told = sorted(result.aborted, key=lambda one: one[1])
        aborting: set[int] = set()
        for data in batches_of(result.buffers[0]):
            header = read_header(data)
            offset = header.next_offset
            while told and told[0][1] < offset:
                aborting.add(told.pop(0)[0])
            if header.is_control:
                if not decode_marker(data).is_commit:
                    aborting.discard(header.producer_id)
            elif header.producer_id not in aborting:
                found |= {record.key or b"": record.value or b"" for record in decode_batch(data)}
    return found


def test_readers_of_committed_messages_miss_nothing_and_see_nothing_aborted_after_markers_are_gone() -> None:
    async def main() -> None:
        node = await Node(log_config=SMALL).start()
        settings = {**SETTINGS, "delete.retention.ms": "5000", "min.cleanable.dirty.ratio": "0"}
        await node.broker.create_topic("t", partition_count=1, overrides=settings)
        value = b"v" * 700
        partition = node.broker.partition("t", 0)
        await transact(partition, 0, {b"a": b"aborted" + value}, is_commit=False)
        await transact(partition, 1, {b"b": b"committed" + value}, is_commit=True)
        await transact(partition, 2, {b"b": b"aborted" + value}, is_commit=False)
        sizes = []
        known = partition.aborted(Offset(0), partition.end_offset)
        for number in range(8):
            table = {b"x%d" % at: b"%d" % number + value for at in range(5)}
            await transact(partition, 3 + 5 * number, table, is_commit=True)
            await node.clock.elapse(6_000)
            expected = {b"b": b"committed" + value, **table}
            sizes.append(len(partition.aborted(Offset(0), partition.end_offset)))
            for offset in range(partition.start_offset, partition.end_offset):
                found = await committed_of(node, offset)
                assert found.items() <= expected.items()
                assert offset > 2 or found == expected
        assert sizes[0] == 2
        assert sizes[-1] == 0, "the index forgets what is gone"
        # After a crash the index may know them again, from a snapshot that is older than the pass.
        partition._producers.transactions.load((), known)
        for offset in range(3):
            assert await committed_of(node, offset) == expected
        await node.restart()
        assert await committed_of(node, 0) == expected
        node.abandon()

    run(main())
