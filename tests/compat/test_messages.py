"""What one client wrote, every client reads identically: by offset and by time, with every codec."""

import random
import time
from collections.abc import Sequence

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat.clients.every import CLIENTS, CONFLUENT, KCAT
from tests.compat.clients.message import DEADLINE_S, Client, Message, Stored
from tests.support.node import NodeProcess

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Of a day ago: retention takes what is older than a week.
BEGIN_MS = time.time_ns() // 1_000_000 - 86_400_000

every_client = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
every_codec = pytest.mark.parametrize("codec", CODECS)


def corpus() -> list[Message]:
    """Everything that a message may be, with times that go forward, stand and go back."""
    noise = random.Random(7).randbytes
    shapes = [
        Message(value=b"plain"),
        Message(value=b"keyed", key=b"key"),
        Message(value=b"", key=b"empty value"),
        Message(value=None, key=b"null value"),
        Message(value=b"empty key", key=b""),
        Message(value=None, key=b""),
        Message(value="Grüße, 世界, 👋".encode(), key="clé-ключ".encode()),
        Message(value=bytes(range(256)), key=bytes(reversed(range(256)))),
        Message(value=b"one header", headers=(("trace", b"abc"),)),
        Message(value=b"odd headers", headers=(("empty", b""), ("ключ", "значение".encode()))),
        Message(value=b"a null header", headers=(("null", None),)),
        Message(value=b"a header twice", headers=(("same", b"1"), ("same", b"2"))),
        Message(value=b"compressible " * 10_000, key=b"text"),
        Message(value=noise(700_000), key=b"incompressible"),
        Message(value=noise(100), key=noise(1000)),
        *(Message(value=b"%d" % number, key=b"%d" % (number % 7)) for number in range(200)),
    ]
    steps_ms = [0, 1, 1000, -500, 0, 60_000]
    times_ms = [BEGIN_MS + sum((steps_ms * 100)[: at + 1]) for at in range(len(shapes))]
    return [
        Message(value=shape.value, key=shape.key, headers=shape.headers, timestamp_ms=timestamp_ms)
        for shape, timestamp_ms in zip(shapes, times_ms, strict=True)
    ]


def writable(client: Client) -> list[Message]:
    """As much of the corpus as a client can express."""
    messages = corpus()
    if client is KCAT:
        messages = [
            Message(value=message.value, key=message.key, headers=message.headers)
            for message in messages
            if not any(name == "same" for name, _ in message.headers)
        ]
    return [message for message in messages if client.can_write(message)]


def first_at(stored: Sequence[Stored], timestamp_ms: int) -> int | None:
    """The rule of every lookup by time: the first message, in the log's order, that is not older."""
    return next((offset for offset, one in stored if (one.timestamp_ms or 0) >= timestamp_ms), None)


@every_client
@every_codec
def test_what_one_client_wrote_every_client_reads_identically(
    node: NodeProcess, topic: str, client: Client, codec: str
) -> None:
    messages = writable(client)
    before_ms = time.time_ns() // 1_000_000
    offsets = client.write(node.server, topic, messages, codec=codec)
    after_ms = time.time_ns() // 1_000_000
    if client is not KCAT:
        assert offsets == list(range(len(messages)))

    read = {reader.name: reader.read(node.server, topic) for reader in CLIENTS}

    stored = read["confluent-kafka"]
    for name, found in read.items():
        assert found == stored, f"{name} reads something else than confluent-kafka"
    assert [offset for offset, _ in stored] == list(range(len(messages)))
    for message, (_, found_message) in zip(messages, stored, strict=True):
        expected_ms = message.timestamp_ms
        if expected_ms is None:
            assert found_message.timestamp_ms is not None
            assert before_ms <= found_message.timestamp_ms <= after_ms
            expected_ms = found_message.timestamp_ms
        assert found_message == Message(
            value=message.value, key=message.key, headers=message.headers, timestamp_ms=expected_ms
        )


