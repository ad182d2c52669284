"""Fetches while memory for answers is short."""

import asyncio

import pytest
from tests.gateways.kafka.fake_broker import FakeBroker
from tests.gateways.kafka.harness import LOOPS, batch, connect, run, serving, until
from tests.gateways.kafka.requests import API_VERSIONS, produce

from headrace.gateways.answers import AnswerBudget, AnswersConfig
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MIB = 1024 * 1024
LIMITS = KafkaLimits(sweep_ms=20)
BODY = b"x" * 100_000


def fetch(*, wait_ms: int = 0, bytes_min: int = 1) -> tuple[int, int, FetchRequest]:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
    topics = (FetchTopic(topic="t", partitions=(part,)),)
    return 1, 11, FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=50 * MIB, topics=topics)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_fetch_without_memory_in_time_is_answered_empty_and_asked_to_wait(loop: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        budget = AnswerBudget(AnswersConfig(bytes_max=64 * MIB, wait_ms_max=200))
        async with serving(broker, LIMITS, answers=budget) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(BODY)))
            budget.charge(64 * MIB)
            answer = await client.ask(*fetch())
            (part,) = answer.responses[0].partitions
            assert (answer.error_code, part.error_code, bytes(part.records or b"")) == (0, 0, b"")
            assert part.high_watermark == 1
            assert answer.throttle_time_ms == 1_000
            assert budget.refused_count == 1
            budget.charge(-64 * MIB)
            answer = await client.ask(*fetch())
            assert len(answer.responses[0].partitions[0].records) > len(BODY)
            assert answer.throttle_time_ms == 0
            await client.close()
        assert budget.used_bytes == 0

    run(main(), loop)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_fetch_that_waits_for_memory_goes_on_when_there_is_some_and_others_pass_it(loop: str) -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        budget = AnswerBudget(AnswersConfig(bytes_max=64 * MIB))
        async with serving(broker, LIMITS, answers=budget) as gateway:
            client, other = await connect(gateway), await connect(gateway)
            await client.ask(*produce(batch(BODY)))
            budget.charge(64 * MIB)
            first, second = client.send(*fetch()), client.send(*fetch())
            await until(lambda: budget.waiting_count == 1, "one of a connection is in the line")
            await other.ask(*API_VERSIONS)
            budget.charge(-64 * MIB)
            for sent in (first, second):
                answer = await client.receive(1, 11, sent)
                assert len(answer.responses[0].partitions[0].records) > len(BODY)
            assert budget.waited_count >= 1
            await client.close()
            await other.close()
        assert budget.used_bytes == 0

    run(main(), loop)


def test_a_connection_that_is_lost_while_its_fetch_waits_leaves_the_line() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        budget = AnswerBudget(AnswersConfig(bytes_max=64 * MIB))
        async with serving(broker, LIMITS, answers=budget) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(BODY)))
            budget.charge(64 * MIB)
            client.send(*fetch())
            await until(lambda: budget.waiting_count == 1, "it waits")
            await client.close()
            await until(lambda: budget.waiting_count == 0, "it has left the line")
            budget.charge(-64 * MIB)
        assert budget.used_bytes == 0

    run(main())


def test_a_gateway_that_stops_answers_what_waits_for_memory() -> None:
    async def main() -> None:
        broker = FakeBroker()
        broker.add("t")
        budget = AnswerBudget(AnswersConfig(bytes_max=64 * MIB))
        async with serving(broker, LIMITS, answers=budget) as gateway:
            client = await connect(gateway)
            await client.ask(*produce(batch(BODY)))
            budget.charge(64 * MIB)
            sent = client.send(*fetch())
            await until(lambda: budget.waiting_count == 1, "it waits")
            stopping = asyncio.ensure_future(gateway.stop())
            answer = await client.receive(1, 11, sent)
            assert answer.responses[0].partitions[0].error_code == 0
            await stopping
        budget.charge(-64 * MIB)
        assert budget.used_bytes == 0

    run(main())
