"""kafka-python: pure Python, with threads."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from tests.compat.clients.message import DEADLINE_S, Message, Stored


class KafkaPython:
    name = "kafka-python"

    def can_write(self, message: Message) -> bool:
        return all(value is not None for _, value in message.headers)

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
        producer = KafkaProducer(
            bootstrap_servers=server,
            compression_type=None if codec == "none" else codec,
            acks=acks if acks == "all" else int(acks),
            enable_idempotence=is_idempotent,
            max_request_size=bytes_max + 1000,
            batch_size=500_000,
            linger_ms=20,
            max_block_ms=int(DEADLINE_S * 1000),
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=message.value,
                    key=message.key,
                    headers=list(message.headers),
                    partition=partition,
                    timestamp_ms=message.timestamp_ms,
                )
                for message in messages
            ]
            return [future.get(DEADLINE_S).offset for future in futures]
        finally:
            producer.close(DEADLINE_S)

    def read(
        self, server: str, topic: str, *, offset: int = 0, partition: int = 0, committed: bool = False
    ) -> list[Stored]:
        place = TopicPartition(topic, partition)
        found: list[Stored] = []
        with open_consumer(server, committed=committed) as consumer:
            consumer.assign([place])
            consumer.seek(place, offset)
            end = consumer.end_offsets([place])[place]
            end_s = time.monotonic() + DEADLINE_S
            while consumer.position(place) < end:
                assert time.monotonic() < end_s, f"position {consumer.position(place)} never reached {end}"
                for record in consumer.poll(timeout_ms=1000).get(place, []):
                    found.append((record.offset, _message(record)))
        return found

    def offset_at(self, server: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
        place = TopicPartition(topic, partition)
        with open_consumer(server) as consumer:
            found = consumer.offsets_for_times({place: timestamp_ms})[place]
            return None if found is None or found.offset < 0 else found.offset


@contextmanager
def open_consumer(server: str, *, committed: bool = False) -> Iterator[Any]:
    consumer = KafkaConsumer(
        bootstrap_servers=server,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed" if committed else "read_uncommitted",
        fetch_max_wait_ms=20,
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _message(record: Any) -> Message:
    assert record.timestamp_type == 0
    return Message(
        value=record.value, key=record.key, headers=tuple(record.headers or ()), timestamp_ms=record.timestamp
    )
