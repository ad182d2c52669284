"""One part of a pipeline in a process of its own, to be killed at any moment.

    python -m tests.compat.stream_worker feed SERVER ID INPUT
    python -m tests.compat.stream_worker work SERVER ID INPUT OUTPUT GROUP

`feed` writes messages, some to a transaction, each with a value that no other one has. `work` reads committed messages
and writes each to the output, in one transaction with the offsets of its group. Whatever goes wrong ends the process:
its successor takes the transactional id over, and with it what was left open. SIGTERM ends it in good order.
"""

import os
import signal
import sys
import uuid

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

WAIT_S = 20.0
PARTITIONS = 4
ABORT_EVERY = 5
# When every broker is gone, librdkafka 2.16 forgets the brokers that it knows and begins anew. Offsets that were on
# their way to one of them are then never sent, and the call never returns: wait for the brokers to come back instead.
LIBRDKAFKA = {"metadata.recovery.strategy": "none"}


class Stop:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.is_asked = True


def make_producer(server: str, id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": server,
            "transactional.id": id,
            "transaction.timeout.ms": 20_000,
            "reconnect.backoff.max.ms": 200,
            **LIBRDKAFKA,
            "linger.ms": 5,
            "log_level": 0,
            "error_cb": lambda _: None,
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def feed(server: str, id: str, topic: str, stop: Stop) -> None:
    producer = make_producer(server, id)
    run, number = uuid.uuid4().hex[:12], 0
    while not stop.is_asked:
        producer.begin_transaction()
        for at in range(10):
            producer.produce(topic, f"{run}-{number}-{at}".encode(), partition=at % PARTITIONS)
        number += 1
        if number % ABORT_EVERY:
            producer.commit_transaction(WAIT_S)
        else:
            producer.abort_transaction(WAIT_S)


def work(server: str, id: str, source: str, target: str, group: str, stop: Stop) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
            **LIBRDKAFKA,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            "error_cb": lambda _: None,
        }
    )
    producer = make_producer(server, id)
    consumer.subscribe([source])
    while not stop.is_asked:
        messages = [message for message in consumer.consume(50, 0.1) if message.error() is None]
        if messages:
            pass_on(consumer, producer, messages, target)
    consumer.close()


def pass_on(consumer: Consumer, producer: Producer, messages: list[Message], target: str) -> None:
    producer.begin_transaction()
    ends: dict[tuple[str, int], int] = {}
    for message in messages:
        producer.produce(target, message.value(), partition=message.partition())
        ends[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), WAIT_S)
    producer.commit_transaction(WAIT_S)


def main() -> None:
    role, server, id, *topics = sys.argv[1:]
    stop = Stop()
    try:
        if role == "feed":
            feed(server, id, topics[0], stop)
        else:
            work(server, id, topics[0], topics[1], topics[2], stop)
    except KafkaException as error:
        print(error, file=sys.stderr)
        # Without farewell, as if killed: what was begun is for the successor to end.
        os._exit(1)


if __name__ == "__main__":
    main()
