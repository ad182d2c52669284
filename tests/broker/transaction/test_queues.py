"""Queues in transactions: messages that are sent in one, and messages that are acknowledged in one."""

import pytest
from tests.broker.node import run
from tests.broker.transaction.world import World, messages

from headrace.broker.queue.port import MessageState
from headrace.model.errors import (
    HeadraceError,
    InvalidReceiptError,
    InvalidTransactionTimeoutError,
    StaleReceiptError,
    TransactionStateError,
    UnknownMessageError,
    UnknownTransactionError,
)
from headrace.model.message import Message, Sent
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle


async def started(config: QueueConfig | None = None) -> World:
    world = await World().start()
    await world.queues.create("in", config or QueueConfig())
    await world.queues.create("out")
    return world


def test_what_is_sent_in_a_transaction_is_received_once_it_commits() -> None:
    async def main() -> None:
        world = await started()
        begun = await world.transactions.begin()
        await world.queues.send("out", messages(b"before"))
        sent = await world.transactions.send(begun.id, "out", messages(b"1", b"2"))
        assert not any(isinstance(one, HeadraceError) for one in sent)
        await world.queues.send("out", messages(b"after"))
        assert await world.bodies("out", count=1) == [b"before"]
        await world.transactions.commit(begun.id)
        assert await world.bodies("out") == [b"1", b"2", b"after"], "they have kept their places"

    run(main())


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_what_is_sent_in_a_transaction_lives_as_long_as_it_is_to_whoever_sets_the_clock(jump_ms: int) -> None:
    async def main() -> None:
        world = await started()
        world.clock.jump_wall(jump_ms)
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "out", [Message(b"1", ttl_ms=60_000), Message(b"2", delay_ms=50_000)])
        await world.transactions.commit(begun.id)
        assert await world.bodies("out") == [b"1"]
        await world.clock.elapse(50_000)
        assert b"2" in await world.bodies("out")

    run(main())


def test_what_is_sent_in_a_transaction_that_aborts_never_was() -> None:
    async def main() -> None:
        world = await started()
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "out", messages(b"1"))
        assert world.queues.describe("out").counts.delayed == 1
        await world.transactions.abort(begun.id)
        assert await world.bodies("out") == []
        counts = world.queues.describe("out").counts
        assert (counts.sent, counts.withdrawn, counts.visible, counts.delayed) == (1, 1, 0, 0)

    run(main())


def test_messages_of_an_ordered_key_wait_for_an_open_transaction() -> None:
    async def main() -> None:
        world = await started(QueueConfig(ordered=True))
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "in", [Message(b"1", key=b"k")])
        await world.queues.send("in", [Message(b"2", key=b"k"), Message(b"other", key=b"l")])
        assert await world.bodies("in") == [b"other"]
        await world.transactions.commit(begun.id)
        assert await world.bodies("in") == [b"1", b"2"]

    run(main())


def test_a_kafka_producers_transaction_reaches_a_queue_as_one() -> None:
    async def main() -> None:
        world = await started()
        producer = await world.begin()
        await world.send(producer, b"1", sequence=0, topic="in")
        await world.restart()
        await world.send(producer, b"2", sequence=1, topic="in")
        assert await world.bodies("in") == []
        await world.coordinator.end(producer, is_commit=True)
        assert await world.bodies("in") == [b"1", b"2"]

    run(main())


def test_receiving_sending_and_acknowledging_is_one() -> None:
    async def main() -> None:
        world = await started()
        await world.queues.send("in", messages(b"work"))
        (received,) = await world.receive("in")
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "out", messages(b"result"))
        assert await world.transactions.acknowledge(begun.id, "in", [received.receipt]) == [None]
        assert await world.transactions.acknowledge(begun.id, "in", [received.receipt]) == [None], "may be repeated"
        assert world.queues.describe("in").counts.leased == 1
        await world.transactions.commit(begun.id)
        await world.transactions.commit(begun.id)
        assert await world.bodies("out") == [b"result"]
        counts = world.queues.describe("in").counts
        assert (counts.acknowledged, counts.leased, counts.visible) == (1, 0, 0)
        with pytest.raises(TransactionStateError):
            await world.transactions.abort(begun.id)

    run(main())


