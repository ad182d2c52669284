"""Transactional producers of every client that has one, behind one face."""

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import aiokafka
import kafka
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka.errors import KafkaError as PythonKafkaError
from kafka.structs import OffsetAndMetadata as PythonOffset
from tests.compat.clients.confluent import quiet
from tests.compat.clients.message import DEADLINE_S

T = TypeVar("T")

# What any of them raises.
CLIENT_ERRORS = (KafkaException, PythonKafkaError, aiokafka.errors.KafkaError)


class Transactional(Protocol):
    def begin(self) -> None: ...

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        """Send and wait until it is stored."""

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class ConfluentTransactional:
    name = "confluent-kafka"

    def __init__(self, server: str, id: str, *, timeout_ms: int = 60_000) -> None:
        self._server = server
        self._producer = Producer(
            {
                "bootstrap.servers": server,
                "transactional.id": id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": min(timeout_ms, 20_000),
                "linger.ms": 0,
                "error_cb": quiet,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(DEADLINE_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        failed: list[Any] = []
        self._producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: failed.append(error) if error else None
        )
        assert self._producer.flush(DEADLINE_S) == 0
        if failed:
            raise KafkaException(failed[0])

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        consumer = Consumer({"bootstrap.servers": self._server, "group.id": group, "log_level": 0})
        try:
            positions = [ConfluentPartition(topic, at, offset) for (topic, at), offset in offsets.items()]
            metadata = consumer.consumer_group_metadata()
            self._producer.send_offsets_to_transaction(positions, metadata, DEADLINE_S)
        finally:
            consumer.close()

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE_S)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE_S)

    def close(self) -> None:
        self._producer.purge()


class KafkaPythonTransactional:
    name = "kafka-python"

    def __init__(self, server: str, id: str, *, timeout_ms: int = 60_000) -> None:
        self._producer: Any = kafka.KafkaProducer(
            bootstrap_servers=server,
            transactional_id=id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=0,
            max_block_ms=int(DEADLINE_S * 1000),
        )
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._producer.send(topic, value, partition=partition).get(DEADLINE_S)

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        positions = {
            kafka.TopicPartition(topic, at): PythonOffset(offset, "", -1) for (topic, at), offset in offsets.items()
        }
        self._producer.send_offsets_to_transaction(positions, group)

    def commit(self) -> None:
        self._producer.commit_transaction()

    def abort(self) -> None:
        self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(1)


class AiokafkaTransactional:
    name = "aiokafka"

    def __init__(self, server: str, id: str, *, timeout_ms: int = 60_000) -> None:
        self._runner = asyncio.Runner()

        async def start() -> aiokafka.AIOKafkaProducer:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=server, transactional_id=id, transaction_timeout_ms=timeout_ms
            )
            await producer.start()
            return producer

        self._producer = self._run(start())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return self._runner.run(bounded())

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, value: bytes, *, partition: int = 0) -> None:
        self._run(self._producer.send_and_wait(topic, value, partition=partition))

    def send_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        positions = {aiokafka.TopicPartition(topic, at): offset for (topic, at), offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(positions, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        try:
            self._run(self._producer.stop())
        except (TimeoutError, aiokafka.errors.KafkaError):
            pass
        finally:
            self._runner.close()


Kind = type[ConfluentTransactional] | type[KafkaPythonTransactional] | type[AiokafkaTransactional]
KINDS: tuple[Kind, ...] = (ConfluentTransactional, KafkaPythonTransactional, AiokafkaTransactional)


@contextmanager
def producing(kind: Kind, server: str, id: str, *, timeout_ms: int = 60_000) -> Iterator[Transactional]:
    producer = kind(server, id, timeout_ms=timeout_ms)
    try:
        yield producer
    finally:
        producer.close()
