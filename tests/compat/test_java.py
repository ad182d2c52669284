"""Kafka's own Java clients: administration, transactions, groups of both protocols, share groups and Streams."""

import os
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.clients.java import Java
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

from headrace import Client

DEADLINE_S = 60.0
SENDS = 8
TRANSACTIONS = 60


def make(node: NodeProcess, *topics: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        future.result(DEADLINE_S)


def write(node: NodeProcess, topic: str, values: list[str], *, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": node.server, "log_level": 0})
    for at, value in enumerate(values):
        producer.produce(topic, value=value, partition=at % partitions)
        producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0


def read(node: NodeProcess, topic: str, *, partitions: int) -> list[tuple[bytes | None, str]]:
    """Keys and values of everything that is committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.server,
            "group.id": "unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    found: list[tuple[bytes | None, str]] = []
    ended = set[int]()
    end_s = time.monotonic() + DEADLINE_S
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    while len(ended) < partitions:
        assert time.monotonic() < end_s, f"{topic} was not read to its end"
        for message in consumer.consume(100, 0.5):
            if message.error() is None:
                found.append((message.key(), message.value().decode()))
            else:
                ended.add(message.partition())
    consumer.close()
    return found


# Administration.


def test_topics_are_created_described_altered_and_deleted(node: NodeProcess, java: Java, topic: str) -> None:
    assert java.run("topics", node.server, topic=topic) == {
        "created twice": "TopicExistsException",
        "bad setting": "InvalidConfigurationException",
        "bad name": "InvalidTopicException",
        "partitions": 3,
        "operations": 8,
        "by id": topic,
        "no such topic": "UnknownTopicOrPartitionException",
        "listed": True,
        "configured": {
            "cleanup.policy": "compact,delete DYNAMIC_TOPIC_CONFIG",
            "retention.ms": "604800000 DEFAULT_CONFIG",
            "segment.bytes": "1048576 DYNAMIC_TOPIC_CONFIG",
        },
        "no such setting": "InvalidConfigurationException",
        "settings missing": [],
        "every setting set": "none",
        "one bad record": ["KafkaException", "InvalidRecordException", "KafkaException"],
        "offsets": {
            "earliest": 0,
            "latest": 5,
            "max timestamp": 4,
            "by time": 2,
            "earliest local": 0,
            "latest tiered": -1,
        },
        "deleted below": 2,
        "producers": 1,
        "deleted": True,
    }


def test_groups_of_both_protocols_are_listed_described_reset_and_deleted(
    node: NodeProcess, java: Java, topic: str
) -> None:
    common = {
        "read": 4,
        "group metadata": True,
        "state": "Stable",
        "assigned": 2,
        "deleted while used": "GroupNotEmptyException",
        "offset deleted while used": "GroupSubscribedToTopicException",
        "offset set while used": "UnknownMemberIdException",
        "committed": [4, ""],
        "set": [1, "by hand"],
        "after deletion": "null",
        "described when gone": "GroupIdNotFoundException",
    }
    found = java.run("groups", node.server, topic=topic)
    for protocol in ("classic", "consumer"):
        about = found[protocol]
        assert about.pop("removed from nothing")
        named = {"type": protocol.capitalize(), "listed": [protocol.capitalize()]}
        assert about == common | named | {"upgraded": "true" if protocol == "consumer" else "unknown"}


def test_the_cluster_is_described_and_what_it_does_not_do_is_refused(node: NodeProcess, java: Java, topic: str) -> None:
    refusals = ("describe acls", "create acls", "delete acls", "scram", "tokens", "reassignments", "elections")
    assert java.run("cluster", node.server, topic=topic) == {
        "nodes": 1,
        "controller": 1,
        "cluster id": True,
        "operations": 7,
        "quorum": [1, 1],
        "log dirs": 1,
        "log dir errors": 0,
        "broker settings": ["message.max.bytes", "log.retention.ms", "num.partitions"],
        "features": 1,
        "resources": ["1"],
        "quotas": 0,
        "transactions": True,
        "no such transaction": "TransactionalIdNotFoundException",
        "metrics": True,
        "group setting": "50000",
        "refused": dict.fromkeys(refusals, "UnsupportedVersionException"),
    }


# Transactions.


@pytest.mark.parametrize("gap_ms", [0, 1, 3])
def test_sends_go_on_while_a_partition_joins_its_transaction(
    node: NodeProcess, java: Java, topic: str, gap_ms: int
) -> None:
    make(node, topic, partitions=1)
    found = java.run("pipelined", node.server, topic=topic, transactions=TRANSACTIONS, gap_ms=gap_ms)
    assert found["failures"] == []
    kept = [number for number in range(TRANSACTIONS) if number % 5 != 4]
    assert (found["committed"], found["aborted"]) == (len(kept), TRANSACTIONS - len(kept))
    assert found["read"] == [f"committed {number} {at}" for number in kept for at in range(SENDS)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_what_was_written(node: NodeProcess, java: Java, topic: str, protocol: str) -> None:
    source, target = f"{topic}.in", f"{topic}.out"
    make(node, source, target, partitions=2)
    values = [f"v{at}" for at in range(400)]
    write(node, source, values, partitions=2)
    for count in (200, 200):  # the second process goes on where the first one's offsets are
        found = java.run("copy", node.server, input=source, output=target, count=count, protocol=protocol)
        assert found["copied"] >= count or found["copied"] + 200 >= len(values)
    copied = [value for _, value in read(node, target, partitions=2)]
    assert Counter(copied) == Counter(values)


# Share groups.


def test_a_share_consumer_accepts_releases_renews_and_rejects(node: NodeProcess, java: Java, topic: str) -> None:
    with Client(node.http) as client:
        queue = client.queue(topic)
        queue.create(partitions=1)
        bodies = [*(f"m{at}" for at in range(40)), "bad", "later", "slow"]
        queue.send_many(bodies)
        assert java.run("share", node.server, topic=topic, count=len(bodies)) == {
            "done": len(bodies),
            "state": "Stable",
            "members": 1,
            "offsets": 1,
            "moved on": "none",
            "moved back": "InvalidRequestException",  # what is done is not delivered again
            "forgotten": "none",
            "deleted": "none",
            "deliveries": dict.fromkeys(bodies, 1) | {"later": 2, "slow": 2},
            "accepted": dict.fromkeys({*bodies, "slow renewed"} - {"bad"}, 1),
        }


# Streams.


class Counting:
    """The word count in a process of its own."""

    def __init__(self, java: Java, node: NodeProcess, options: dict[str, Any], log: Path) -> None:
        self._command = java.command("wordcount", node.server, options)
        self._log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def end(self, number: signal.Signals) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
            self.process.wait(DEADLINE_S)

    def check_alive(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self._log.read_text(encoding="utf-8")[-6000:]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_streams_word_count_is_exact_over_a_restart(
    node: NodeProcess, java: Java, topic: str, tmp_path: Path, number: signal.Signals
) -> None:
    source, target = f"{topic}.lines", f"{topic}.counts"
    make(node, source, target, partitions=2)
    options = {"application": topic, "input": source, "output": target, "state": tmp_path / "state"}
    counting = Counting(java, node, options, tmp_path / "log")
    lines = [f"w{at % 7} w{at % 5} w{at % 3}" for at in range(600)]
    expected = Counter(word for line in lines for word in line.split())

    def counts() -> dict[str, int]:
        return {key.decode(): int(value) for key, value in read(node, target, partitions=2) if key is not None}

    def wait_counted(words: Counter[str]) -> None:
        def is_counted() -> bool:
            counting.check_alive()
            return counts() == words

        wait_until(is_counted, deadline_s=DEADLINE_S, what=lambda: f"counts of {words}; found {counts()}")

    try:
        counting.start()
        write(node, source, lines[:200], partitions=2)
        wait_counted(Counter(word for line in lines[:200] for word in line.split()))
        write(node, source, lines[200:400], partitions=2)
        counting.end(number)
        counting.start()
        write(node, source, lines[400:], partitions=2)
        wait_counted(expected)
    finally:
        counting.end(signal.SIGKILL)
    # Each count of a word was written once: exactly_once_v2 leaves no repeated step.
    steps = [(key, value) for key, value in read(node, target, partitions=2)]
    assert len(steps) == len(set(steps))
