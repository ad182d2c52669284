"""One consumer of a group in a process of its own, to be stopped, paused and killed.

    python -m tests.compat.group_member CLIENT SERVER GROUP TOPIC FILE [OPTIONS as JSON]

The Java client's is tests/compat/java, which does the same. Every message is noted in the file (one line: its value)
before its offset is committed. SIGTERM makes it leave the group in good order. What a rebalance takes away while it
works (a commit that is refused) is its client's daily life.
"""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, TextIO

SESSION_MS = 4_000
HEARTBEAT_MS = 300
REBALANCE_MS = 6_000
POLL_S = 0.1


class Stop:
    """Whether SIGTERM has come."""

    def __init__(self) -> None:
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.is_asked = True


def note(file: TextIO, values: Iterable[bytes]) -> None:
    file.writelines(value.decode() + "\n" for value in values)
    file.flush()


def run_confluent(server: str, group: str, topic: str, file: TextIO, options: dict[str, Any], stop: Stop) -> None:
    from confluent_kafka import Consumer, KafkaException

    events = options.pop("events", os.devnull)

    def note_event(what: str, partitions: list[Any]) -> None:
        """When what was taken and given up, by the clock that all processes of the machine share."""
        with open(events, "a", encoding="utf-8") as lines:
            lines.writelines(f"{time.monotonic_ns()} {what} {one.topic} {one.partition}\n" for one in partitions)

    # Where the coordinator shares the partitions out, it also says how often members are to be heard of.
    is_classic = options.get("group.protocol") != "consumer"
    times = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS} if is_classic else {}
    consumer = Consumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **times,
            "max.poll.interval.ms": REBALANCE_MS,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            "error_cb": lambda _: None,
            **options,
        }
    )
    consumer.subscribe(
        [topic],
        on_assign=lambda _, partitions: note_event("taken", partitions),
        on_revoke=lambda _, partitions: note_event("given_up", partitions),
        on_lost=lambda _, partitions: note_event("lost", partitions),
    )
    while not stop.is_asked:
        messages = [message for message in consumer.consume(50, POLL_S) if message.error() is None]
        if messages:
            note(file, (message.value() for message in messages))
            try:
                consumer.commit(asynchronous=False)
            except KafkaException:
                continue
    consumer.close()


def run_kafka_python(server: str, group: str, topic: str, file: TextIO, options: dict[str, Any], stop: Stop) -> None:
    from kafka import KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=server,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        max_poll_interval_ms=REBALANCE_MS,
        max_poll_records=50,
        reconnect_backoff_max_ms=200,
        **options,
    )
    while not stop.is_asked:
        try:
            found = consumer.poll(int(POLL_S * 1000))
            if found:
                note(file, (record.value for records in found.values() for record in records))
                consumer.commit()
        except KafkaError:
            continue
    consumer.close()


def run_aiokafka(server: str, group: str, topic: str, file: TextIO, options: dict[str, Any], stop: Stop) -> None:
    from aiokafka import AIOKafkaConsumer
    from aiokafka.errors import KafkaError

    async def main() -> None:
        consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=server,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=REBALANCE_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            **options,
        )
        await consumer.start()
        while not stop.is_asked:
            try:
                found = await consumer.getmany(timeout_ms=int(POLL_S * 1000), max_records=50)
                if found:
                    note(file, (record.value for records in found.values() for record in records))
                    await consumer.commit()
            except KafkaError:
                continue
        await consumer.stop()

    asyncio.run(main())


CLIENTS = {"confluent-kafka": run_confluent, "kafka-python": run_kafka_python, "aiokafka": run_aiokafka}


def main() -> None:
    client, server, group, topic, path, *options = sys.argv[1:]
    with open(path, "a", encoding="utf-8") as file:
        CLIENTS[client](server, group, topic, file, json.loads(options[0]) if options else {}, Stop())


if __name__ == "__main__":
    main()