def test_a_message_whose_acknowledgement_was_aborted_is_visible_again() -> None:
    async def main() -> None:
        world = await started()
        await world.queues.send("in", messages(b"work"))
        (first,) = await world.receive("in")
        begun = await world.transactions.begin()
        await world.transactions.acknowledge(begun.id, "in", [first.receipt])
        await world.transactions.abort(begun.id)
        await world.transactions.abort(begun.id)
        (second,) = await world.receive("in")
        assert (second.body, second.attempt) == (b"work", 2)
        with pytest.raises(TransactionStateError):
            await world.transactions.commit(begun.id)

    run(main())


def test_what_a_transaction_withdrew_is_not_among_the_messages_that_are_done() -> None:
    async def main() -> None:
        world = await started(QueueConfig(history_ms=60_000))
        begun = await world.transactions.begin()
        (withdrawn,) = await world.transactions.send(begun.id, "in", messages(b"never"))
        assert isinstance(withdrawn, Sent)
        await world.transactions.abort(begun.id)
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "in", messages(b"work"))
        await world.transactions.commit(begun.id)
        (received,) = await world.receive("in")
        await world.queues.acknowledge("in", [received.receipt])
        page = await world.queues.browse("in", state=MessageState.ACKNOWLEDGED)
        assert [one.body for one in page.messages] == [b"work"]
        with pytest.raises(UnknownMessageError):
            await world.queues.explain("in", id=withdrawn.id)

    run(main())


def test_a_lease_that_a_transaction_holds_does_not_end_before_the_transaction() -> None:
    async def main() -> None:
        world = await started(QueueConfig(lease_ms=1000))
        await world.queues.send("in", messages(b"work"))
        (received,) = await world.receive("in")
        begun = await world.transactions.begin(timeout_ms=30_000)
        await world.transactions.acknowledge(begun.id, "in", [received.receipt])
        await world.clock.elapse(20_000)
        assert await world.bodies("in") == []
        page = await world.queues.browse("in", state=MessageState.LEASED)
        assert [one.body for one in page.messages] == [b"work"]
        for may_be_late in (False, True):
            for outcome in await world.queues.acknowledge("in", [received.receipt], may_be_late=may_be_late):
                assert isinstance(outcome, StaleReceiptError)
        await world.clock.elapse(11_000)
        await settle()
        assert await world.bodies("in") == [b"work"], "its time was over, and it was aborted"
        with pytest.raises(TransactionStateError):
            await world.transactions.commit(begun.id)
        await world.transactions.abort(begun.id)

    run(main())


def test_receipts_are_looked_at_one_by_one() -> None:
    async def main() -> None:
        world = await started(QueueConfig(lease_ms=1000))
        await world.queues.send("in", messages(b"a", b"b"))
        stale, good = await world.receive("in")
        await world.queues.acknowledge("in", [stale.receipt])
        begun = await world.transactions.begin()
        outcomes = await world.transactions.acknowledge(begun.id, "in", [stale.receipt, good.receipt, "nonsense"])
        assert isinstance(outcomes[0], StaleReceiptError)
        assert outcomes[1] is None
        assert isinstance(outcomes[2], InvalidReceiptError)

    run(main())


def test_a_transaction_may_send_to_topics_and_to_queues_that_do_not_exist_yet() -> None:
    async def main() -> None:
        world = await started()
        await world.make("t", partitions=3)
        begun = await world.transactions.begin()
        await world.transactions.send(begun.id, "t", [Message(b"%d" % n, key=b"%d" % n) for n in range(9)])
        await world.transactions.send(begun.id, "new", messages(b"x"))
        await world.transactions.commit(begun.id)
        found = [value for index in range(3) for value in await world.committed("t", index)]
        assert sorted(value or b"" for value in found) == [b"%d" % n for n in range(9)]
        assert await world.bodies("new") == [b"x"]

    run(main())


