"""Kafka producers that send to a full queue wait and send again, and lose neither messages nor their order."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer
from tests.compat.clients.kcat import kcat
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

import headrace

LIMIT = 5
COUNT = 40
BATCH = 3
DEADLINE_S = 60.0


class Full:
    """A queue that holds few messages. Those that it holds are acknowledged one after the other, once that is asked."""

    def __init__(self, client: headrace.Client, name: str) -> None:
        self.queue = client.queue(name)
        self.queue.create(messages_max=LIMIT)
        self.received: list[str] = []
        self.held_most = 0

    def held(self) -> int:
        counts = self.queue.describe().counts
        return counts.visible + counts.leased + counts.delayed

    def wait_full(self) -> None:
        # A batch that does not fit is not stored in part, so there may be room for fewer than it has.
        wait_until(lambda: self.held() > LIMIT - BATCH, deadline_s=DEADLINE_S, what="the queue is full")

    def drain(self, count: int) -> None:
        end_s = time.monotonic() + DEADLINE_S
        while len(self.received) < count:
            assert time.monotonic() < end_s, f"{len(self.received)} of {count} came: {self.received}"
            self.held_most = max(self.held_most, self.held())
            for message in self.queue.receive(max=1, wait=1):
                self.received.append(message.text)
                message.ack()


@pytest.fixture
def full(node: NodeProcess, topic: str) -> Any:
    with headrace.Client(node.http) as client:
        yield Full(client, topic)


def confluent(server: str, topic: str, **settings: object) -> None:
    outcomes: list[object] = []
    producer = Producer(
        {"bootstrap.servers": server, "linger.ms": 0, "batch.num.messages": BATCH, "log_level": 0, **settings}
    )
    for number in range(COUNT):
        producer.produce(topic, str(number), on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0, "some were given up"
    assert outcomes == [None] * COUNT


def confluent_plain(server: str, topic: str) -> None:
    confluent(server, topic)


def confluent_idempotent(server: str, topic: str) -> None:
    confluent(server, topic, **{"enable.idempotence": True})


def kcat_plain(server: str, topic: str) -> None:
    lines = b"".join(b"%d\n" % number for number in range(COUNT))
    kcat("-P", "-b", server, "-t", topic, "-X", f"batch.num.messages={BATCH}", input=lines)


def kafka_python(server: str, topic: str) -> None:
    # Two small records a batch.
    producer = KafkaProducer(bootstrap_servers=server, batch_size=90, retries=1000, delivery_timeout_ms=60_000)
    sent = [producer.send(topic, str(number).encode()) for number in range(COUNT)]
    assert [one.get(DEADLINE_S).offset for one in sent]
    producer.close()


def aiokafka_idempotent(server: str, topic: str) -> None:
    async def main() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=server, enable_idempotence=True, max_batch_size=90, request_timeout_ms=60_000
        ) as producer:
            sent = [await producer.send(topic, str(number).encode()) for number in range(COUNT)]
            await asyncio.wait_for(asyncio.gather(*sent), DEADLINE_S)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("produce", "is_in_order"),
    [
        (confluent_plain, False),
        (confluent_idempotent, True),
        (kcat_plain, False),
        (kafka_python, True),
        (aiokafka_idempotent, True),
    ],
)
def test_a_producer_waits_for_room_and_stores_everything(
    node: NodeProcess, full: Full, topic: str, produce: Callable[[str, str], None], is_in_order: bool
) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            produce(node.server, topic)
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            failures.append(error)

    producing = threading.Thread(target=run)
    producing.start()
    full.wait_full()
    full.drain(COUNT)
    producing.join(DEADLINE_S)
    assert not failures, failures
    assert full.held_most <= LIMIT
    assert full.held() == 0
    expected = [str(number) for number in range(COUNT)]
    assert (full.received if is_in_order else sorted(full.received, key=int)) == expected


def test_a_transaction_waits_for_room_and_commits(node: NodeProcess, full: Full, topic: str) -> None:
    producer = Producer(
        {"bootstrap.servers": node.server, "transactional.id": topic, "batch.num.messages": BATCH, "log_level": 0}
    )
    producer.init_transactions(DEADLINE_S)
    draining = threading.Thread(target=full.drain, args=(20,))
    for transaction in range(5):
        producer.begin_transaction()
        for number in range(4):
            producer.produce(topic, str(transaction * 4 + number))
        if transaction == 1:
            producer.poll(1)  # the queue holds the first transaction, and has no room for this one
            draining.start()
        producer.commit_transaction(DEADLINE_S)
    draining.join(DEADLINE_S)
    assert full.received == [str(number) for number in range(20)]
    assert full.held_most <= LIMIT


def test_what_is_sent_without_acknowledgement_is_not_stored_in_a_full_queue(
    node: NodeProcess, full: Full, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": node.server, "acks": 0, "batch.num.messages": 1, "log_level": 0})
    for number in range(COUNT):
        producer.produce(topic, str(number))
    producer.flush(DEADLINE_S)
    full.wait_full()
    assert full.held() <= LIMIT
    before = full.held()
    full.drain(before)

    def is_taken() -> bool:
        producer.produce(topic, "later")
        producer.flush(1)
        return full.held() > 0

    wait_until(is_taken, deadline_s=DEADLINE_S, what="the producer has come back, and its messages are taken")
