"""What clients are told when they ask for what cannot be: the error they have a name for, and never a hang."""

import asyncio
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka import errors as aio_errors
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka import errors as python_errors
from tests.compat.clients import aio
from tests.compat.clients.confluent import quiet
from tests.compat.clients.every import AIOKAFKA, CLIENTS, CONFLUENT, KAFKA_PYTHON, KCAT
from tests.compat.clients.kcat import kcat
from tests.compat.clients.message import DEADLINE_S, Client, Message
from tests.support.node import NodeProcess, running

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
TOPIC_BYTES_MAX = 10_000


@pytest.fixture(scope="module")
def strict_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """One that makes no topic on first use."""
    with running(tmp_path_factory.mktemp("strict") / "data", arguments=["--no-auto-create"]) as started:
        yield started


def create(node: NodeProcess, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": node.server})
    named = {name.replace("_", "."): value for name, value in config.items()}
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=named)]).values():
        future.result(DEADLINE_S)


@every_client
def test_a_message_above_the_topics_limit_is_refused_and_the_next_one_taken(
    node: NodeProcess, topic: str, client: Client
) -> None:
    create(node, topic, max_message_bytes=str(TOPIC_BYTES_MAX))
    large = Message(value=b"x" * (TOPIC_BYTES_MAX + 1))
    expected: dict[str, type[BaseException]] = {
        CONFLUENT.name: KafkaException,
        KAFKA_PYTHON.name: python_errors.MessageSizeTooLargeError,
        AIOKAFKA.name: aio_errors.MessageSizeTooLargeError,
        KCAT.name: AssertionError,
    }
    with pytest.raises(expected[client.name]) as refused:
        client.write(node.server, topic, [large])
    if client is CONFLUENT:
        assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    if client is KCAT:
        assert "Message size too large" in str(refused.value)
    client.write(node.server, topic, [Message(value=b"small")])
    assert [one.value for _, one in client.read(node.server, topic)] == [b"small"]


def test_a_batch_that_compresses_below_the_limit_is_taken(node: NodeProcess, topic: str) -> None:
    create(node, topic, max_message_bytes=str(TOPIC_BYTES_MAX))
    value = b"x" * (TOPIC_BYTES_MAX * 10)
    CONFLUENT.write(node.server, topic, [Message(value=value)], codec="zstd")
    assert [one.value for _, one in CONFLUENT.read(node.server, topic)] == [value]


def test_confluent_is_told_of_an_unknown_topic(strict_node: NodeProcess, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        _confluent_once(strict_node.server, topic)
    assert refused.value.args[0].code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)


def _confluent_once(server: str, topic: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        {"bootstrap.servers": server, "topic.metadata.propagation.max.ms": 500, "error_cb": quiet, "log_level": 0}
    )
    producer.produce(topic, b"lost", on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(DEADLINE_S) == 0
    if errors:
        raise KafkaException(errors[0])


def test_kafka_python_is_told_of_an_unknown_topic(strict_node: NodeProcess, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=strict_node.server, max_block_ms=1000)
    try:
        with pytest.raises((python_errors.KafkaTimeoutError, python_errors.UnknownTopicOrPartitionError)):
            producer.send(topic, b"lost").get(DEADLINE_S)
    finally:
        producer.close(DEADLINE_S)


def test_aiokafka_is_told_of_an_unknown_topic(strict_node: NodeProcess, topic: str) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=strict_node.server, request_timeout_ms=1000)
        await producer.start()
        try:
            with pytest.raises((aio_errors.KafkaTimeoutError, aio_errors.UnknownTopicOrPartitionError)):
                await producer.send_and_wait(topic, b"lost")
        finally:
            await producer.stop()

    aio.run(send())


def test_kcat_is_told_of_an_unknown_topic(strict_node: NodeProcess, topic: str) -> None:
    done = kcat(
        *("-P", "-b", strict_node.server, "-t", topic, "-X", "topic.metadata.propagation.max.ms=500"),
        *("-X", "message.timeout.ms=5000"),
        input=b"lost\n",
        is_checked=False,
    )
    assert done.returncode != 0
    assert b"nknown topic" in done.stderr


def test_no_client_made_a_topic_where_that_is_off(strict_node: NodeProcess, topic: str) -> None:
    with pytest.raises(KafkaException):
        _confluent_once(strict_node.server, topic)
    admin = AdminClient({"bootstrap.servers": strict_node.server})
    assert admin.list_topics(timeout=DEADLINE_S).topics == {}


@every_client
def test_first_use_makes_a_topic_where_that_is_on(node: NodeProcess, topic: str, client: Client) -> None:
    client.write(node.server, topic, [Message(value=b"first")])
    assert [one.value for _, one in client.read(node.server, topic)] == [b"first"]


def test_a_name_that_no_topic_may_have_is_refused(node: NodeProcess) -> None:
    listed = kcat("-L", "-b", node.server, "-t", "no spaces")
    assert b'topic "no spaces" with 0 partitions: Broker: Invalid topic' in listed.stdout


def test_a_message_for_a_name_that_no_topic_may_have_is_refused(node: NodeProcess) -> None:
    done = kcat(
        *("-P", "-b", node.server, "-t", "no spaces", "-X", "message.timeout.ms=5000"),
        input=b"lost\n",
        is_checked=False,
    )
    assert done.returncode != 0
    # kcat asks for the topic before it reads its input. A message that is read before the answer comes fails with the
    # node's error; one that is read after it is refused by librdkafka itself, which has kept that there is no such
    # topic and not why.
    assert b"Broker: Invalid topic" in done.stderr or b"Local: Unknown topic" in done.stderr


def test_nothing_of_all_this_stopped_the_node(node: NodeProcess, topic: str) -> None:
    async def two_at_once() -> None:
        await asyncio.gather(*(asyncio.to_thread(one.read, node.server, topic) for one in (CONFLUENT, KAFKA_PYTHON)))

    CONFLUENT.write(node.server, topic, [Message(value=b"alive")])
    asyncio.run(two_at_once())
    assert node.exit_code() is None
    assert not [line for line in node.log_lines() if line["level"] in ("error", "critical")]
