"""aiokafka: pure Python, on asyncio."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from tests.compat.clients.message import DEADLINE_S, Message, Stored

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await work

    return asyncio.run(bounded())


class Aiokafka:
    name = "aiokafka"

    def can_write(self, message: Message) -> bool:
        return True

    def write(
        self,
        server: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
        partition: int = 0,
        bytes_max: int = 1_048_588,
    ) -> list[int]:
        async def send() -> list[int]:
            producer = AIOKafkaProducer(
                bootstrap_servers=server,
                compression_type=None if codec == "none" else codec,
                acks=acks if acks == "all" else int(acks),
                enable_idempotence=is_idempotent,
                max_request_size=bytes_max + 1000,
                max_batch_size=500_000,
                linger_ms=20,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        value=message.value,
                        key=message.key,
                        headers=list(message.headers),
                        partition=partition,
                        timestamp_ms=message.timestamp_ms,
                    )
                    for message in messages
                ]
                stored = [await future for future in futures]
                return [-1 if one is None else one.offset for one in stored]
            finally:
                await producer.stop()

        return run(send())

    def read(
        self, server: str, topic: str, *, offset: int = 0, partition: int = 0, committed: bool = False
    ) -> list[Stored]:
        async def read() -> list[Stored]:
            place = TopicPartition(topic, partition)
            found: list[Stored] = []
            async with open_consumer(server, committed=committed) as consumer:
                consumer.assign([place])
                consumer.seek(place, offset)
                end = (await consumer.end_offsets([place]))[place]
                while await consumer.position(place) < end:
                    for record in (await consumer.getmany(place, timeout_ms=100)).get(place, []):
                        found.append((record.offset, _message(record)))
            return found

        return run(read())

    def offset_at(self, server: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
        async def find() -> int | None:
            place = TopicPartition(topic, partition)
            async with open_consumer(server) as consumer:
                found = (await consumer.offsets_for_times({place: timestamp_ms}))[place]
                return None if found is None or found.offset < 0 else found.offset

        return run(find())


@asynccontextmanager
async def open_consumer(server: str, *, committed: bool = False) -> AsyncIterator[Any]:
    consumer = AIOKafkaConsumer(
        bootstrap_servers=server,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_max_wait_ms=20,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


def _message(record: Any) -> Message:
    assert record.timestamp_type == 0
    return Message(
        value=record.value, key=record.key, headers=tuple(record.headers or ()), timestamp_ms=record.timestamp
    )
