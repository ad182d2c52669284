"""A node that is stopped for a while (SIGSTOP, as a machine that is suspended) under idempotent load.

The checker knows what the producers were told: each delivery report against what is read afterwards.

librdkafka may report a record as delivered without an offset: where it had to send a request again, and a later one is
answered first, it takes that for the answer to both. A node that answers all that it has stored never makes it do so;
a client that gives up by its own clock does it to itself.
"""

import os
import random
import signal
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

LONG = bool(os.environ.get("HEADRACE_LONG"))
TOPIC = "stopped"
PARTITIONS = 3
DEADLINE_S = 120.0
GIVES_UP = {"socket.timeout.ms": 1000, "request.timeout.ms": 900}
# The node's time for a request is over while it is stopped, the client's is not.
WAITS = {"socket.timeout.ms": 60_000, "request.timeout.ms": 30_000 if LONG else 1000}


class Load:
    """A producer in a thread, and what it was told of each record."""

    def __init__(self, node: NodeProcess, number: int, settings: dict[str, int]) -> None:
        self.reports: dict[bytes, tuple[int, int | None]] = {}
        self.errors: list[KafkaError] = []
        self._number = number
        self._is_over = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": node.server,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 10,
                "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        count = 0
        while not self._is_over.wait(0.002):
            self._producer.produce(
                TOPIC, b"%d-%d" % (self._number, count), partition=count % PARTITIONS, on_delivery=self._told
            )
            self._producer.poll(0)
            count += 1
        self._producer.flush(DEADLINE_S)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        value, partition = message.value(), message.partition()
        assert value is not None
        assert partition is not None
        self.reports[value] = (partition, message.offset())

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()


def stop_and_go(node: NodeProcess, loads: list[Load], *, stop_s: float) -> None:
    """Stop the node while there is load, and wait until every producer hears of new records again."""
    wait_for_reports(loads, 1)
    os.kill(node.pid, signal.SIGSTOP)
    try:
        threading.Event().wait(stop_s)
    finally:
        os.kill(node.pid, signal.SIGCONT)
    wait_for_reports(loads, 50)


def wait_for_reports(loads: list[Load], count: int) -> None:
    wanted = [(load, len(load.reports) + count) for load in loads]
    wait_until(
        lambda: all(len(load.reports) >= most for load, most in wanted),
        deadline_s=DEADLINE_S,
        what=lambda: f"every producer hears of {count} more records",
    )


def read_all(node: NodeProcess) -> dict[tuple[int, int], bytes]:
    consumer = Consumer(
        {"bootstrap.servers": node.server, "group.id": "check", "enable.partition.eof": True, "log_level": 0}
    )
    found: dict[tuple[int, int], bytes] = {}
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    open_count = PARTITIONS
    while open_count:
        message = consumer.poll(DEADLINE_S)
        assert message is not None, "the node sends nothing more"
        if (error := message.error()) is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_count -= 1
            continue
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        found[partition, offset] = value
    consumer.close()
    return found


@pytest.mark.parametrize("gives_up", [False, True], ids=["client waits", "client gives up"])
def test_a_stopped_node_tells_each_record_its_place(tmp_path: Path, gives_up: bool) -> None:
    chooser = random.Random(1)
    lengths_s = (
        [40.0, 40.0]
        if LONG and not gives_up
        else [chooser.uniform(1.1, 1.6) for _ in range(20 if LONG else 2 if gives_up else 4)]
    )
    with running(tmp_path / "data") as node:
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        loads = [Load(node, number, GIVES_UP if gives_up else WAITS) for number in range(3)]
        try:
            for stop_s in lengths_s:
                stop_and_go(node, loads, stop_s=stop_s)
        finally:
            for load in loads:
                load.end()
        read = read_all(node)
        assert node.stop() == 0
    assert not [error for load in loads for error in load.errors]
    reports = {value: place for load in loads for value, place in load.reports.items()}
    without = [value for value, (_, offset) in reports.items() if offset is None]
    wrong = [v for v, (at, offset) in reports.items() if offset is not None and read.get((at, offset)) != v]
    twice = [value for value, count in Counter(read.values()).items() if count > 1]
    print(
        f"{len(lengths_s)} stops, {len(reports)} records acknowledged, {len(read)} read, {len(without)} reports "
        f"without an offset, {len(wrong)} with a wrong one, {len(twice)} stored twice"
    )
    assert wrong == []
    assert twice == []
    assert reports.keys() <= set(read.values())
    assert gives_up or not without, "the node has not answered for what it had stored"
