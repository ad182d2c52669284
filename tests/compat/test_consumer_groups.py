"""The group protocol of KIP-848 with librdkafka and Java: members come, go, are killed and paused, the node restarts.

No partition is ever read by two, whoever keeps a partition goes on reading it, and nothing is lost.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.compat.clients.message import DEADLINE_S
from tests.compat.consumer_watch import ConsumerWatch, reading
from tests.compat.group_watch import JAVA
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from tests.support.wire import Wire

from headrace.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest

# So that a test need not wait as long as a user would.
QUICK = {"groups.consumer_heartbeat_interval_ms": 200, "groups.consumer_session_timeout_ms": 6000}


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that a test may kill."""
    with running(tmp_path / "data", settings=QUICK) as started:
        yield started


@pytest.fixture(scope="module")
def quick_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("consumer") / "data", settings=QUICK) as started:
        yield started


def make(node: NodeProcess, topic: str, partitions: int) -> None:
    with Wire(node.server) as wire:
        answer = wire.ask(19, 5, CreateTopicsRequest((CreatableTopic(topic, partitions, 1),)))
        assert answer.topics[0].error_code == 0


def write(node: NodeProcess, topic: str, count: int, *, partitions: int) -> set[bytes]:
    producer = Producer({"bootstrap.servers": node.server, "log_level": 0})
    values = [b"%s-%d" % (topic.encode(), number) for number in range(count)]
    for number, value in enumerate(values):
        producer.produce(topic, value=value, partition=number % partitions)
    assert producer.flush(20) == 0
    return set(values)


@pytest.mark.parametrize("client", ["confluent-kafka", JAVA])
def test_a_group_reads_everything_while_members_and_node_come_and_go(
    own_node: NodeProcess, tmp_path: Path, client: str, request: pytest.FixtureRequest
) -> None:
    java = request.getfixturevalue("java") if client == JAVA else None
    with ConsumerWatch(own_node.server, "orders", tmp_path, partitions=6, java=java).running() as watch:
        first, second = watch.join(client), watch.join(client)
        watch.wait_stable(2)
        third = watch.join(client)
        watch.wait_stable(3)
        second.end(signal.SIGKILL)
        watch.wait_stable(2)
        first.send(signal.SIGSTOP)
        watch.wait_stable(1)
        first.send(signal.SIGCONT)
        before = watch.wait_stable(2)
        own_node.kill()
        own_node.start()
        assert watch.wait_stable(2) == before, "members and assignment are the node's to remember"
        watch.join(client)
        watch.wait_stable(3)
        third.end(signal.SIGTERM)
        watch.wait_stable(2)
        watch.finish()


def test_three_members_share_twelve_partitions_and_only_what_must_move_moves(
    quick_node: NodeProcess, topic: str
) -> None:
    make(quick_node, topic, 12)
    expected = write(quick_node, topic, 600, partitions=12)
    with reading(quick_node.server, topic) as group:
        readers = group.readers
        group.join("a", topic)
        readers.wait_shares([12])
        group.join("b", topic)
        two = readers.wait_shares([6, 6])
        third = group.join("c", topic)
        three = readers.wait_shares([4, 4, 4])
        assert three["a"] <= two["a"]
        assert three["b"] <= two["b"]
        moves = [name for name, what, _ in readers.moved if what == "given up"]
        assert sorted(moves) == ["a"] * 8 + ["b"] * 2, "nobody gave up what it kept"
        third.leave()
        readers.wait_shares([6, 6])
        wait_until(lambda: expected <= readers.values, deadline_s=20.0, what="everything is read")


def test_a_subscription_by_expression_finds_topics_that_come_later(quick_node: NodeProcess, topic: str) -> None:
    first, later, other = f"{topic}.eu", f"{topic}.us", f"other-{topic}"
    for name in (first, other):
        make(quick_node, name, 2)
    expected = write(quick_node, first, 10, partitions=2)
    write(quick_node, other, 10, partitions=2)
    with reading(quick_node.server, topic) as group:
        group.join("a", f"^{topic}[.].*")
        group.readers.wait_shares([2])
        make(quick_node, later, 2)
        expected |= write(quick_node, later, 10, partitions=2)
        group.readers.wait_shares([4])
        wait_until(lambda: group.readers.values == expected, deadline_s=20.0, what="both topics are read")
        (member,) = group.describe().members
        assert member.subscribed_topic_regex, "the coordinator matches the expression, not the client"


def test_a_static_member_that_restarts_comes_back_to_its_partitions(quick_node: NodeProcess, topic: str) -> None:
    make(quick_node, topic, 4)
    with reading(quick_node.server, topic) as group:
        readers = group.readers
        group.join("a", topic, **{"group.instance.id": "one"})
        second = group.join("b", topic, **{"group.instance.id": "two"})
        before = readers.wait_shares([2, 2])
        wait_until(lambda: group.describe().group_state == "Stable", deadline_s=20.0, what="a stable group")
        epoch = group.describe().group_epoch
        second.leave()
        readers.wait_shares([2])
        group.join("b", topic, **{"group.instance.id": "two"})
        assert readers.wait_shares([2, 2]) == before
        assert group.describe().group_epoch == epoch, "the others have heard nothing of it"


def test_a_consumer_that_assigns_partitions_to_itself_commits_what_it_read(quick_node: NodeProcess, topic: str) -> None:
    """With `group.protocol=consumer` librdkafka commits with a member id of its own, of which the node never heard."""
    make(quick_node, topic, 1)
    write(quick_node, topic, 3, partitions=1)
    settings = {"bootstrap.servers": quick_node.server, "group.id": topic, "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer(settings | {"group.protocol": "consumer"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        (first,) = consumer.consume(1, DEADLINE_S)
        (told,) = consumer.commit(first, asynchronous=False)
        assert (told.error, told.offset) == (None, 1)
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=DEADLINE_S)
        assert found.offset == 1
    finally:
        consumer.close()
