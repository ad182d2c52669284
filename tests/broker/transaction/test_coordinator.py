"""The coordinator over a simulated disk: what producers are told, and what readers see."""

import asyncio

import msgspec
import pytest
from tests.broker.node import run
from tests.broker.transaction.world import World, batch

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.broker.transaction.config import TransactionsConfig
from headrace.folds.transaction.fold import Producer
from headrace.folds.transaction.transaction import EPOCH_LAST, State
from headrace.log.config import LogConfig
from headrace.model.errors import (
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    OverloadedError,
    ProducerFencedError,
    ProducerMappingError,
    TransactionStateError,
)
from headrace.model.ids import PartitionId
from headrace.testing.clock import settle


def test_what_commits_is_seen_and_what_aborts_is_not() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        producer = await world.begin()
        await world.send(producer, b"kept", sequence=0)
        assert await world.committed() == []
        await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == [b"kept"]
        await world.send(producer, b"gone", sequence=1)
        await world.coordinator.end(producer, is_commit=False)
        await world.send(producer, b"kept too", sequence=2)
        await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == [b"kept", b"kept too"]
        assert await world.values() == [b"kept", b"gone", b"kept too"]

    run(main())


def test_a_partition_that_did_not_join_takes_nothing() -> None:
    async def main() -> None:
        world = await World().start()
        partition = await world.make()
        producer = await world.begin()
        with pytest.raises(TransactionStateError):
            await world.send(producer, b"x", sequence=0, joins=False)
        await world.coordinator.add(producer, partitions=[partition.id])
        await world.send(producer, b"x", sequence=0, joins=False)

    run(main())


@pytest.mark.parametrize("gap_turns", range(6))
def test_batches_stay_in_order_while_their_partition_joins(gap_turns: int) -> None:
    """A client that keeps sending does not wait for the first batch, which waits for the coordinator's entry."""

    async def main() -> None:
        world = await World().start()
        await world.make()
        producer = await world.begin()
        promises = []
        values = [b"%d" % number for number in range(8)]
        for number, value in enumerate(values):
            records = batch(producer, value, sequence=number)
            promises.append(world.coordinator.produce("tx", "t", 0, records, joins=True))
            for _ in range(gap_turns):
                await asyncio.sleep(0)
        assert [(await promise).base_offset for promise in promises] == list(range(8))
        await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == values

    run(main())


def test_every_batch_that_waits_for_its_partition_to_join_hears_why_it_cannot() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        old = await world.begin()
        promises = [
            world.coordinator.produce("tx", "t", 0, batch(old, b"x", sequence=number), joins=True)
            for number in range(3)
        ]
        producer = await world.begin()  # in the turn after, and before the coordinator's entry
        for promise in promises:
            with pytest.raises(ProducerFencedError):
                await promise
        await world.send(producer, b"y", sequence=0)
        await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == [b"y"]

    run(main())


def test_an_end_may_be_repeated_and_not_reversed() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        for is_bumped in (False, True):
            producer = await world.begin()
            await world.send(producer, b"x", sequence=0)
            first = await world.coordinator.end(producer, is_commit=True, is_bumped=is_bumped)
            assert await world.coordinator.end(producer, is_commit=True, is_bumped=is_bumped) == first
            assert first == (producer.producer_id, producer.epoch + is_bumped)
            with pytest.raises((TransactionStateError, ProducerFencedError)):
                await world.coordinator.end(producer, is_commit=False, is_bumped=is_bumped)
        assert world.broker.partition("t", 0).end_offset == 4

    run(main())


def test_a_raised_epoch_keeps_what_is_late_out_of_the_next_transaction() -> None:
    """Failure row 28."""

    async def main() -> None:
        world = await World().start()
        await world.make()
        first = await world.begin()
        await world.send(first, b"1", sequence=0)
        second = Producer("tx", *await world.coordinator.end(first, is_commit=True, is_bumped=True))
        await world.send(second, b"2", sequence=0)
        with pytest.raises(ProducerFencedError):
            await world.send(first, b"late", sequence=1)
        with pytest.raises(ProducerFencedError):
            await world.coordinator.end(first, is_commit=False, is_bumped=True)
        await world.coordinator.end(second, is_commit=True, is_bumped=True)
        assert await world.committed() == [b"1", b"2"]

    run(main())


