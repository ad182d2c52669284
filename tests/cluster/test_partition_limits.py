"""How many partitions may be made, at a real node's every door: the error names the limit and the setting."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.compat.sqs import connect
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from typer.testing import CliRunner

from headrace import Client, HeadraceError
from headrace.cli.main import app

SETTINGS = {
    "topics.partitions_max": 4,
    "topics.node_partitions_max": 10,
    "groups.partitions": 3,
    "topics.auto_create": True,
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running(tmp_path / "data", settings=SETTINGS) as started:
        yield started


def kafka_error(call: object) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        call.result(30)  # type: ignore[attr-defined]
    error: KafkaError = caught.value.args[0]
    return error


def fill(node: NodeProcess) -> None:
    """Make queues until the node has no room for another."""
    with Client(node.http) as client:
        for number in range(SETTINGS["topics.node_partitions_max"]):
            client.queue(f"filler-{number}").create(partitions=1)


def test_no_door_makes_more_partitions_than_are_allowed(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    with Client(node.http) as client:
        # One topic's.
        with pytest.raises(HeadraceError, match=r"may have 4 partitions .*topics\.partitions_max.* would have 5"):
            client.queue("wide").create(partitions=5)
        (wide,) = admin.create_topics([NewTopic("wide", 5, 1)]).values()
        error = kafka_error(wide)
        assert error.code() == KafkaError.INVALID_PARTITIONS
        assert "topics.partitions_max" in error.str()
        client.queue("first").create(partitions=4)
        (grown,) = admin.create_partitions([NewPartitions("first", 5)]).values()
        assert "topics.partitions_max" in kafka_error(grown).str()

        # The node's: 4 + 4 of 10.
        (made,) = admin.create_topics([NewTopic("second", 4, 1)]).values()
        made.result(30)
        with pytest.raises(HeadraceError, match=r"has 8 partitions and may have 10 \(topics\.node_partitions_max\)"):
            client.queue("third").create(partitions=3)
        client.queue("third").create(partitions=2)
        (fourth,) = admin.create_topics([NewTopic("fourth", 1, 1)]).values()
        assert "topics.node_partitions_max" in kafka_error(fourth).str()
        (grown,) = admin.create_partitions([NewPartitions("third", 3)]).values()
        assert "topics.node_partitions_max" in kafka_error(grown).str()
        # Neither does a first use.
        with pytest.raises(HeadraceError, match=r"topics\.node_partitions_max"):
            client.queue("fifth").send("x")
        assert "fifth" not in admin.list_topics(timeout=30).topics

        # A group's offsets and a queue's dead letters have to go somewhere, whatever the limits say.
        third = client.queue("third")
        third.send("poison")
        (message,) = third.receive(wait=20)
        message.reject("broken")
        wait_until(lambda: "third-dead" in admin.list_topics(timeout=30).topics, deadline_s=30, what="dead letters")

        # What is deleted makes room.
        (deleted,) = admin.delete_topics(["second"]).values()
        deleted.result(30)
        (fourth,) = admin.create_topics([NewTopic("fourth", 2, 1)]).values()
        fourth.result(30)


def test_a_producer_of_a_topic_that_may_not_be_made_hears_of_it(node: NodeProcess) -> None:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    fill(node)
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": node.server, "message.timeout.ms": 2_000, "log_level": 0})
    producer.produce("unmade", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    assert errors[0] is not None
    assert "unmade" not in admin.list_topics(timeout=30).topics


def test_sqs_and_the_command_line_name_the_limit(node: NodeProcess) -> None:
    fill(node)
    sqs = connect(node)
    with pytest.raises(ClientError, match="as many queues and topics as the configuration allows") as refused:
        sqs.create_queue(QueueName="unmade")
    assert refused.value.response["Error"]["Code"] == "OverLimit"
    result = CliRunner().invoke(app, ["produce", "unmade", "-b", node.server], input="x\n")
    assert result.exit_code == 1
    assert "topics.node_partitions_max" in result.stderr