@pytest.mark.parametrize("compression_type", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_every_client_reads_what_was_compressed_again_on_arrival(
    node: NodeProcess, topic: str, compression_type: str
) -> None:
    settings = {"compression.type": compression_type, "max.message.bytes": "4000000"}
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(DEADLINE_S)
    messages = corpus()
    for codec in CODECS:
        CONFLUENT.write(node.server, topic, messages, codec=codec)
    for reader in CLIENTS:
        found = [one for _, one in reader.read(node.server, topic)]
        assert found == messages * len(CODECS), f"{reader.name} reads something else"


@every_client
def test_reading_begins_at_any_offset_and_at_any_time(node: NodeProcess, topic: str, client: Client) -> None:
    writer = CLIENTS[0]
    for codec in CODECS:
        writer.write(node.server, topic, corpus()[-60:], codec=codec)
    stored = writer.read(node.server, topic)
    assert len(stored) == 60 * len(CODECS)

    for offset in (1, 59, 60, 61, 150, len(stored) - 1, len(stored)):
        assert client.read(node.server, topic, offset=offset) == stored[offset:]

    times_ms = sorted({one.timestamp_ms or 0 for _, one in stored})
    for timestamp_ms in (0, times_ms[0], times_ms[7] + 1, times_ms[30], times_ms[-1], times_ms[-1] + 1):
        expected = first_at(stored, timestamp_ms)
        found = client.offset_at(node.server, topic, timestamp_ms)
        if expected is None and client is KCAT:
            # kcat hands on librdkafka's answer for "none", which is the end.
            assert found in (None, len(stored))
        else:
            assert found == expected, f"at {timestamp_ms}"
        if found is not None:
            assert client.read(node.server, topic, offset=found) == stored[found:]


@every_client
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores(node: NodeProcess, topic: str, client: Client, acks: str) -> None:
    messages = [Message(value=b"%d" % number) for number in range(50)]
    if acks == "0":
        # A producer that waits for nothing is given a topic that is there.
        CLIENTS[0].write(node.server, topic, [Message(value=b"first")])
        messages = [Message(value=b"first"), *messages]
        client.write(node.server, topic, messages[1:], acks=acks)
    else:
        client.write(node.server, topic, messages, acks=acks)
    found = client.read(node.server, topic)
    end_s = time.monotonic() + 10
    while len(found) < len(messages) and time.monotonic() < end_s:
        found = client.read(node.server, topic)
    assert [one.value for _, one in found] == [message.value for message in messages]


@every_client
def test_idempotent_producers_store_each_message_once_and_in_order(
    node: NodeProcess, topic: str, client: Client
) -> None:
    messages = [Message(value=b"%d" % number, key=b"k") for number in range(2000)]
    client.write(node.server, topic, messages, is_idempotent=True)
    client.write(node.server, topic, messages[:10], is_idempotent=True, codec="zstd")
    found = client.read(node.server, topic)
    assert [one.value for _, one in found] == [message.value for message in messages + messages[:10]]


@every_client
def test_a_value_that_just_fits_is_taken(node: NodeProcess, topic: str, client: Client) -> None:
    # Less the batch's header and the record's own lengths, this fills the 1 MiB that a topic takes by default.
    value = random.Random(1).randbytes(1024 * 1024 - 80).replace(b"\x1e", b"-").replace(b"\x1f", b"-")
    client.write(node.server, topic, [Message(value=value)])
    for reader in CLIENTS:
        assert [one.value for _, one in reader.read(node.server, topic)] == [value]


@pytest.mark.parametrize("client", [CLIENTS[0]], ids=lambda client: client.name)
def test_a_message_without_key_and_value_is_kept(node: NodeProcess, topic: str, client: Client) -> None:
    client.write(node.server, topic, [Message(value=None), Message(value=b"after")])
    for reader in CLIENTS:
        assert [one.value for _, one in reader.read(node.server, topic)] == [None, b"after"]
