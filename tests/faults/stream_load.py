"""Producers and consumers of a topic, by librdkafka: an idempotent one, a transactional one, and one that reads along.

Each runs in a thread of its own until it is told to stop, goes on through everything that happens to the node, and
notes in a history what it asked and what it was told.
"""

import random
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from tests.faults.client import DEADLINE_S, LoadClient
from tests.faults.history import History, Read, Sent
from tests.support.wait import wait_until

PARTITIONS = 3
_IN_FLIGHT_MAX = 200
_SIZES = (10, 10, 100, 1000, 1000, 5000, 100_000)  # below and above what goes through the journal
_ALWAYS = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}
_SENDING = {
    "enable.idempotence": True,
    "message.timeout.ms": int(DEADLINE_S * 1000),
    "linger.ms": 2,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
}


def _body(sender: str, number: int, chance: random.Random) -> tuple[str, bytes]:
    """A record's name, and its value: the name and padding."""
    name = f"{sender}-{number}"
    return name, f"{name} ".encode() + chance.randbytes(chance.choice(_SIZES))


def _name_of(value: bytes | str | None) -> str:
    assert isinstance(value, bytes)
    return value.split(b" ", 1)[0].decode()


class IdempotentSender(LoadClient):
    """Sends to all partitions of a topic and notes each delivery report."""

    def __init__(self, name: str, server: str, topic: str, history: History, stop: threading.Event, seed: int) -> None:
        super().__init__(name, history, stop)
        self._topic = topic
        self._chance = random.Random(seed)
        self._producer = Producer({"bootstrap.servers": server, "error_cb": self._failed, **_SENDING, **_ALWAYS})

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            self._producer.poll(0.002)
            if len(self._producer) < _IN_FLIGHT_MAX:
                body, value = _body(self.name, number, self._chance)
                partition = self._chance.randrange(PARTITIONS)
                call = self.history.send(self._topic, body, sender=self.name, number=number, partition=partition)
                self._producer.produce(self._topic, value, partition=partition, on_delivery=self._teller(call))
                number += 1
        left = self._producer.flush(DEADLINE_S)
        if left:
            self.history.fail(f"{self.name}: {left} records were never answered")

    def _failed(self, error: KafkaError) -> None:
        if error.fatal():
            self.history.fail(f"{self.name}: fatal: {error}")

    def _teller(self, call: Sent) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                call.offset = message.offset()
                self.history.answer(call, "yes")
            else:
                self.history.answer(call, "maybe")
                self.history.fail(f"{self.name}: {call.body} failed: {error}")

        return told


class TransactionalSender(LoadClient):
    """Sends some records in each transaction, commits most and aborts some."""

    def __init__(self, name: str, server: str, topic: str, history: History, stop: threading.Event, seed: int) -> None:
        super().__init__(name, history, stop)
        self._server = server
        self._topic = topic
        self._chance = random.Random(seed)
        self._number = 0

    def run(self) -> None:
        while not self.stop.is_set():
            producer = Producer(
                {
                    "bootstrap.servers": self._server,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": int(2 * DEADLINE_S * 1000),
                    "error_cb": lambda _error: None,  # a fatal error ends this producer, and the next one goes on
                    **_SENDING,
                    **_ALWAYS,
                }
            )
            try:
                _patiently(lambda: producer.init_transactions(10.0))  # noqa: B023 - called at once
                while not self.stop.is_set():
                    self._one_transaction(producer)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise

    def _one_transaction(self, producer: Producer) -> None:
        transaction = self.history.begin(f"{self.name}-{self._number}")
        producer.begin_transaction()
        for _ in range(self._chance.randint(1, 8)):
            body, value = _body(self.name, self._number, self._chance)
            partition = self._chance.randrange(PARTITIONS)
            self.history.send(
                self._topic,
                body,
                sender=self.name,
                number=self._number,
                partition=partition,
                transaction=transaction.id,
            )
            producer.produce(self._topic, value, partition=partition)
            self._number += 1
        if self._chance.random() < 0.2:
            _patiently(lambda: producer.abort_transaction(10.0))
            self.history.answer(transaction, "no")
            return
        try:
            _patiently(lambda: producer.commit_transaction(10.0))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            _patiently(lambda: producer.abort_transaction(10.0))
            self.history.answer(transaction, "no")
        else:
            self.history.answer(transaction, "yes")


def _patiently(call: Callable[[], object]) -> None:
    """Repeat a call as long as librdkafka says that it may be repeated."""
    for _ in range(int(DEADLINE_S / 10)):
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return
    call()


class Follower(LoadClient):
    """Reads along what is committed, through every restart."""

    def __init__(self, name: str, server: str, topic: str, history: History, stop: threading.Event) -> None:
        super().__init__(name, history, stop)
        self._topic = topic
        self._consumer = _consumer(server)

    def run(self) -> None:
        self._consumer.assign([TopicPartition(self._topic, partition, 0) for partition in range(PARTITIONS)])
        while not self.stop.is_set():
            for message in self._consumer.consume(500, timeout=0.1):
                error = message.error()
                if error is None:
                    self.history.along.append(_read(message))
                elif not error.retriable():
                    self.history.fail(f"{self.name}: {error}")
        self._consumer.close()


def read_all(server: str, topic: str, history: History, *, is_hopeless: Callable[[], bool] = lambda: False) -> None:
    """Read everything that is committed with a new consumer, as what is there when all is over.

    It ends early where it is hopeless: where the node says that it cannot serve all of it.
    """
    consumer = _consumer(server, **{"enable.partition.eof": True})
    ended: set[int] = set()

    def take() -> bool:
        for message in consumer.consume(1000, timeout=0.1):
            error: Any = message.error()
            if error is None:
                history.final.append(_read(message))
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(int(message.partition() or 0))
            elif not error.retriable() and not is_hopeless():
                raise AssertionError(f"{topic} cannot be read: {error}")
        return len(ended) == PARTITIONS or is_hopeless()

    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        wait_until(take, deadline_s=DEADLINE_S, what=f"every partition of {topic} is read to its end")
    finally:
        consumer.close()


def _consumer(server: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": server,
            "group.id": "unused",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 50,
            "error_cb": lambda _error: None,  # a node that is down is what these tests are about
            **_ALWAYS,
            **settings,
        }
    )


def _read(message: Message) -> Read:
    offset = message.offset()
    assert offset is not None
    return Read(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=offset,
        body=_name_of(message.value()),
    )