def test_aborting_nothing_is_no_error_where_epochs_are_raised() -> None:
    async def main() -> None:
        world = await World().start()
        producer = await world.begin()
        following = await world.coordinator.end(producer, is_commit=False, is_bumped=True)
        assert following == (producer.producer_id, producer.epoch + 1)
        with pytest.raises(TransactionStateError):
            await world.coordinator.end(Producer("tx", *following), is_commit=True, is_bumped=True)

    run(main())


def test_a_new_instance_fences_the_old_one_and_aborts_its_transaction() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        old = await world.begin()
        await world.send(old, b"old", sequence=0)
        new = await world.begin()
        assert new.producer_id == old.producer_id
        assert new.epoch > old.epoch + 1, "the markers had the epoch in between"
        with pytest.raises(ProducerFencedError):
            await world.send(old, b"older", sequence=1)
        with pytest.raises(ProducerFencedError):
            await world.coordinator.end(old, is_commit=True)
        await world.send(new, b"new", sequence=0)
        await world.coordinator.end(new, is_commit=True)
        assert await world.committed() == [b"new"]

    run(main())


def test_a_producer_that_names_what_it_has_is_fenced_if_it_is_not_the_last_one() -> None:
    """KIP-360."""

    async def main() -> None:
        world = await World().start()
        producer = await world.begin()
        mine = (producer.producer_id, producer.epoch)
        raised = await world.coordinator.begin_producer("tx", timeout_ms=1000, expected=mine)
        assert raised == (mine[0], mine[1] + 1)
        assert await world.coordinator.begin_producer("tx", timeout_ms=1000, expected=mine) == raised, "asked again"
        await world.begin()
        with pytest.raises(ProducerFencedError):
            await world.coordinator.begin_producer("tx", timeout_ms=1000, expected=raised)

    run(main())


def test_a_producer_whose_epochs_are_used_up_gets_another_id() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        producer = await world.begin()
        first = producer.producer_id
        shard = await world.coordinator._shards.find("tx")
        await shard.store(msgspec.structs.replace(world.coordinator.describe("tx"), epoch=EPOCH_LAST))
        producer = Producer("tx", first, EPOCH_LAST)
        await world.send(producer, b"last", sequence=0)
        following = await world.coordinator.end(producer, is_commit=True, is_bumped=True)
        assert following[0] != first
        assert following[1] == 0
        assert await world.coordinator.end(producer, is_commit=True, is_bumped=True) == following
        await world.send(Producer("tx", *following), b"first", sequence=0)
        await world.coordinator.end(Producer("tx", *following), is_commit=True, is_bumped=True)
        assert await world.committed() == [b"last", b"first"]

    run(main())


def test_a_transaction_is_aborted_when_its_time_is_over() -> None:
    """Failure row 30."""

    async def main() -> None:
        world = await World().start()
        await world.make()
        producer = await world.begin(timeout_ms=5000)
        await world.send(producer, b"left", sequence=0)
        await world.clock.elapse(4000)
        await settle()
        assert world.coordinator.describe("tx").state is State.ONGOING
        await world.clock.elapse(2000)
        await settle()
        assert world.coordinator.describe("tx").state is State.COMPLETE_ABORT
        counts = world.coordinator.counts
        assert (counts.committed, counts.aborted, counts.timed_out) == (0, 1, 1)
        partition = world.broker.partition("t", 0)
        assert partition.last_stable_offset == partition.end_offset
        with pytest.raises(ProducerFencedError):
            await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == []

    run(main())


def test_an_open_transaction_outlives_a_restart_with_its_whole_time() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        producer = await world.begin(timeout_ms=5000)
        await world.send(producer, b"a", sequence=0)
        await world.clock.elapse(4000)
        await world.restart()
        await world.clock.elapse(4000)
        await settle()
        await world.send(producer, b"b", sequence=1)
        await world.coordinator.end(producer, is_commit=True)
        assert await world.committed() == [b"a", b"b"]

    run(main())