def test_sends_of_one_transaction_may_be_under_way_at_once() -> None:
    async def main() -> None:
        import asyncio

        world = await started()
        begun = await world.transactions.begin()
        await asyncio.gather(*(world.transactions.send(begun.id, "out", messages(b"%d" % n)) for n in range(20)))
        await world.transactions.commit(begun.id)
        bodies = [body for _ in range(2) for body in await world.bodies("out")]
        assert sorted(bodies) == sorted(b"%d" % n for n in range(20))

    run(main())


def test_a_deduplication_id_counts_when_its_transaction_commits() -> None:
    async def main() -> None:
        world = await started()
        aborted = await world.transactions.begin()
        await world.transactions.send(aborted.id, "out", [Message(b"1", deduplication_id="x")])
        await world.transactions.abort(aborted.id)
        first = await world.transactions.begin()
        second = await world.transactions.begin()
        await world.transactions.send(first.id, "out", [Message(b"2", deduplication_id="x")])
        await world.transactions.send(second.id, "out", [Message(b"3", deduplication_id="x")])
        await world.transactions.commit(second.id)
        await world.transactions.commit(first.id)
        assert await world.bodies("out") == [b"3"]

    run(main())


def test_an_empty_transaction_may_be_committed() -> None:
    async def main() -> None:
        world = await started()
        begun = await world.transactions.begin()
        await world.transactions.commit(begun.id)
        with pytest.raises(TransactionStateError):
            await world.transactions.send(begun.id, "out", messages(b"late"))

    run(main())


def test_a_restart_aborts_what_was_open_and_keeps_what_was_decided() -> None:
    async def main() -> None:
        world = await started()
        await world.queues.send("in", messages(b"work"))
        (received,) = await world.receive("in")
        done, left = await world.transactions.begin(), await world.transactions.begin()
        await world.transactions.send(done.id, "out", messages(b"kept"))
        await world.transactions.commit(done.id)
        await world.transactions.send(left.id, "out", messages(b"gone"))
        await world.transactions.acknowledge(left.id, "in", [received.receipt])
        await world.kill()
        await world.transactions.commit(done.id)
        with pytest.raises(TransactionStateError):
            await world.transactions.commit(left.id)
        with pytest.raises(TransactionStateError):
            await world.transactions.send(left.id, "out", messages(b"late"))
        await world.transactions.abort(left.id)
        assert await world.bodies("out") == [b"kept"]
        assert await world.bodies("in") == [b"work"]
        fresh = await world.transactions.begin()
        await world.transactions.send(fresh.id, "out", messages(b"fresh"))
        await world.transactions.commit(fresh.id)
        assert await world.bodies("out") == [b"fresh"]

    run(main())


def test_ids_of_transactions_cannot_be_made_up() -> None:
    async def main() -> None:
        world = await started()
        begun = await world.transactions.begin()
        for forged in (
            "",
            "x",
            begun.id[:-1] + ("A" if begun.id[-1] != "A" else "B"),
            begun.id + "AAAA",
            "\u00e9" * 40,
        ):
            with pytest.raises(UnknownTransactionError):
                await world.transactions.commit(forged)
        with pytest.raises(InvalidTransactionTimeoutError):
            await world.transactions.begin(timeout_ms=0)

    run(main())


def test_producers_of_ended_transactions_are_used_again() -> None:
    async def main() -> None:
        world = await started()
        for _ in range(5):
            begun = await world.transactions.begin()
            await world.transactions.send(begun.id, "out", messages(b"x"))
            await world.transactions.commit(begun.id)
            await world.clock.elapse(20_000)
        assert len(list(world.coordinator.transactions())) == 1
        assert world.broker.partition("out", 0).producer_count == 1
        assert len(await world.bodies("out")) == 5

    run(main())
