"""An idempotent producer whose answers get lost (failure row 27): everything is stored once, and in order."""

import asyncio
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.node import free_port, running
from tests.support.proxy import BreakingProxy, Cut, breaking_proxy
from tests.support.wait import wait_until

from headrace.model.address import Address

COUNT = 3000
CUTS = 40


@contextmanager
def proxy_before(target: Address) -> Iterator[BreakingProxy]:
    """A proxy on a loop in a thread of its own."""
    ready, found = threading.Event(), []
    loop = asyncio.new_event_loop()
    done = asyncio.Event()

    async def serve() -> None:
        async with breaking_proxy(target) as proxy:
            found.append(proxy)
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(10)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(10)
        loop.close()


def read_all(server: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server, "group.id": "reader", "enable.auto.commit": False})
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])

        def read() -> bool:
            values.extend(message.value() for message in consumer.consume(500, timeout=0.5) if message.error() is None)
            return len(values) >= count

        wait_until(read, deadline_s=30, what=lambda: f"{len(values)} of {count} are read")
        values.extend(message.value() for message in consumer.consume(500, timeout=1.0) if message.error() is None)
        return values
    finally:
        consumer.close()


def test_an_idempotent_producer_whose_answers_are_lost_stores_everything_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(27)
    address = Address("127.0.0.1", free_port())
    with (
        proxy_before(address) as proxy,
        running(
            tmp_path / "data",
            settings={"kafka.advertise": str(proxy.address)},
            arguments=["--kafka", str(address)],
        ),
    ):
        producer = Producer(
            {
                "bootstrap.servers": str(proxy.address),
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
                "retry.backoff.ms": 10,
                "log_level": 0,
            }
        )
        failed: list[object] = []
        # The first answers of a connection say what the node can do; those to sends, of some 60 bytes, come after.
        proxy.cuts += [Cut(True, chance.randint(1500, 5000)) for _ in range(CUTS)]
        for number in range(COUNT):
            producer.produce(
                "orders", b"%d" % number, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            producer.poll(0.001)
        assert producer.flush(60) == 0
        assert not failed, failed[:3]
        cut_count = proxy.cut_count
        proxy.cuts.clear()
        assert cut_count >= 5, "too few answers were lost to show anything"
        assert read_all(str(proxy.address), COUNT) == [b"%d" % number for number in range(COUNT)]