def test_offsets_of_a_group_are_committed_with_the_transaction() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make()
        caller = Caller(group_id="g")
        producer = await world.begin()
        with pytest.raises(TransactionStateError):
            await world.coordinator.commit_offsets(producer, caller, [OffsetCommit("t", 0, 5)])
        for offset, is_commit in ((5, True), (9, False)):
            await world.coordinator.add(producer, groups=["g"])
            outcomes = await world.coordinator.commit_offsets(producer, caller, [OffsetCommit("t", 0, offset)])
            assert outcomes == [None]
            await world.coordinator.end(producer, is_commit=is_commit)
        (committed,) = await world.groups.committed(caller, [("t", 0)], require_stable=True)
        assert committed.offset == 5

    run(main())


def test_a_participant_that_no_longer_exists_does_not_keep_a_transaction_open() -> None:
    async def main() -> None:
        world = await World().start()
        await world.make("t")
        await world.make("u")
        producer = await world.begin()
        await world.send(producer, b"x", sequence=0, topic="t")
        await world.send(producer, b"x", sequence=0, topic="u")
        await world.broker.delete_topic("u")
        await world.coordinator.end(producer, is_commit=True)
        assert world.coordinator.describe("tx").state is State.COMPLETE_COMMIT
        assert await world.committed("t") == [b"x"]

    run(main())


def test_nothing_that_an_open_transaction_needs_is_dropped_from_the_log() -> None:
    async def main() -> None:
        world = World()
        world.log_config = LogConfig(maintenance_interval_ms=1000, journal_bytes=32 * 1024)
        await world.start()
        partition = await world.make(retention_ms="1000", segment_bytes="4096")
        producer = await world.begin(timeout_ms=900_000)
        await world.send(producer, b"x" * 1000, sequence=0)
        for number in range(1, 10):
            await world.send(producer, b"y" * 1000, sequence=number)
        await world.clock.elapse(60_000)
        await settle()
        assert partition.start_offset == 0
        await world.coordinator.end(producer, is_commit=True)
        await world.clock.elapse(60_000)
        await settle()
        assert partition.start_offset > 0

    run(main())


def test_what_cannot_be_is_refused() -> None:
    async def main() -> None:
        world = await World(config=TransactionsConfig(partitions=1, ids_max=1)).start()
        partition = await world.make()
        with pytest.raises(InvalidRequestError):
            await world.begin("")
        with pytest.raises(InvalidTransactionTimeoutError):
            await world.begin(timeout_ms=0)
        with pytest.raises(InvalidTransactionTimeoutError):
            await world.begin(timeout_ms=world.coordinator.config.timeout_ms_max + 1)
        stranger = Producer("stranger", 1, 0)
        with pytest.raises(ProducerMappingError):
            await world.coordinator.add(stranger, partitions=[PartitionId(partition.id.topic_id, 0)])
        await world.begin("one")
        with pytest.raises(OverloadedError):
            await world.begin("two")
        with pytest.raises(ProducerMappingError):
            await world.coordinator.end(stranger, is_commit=True)

    run(main())


def test_an_id_is_not_forgotten_by_a_clock_that_is_not_believed() -> None:
    async def main() -> None:
        world = await World(config=TransactionsConfig(partitions=1, expiry_ms=100_000)).start()
        world.clock.jump_wall(-3_600_000, is_believed=False)
        await world.begin()
        world.clock.jump_wall(3_600_000)  # it is right again
        await world.clock.elapse(50_000)
        world.clock.jump_wall(3_600_000, is_believed=False)
        await world.clock.elapse(40_000)
        await settle()
        assert len(list(world.coordinator.transactions())) == 1

    run(main())


def test_an_id_that_nobody_uses_is_forgotten() -> None:
    async def main() -> None:
        world = await World(config=TransactionsConfig(partitions=1, expiry_ms=100_000)).start()
        await world.begin()
        await world.clock.elapse(100_000)
        await world.clock.elapse(100_000)
        await settle()
        assert list(world.coordinator.transactions()) == []

    run(main())
