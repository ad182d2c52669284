"""confluent-kafka: librdkafka from Python."""

import time
from collections.abc import Sequence
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.compat.clients.message import DEADLINE_S, Message, Stored


def quiet(error: KafkaError) -> None:
    """Transport errors are librdkafka's own affair: it connects again."""


class Confluent:
    name = "confluent-kafka"

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
        offsets: list[int] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                errors.append(error)
            else:
                offsets.append(message.offset())

        producer = Producer(
            {
                "bootstrap.servers": server,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": is_idempotent,
                "message.max.bytes": bytes_max,
                "linger.ms": 20,
                "message.timeout.ms": int(DEADLINE_S * 1000),
                "error_cb": quiet,
                "log_level": 0,
            }
        )
        for message in messages:
            producer.produce(
                topic,
                partition=partition,
                value=message.value,
                key=message.key,
                headers=list(message.headers) or None,
                timestamp=message.timestamp_ms or 0,
                on_delivery=delivered,
            )
        left = producer.flush(DEADLINE_S)
        assert left == 0, f"{left} messages are not acknowledged"
        if errors:
            raise KafkaException(errors[0])
        return offsets

    def read(
        self, server: str, topic: str, *, offset: int = 0, partition: int = 0, committed: bool = False
    ) -> list[Stored]:
        consumer = make_consumer(server, committed=committed)
        try:
            consumer.assign([TopicPartition(topic, partition, offset)])
            return list(_read_to_end(consumer))
        finally:
            consumer.close()

    def offset_at(self, server: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
        consumer = make_consumer(server)
        try:
            asked = [TopicPartition(topic, partition, timestamp_ms)]
            found: int = consumer.offsets_for_times(asked, timeout=DEADLINE_S)[0].offset
            return found if found >= 0 else None
        finally:
            consumer.close()


def make_consumer(server: str, *, committed: bool = False, **more: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "fetch.wait.max.ms": 20,
            "error_cb": quiet,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }
    )


def _read_to_end(consumer: Consumer) -> list[Stored]:
    found: list[Stored] = []
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        for message in consumer.consume(1000, timeout=0.05):
            error = message.error()
            if error is None:
                found.append((message.offset(), _message(message)))
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    raise AssertionError(f"the end was never reached after {len(found)} messages")


def _message(message: Any) -> Message:
    kind, timestamp_ms = message.timestamp()
    assert kind == TIMESTAMP_CREATE_TIME
    headers = tuple((name, value) for name, value in message.headers() or ())
    return Message(value=message.value(), key=message.key(), headers=headers, timestamp_ms=timestamp_ms)
