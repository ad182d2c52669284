"""Compacted topics with real clients: a table comes out right whatever happens while it is compacted."""

import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from tests.compat.clients.confluent import make_consumer, quiet
from tests.compat.clients.every import CLIENTS, CONFLUENT
from tests.compat.clients.message import DEADLINE_S, Client, Message
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

TOPIC = "table"
KEYS = 40
SEGMENT_BYTES = 32 * 1024
VALUE_BYTES = 300
EAGER = {
    "cleanup.policy": "compact",
    "segment.bytes": str(SEGMENT_BYTES),
    "min.cleanable.dirty.ratio": "0.2",
    "delete.retention.ms": "60000",
}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node of its own, which looks after its logs often."""
    with running(tmp_path / "data", settings={"log.maintenance_interval_ms": 50}) as started:
        yield started


def create(node: NodeProcess, **settings: str) -> None:
    config = EAGER | {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(DEADLINE_S)


def disk_bytes(node: NodeProcess) -> int:
    """Bytes in all segments. One may go while they are counted."""
    size = 0
    for path in (node.data / "partitions").rglob("*.log"):
        try:
            size += path.stat().st_size
        except FileNotFoundError:
            continue
    return size


class Writer:
    """Sets and removes keys at random, and knows from the acknowledgements what the table is."""

    def __init__(self, server: str, seed: int = 1) -> None:
        self._chooser = random.Random(seed)
        self._written: dict[int, tuple[bytes, bytes | None]] = {}
        self.failed: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": server,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "compression.type": "lz4",
                "message.timeout.ms": 60_000,
                "error_cb": quiet,
                "log_level": 0,
            }
        )

    def write(self, count: int) -> None:
        for number in range(count):
            key = b"key %d" % self._chooser.randrange(KEYS)
            value = None if self._chooser.random() < 0.1 else b"%d " % number + self._chooser.randbytes(VALUE_BYTES)
            self._producer.produce(TOPIC, partition=0, key=key, value=value, on_delivery=self._delivered)
            if number % 50 == 49:
                self._producer.flush(60)

    def _delivered(self, error: KafkaError | None, message: object) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self._written[message.offset()] = (message.key(), message.value())  # type: ignore[attr-defined]

    @property
    def end(self) -> int:
        return max(self._written, default=-1) + 1

    def table(self) -> dict[bytes, bytes]:
        assert self._producer.flush(60) == 0
        assert not self.failed
        return table([pair for _, pair in sorted(self._written.items())])


def table(pairs: Sequence[tuple[bytes | None, bytes | None]]) -> dict[bytes, bytes]:
    rebuilt: dict[bytes, bytes] = {}
    for key, value in pairs:
        assert key is not None
        if value is None:
            rebuilt.pop(key, None)
        else:
            rebuilt[key] = value
    return rebuilt


class Follower:
    """Reads from the beginning and on, in a thread, as a service does that keeps the table in memory."""

    def __init__(self, server: str) -> None:
        self.position = 0
        self.pairs: list[tuple[bytes | None, bytes | None]] = []
        self.failed: list[str] = []
        self._consumer: Consumer = make_consumer(server)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while not self._ended.is_set():
            for message in self._consumer.consume(500, timeout=0.05):
                if message.error() is not None:
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        self.failed.append(str(message.error()))
                    continue
                if message.offset() < self.position:
                    self.failed.append(f"{message.offset()} after {self.position}")
                self.pairs.append((message.key(), message.value()))
                self.position = message.offset() + 1
        self._consumer.close()

    def stop_at(self, end: int) -> None:
        try:
            wait_until(lambda: self.position >= end, deadline_s=DEADLINE_S, what=lambda: f"{self.position} of {end}")
        finally:
            self._ended.set()
            self._thread.join()
        assert not self.failed


def wait_compacted(node: NodeProcess, bytes_max: int) -> None:
    wait_until(
        lambda: disk_bytes(node) < bytes_max,
        deadline_s=DEADLINE_S,
        what=lambda: f"{disk_bytes(node)} bytes are less than {bytes_max}; the node says:\n{node.log_text()}",
    )


def test_every_client_rebuilds_the_table_that_was_written_while_it_was_compacted(node: NodeProcess) -> None:
    create(node)
    writer, follower = Writer(node.server), Follower(node.server)
    largest = 0
    for _ in range(12):
        writer.write(500)
        largest = max(largest, disk_bytes(node))
    expected = writer.table()
    follower.stop_at(writer.end)
    assert table(follower.pairs) == expected
    wait_compacted(node, 6 * SEGMENT_BYTES)
    assert len(node.said("compacted a partition")) > 3
    assert largest < 1_000_000, "what is on disk is bounded while two megabytes are written"
    for client in CLIENTS:
        found = client.read(node.server, TOPIC)
        assert len(found) < 3000
        assert table([(message.key, message.value) for _, message in found]) == expected
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        wait_until(
            lambda client=client: reads_from_gaps(node, client),  # type: ignore[misc]
            deadline_s=DEADLINE_S,
            what="nothing is compacted during a few reads",
        )


def reads_from_gaps(node: NodeProcess, client: Client) -> bool:
    """Read from offsets that are gone, and from those that are there. False: it was compacted meanwhile."""

    def offsets_from(start: int) -> list[int]:
        return [offset for offset, _ in client.read(node.server, TOPIC, offset=start)]

    offsets = offsets_from(0)
    starts = (1, offsets[0] + 1, offsets[len(offsets) // 2] - 1)
    found = [offsets_from(start) for start in starts]
    if offsets_from(0) != offsets:
        return False
    assert found == [[offset for offset in offsets if offset >= start] for start in starts]
    return True


def test_the_table_survives_a_node_that_is_killed_while_it_is_compacted(node: NodeProcess) -> None:
    create(node)
    writer = Writer(node.server, seed=2)
    for _ in range(5):
        writing = threading.Thread(target=writer.write, args=(600,))
        writing.start()
        node.wait_said("cleaned segments", deadline_s=DEADLINE_S)
        node.kill()
        node.start()
        writing.join()
    expected = writer.table()
    for _ in range(2):
        found = CONFLUENT.read(node.server, TOPIC)
        assert table([(message.key, message.value) for _, message in found]) == expected
        assert not node.said("partition refused to open")
        wait_compacted(node, 6 * SEGMENT_BYTES)
        node.kill()
        node.start()


def test_tombstones_go_when_their_time_is_over(node: NodeProcess) -> None:
    create(node, delete_retention_ms="300", segment_ms="300")
    keys = [b"key %d" % number for number in range(20)]
    for value in (b"set", None):
        CONFLUENT.write(node.server, TOPIC, [Message(key=key, value=value) for key in keys])

    def tombstones() -> int:
        # Something has to be written, so that the file which is written to is closed.
        CONFLUENT.write(node.server, TOPIC, [Message(key=b"clock", value=b"tick")])
        return len([message for _, message in CONFLUENT.read(node.server, TOPIC) if message.value is None])

    assert tombstones() == 20
    wait_until(lambda: tombstones() == 0, deadline_s=DEADLINE_S, what="the tombstones are gone")
    assert {message.key for _, message in CONFLUENT.read(node.server, TOPIC)} == {b"clock"}


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.name != "kcat"], ids=lambda client: client.name
)
def test_a_message_without_a_key_is_refused(node: NodeProcess, client: Client) -> None:
    create(node)
    # aiokafka has no name for this code.
    with pytest.raises(Exception, match=r"INVALID_RECORD|InvalidRecord|validate record|UnknownError"):
        client.write(node.server, TOPIC, [Message(value=b"v")])
    client.write(node.server, TOPIC, [Message(key=b"k", value=b"v")])
    assert [offset for offset, _ in client.read(node.server, TOPIC)] == [0]


def test_a_topic_is_compacted_from_the_moment_that_it_is_asked_to_be(node: NodeProcess) -> None:
    create(node, cleanup_policy="delete")
    writer = Writer(node.server, seed=3)
    writer.write(1500)
    expected = writer.table()
    before = disk_bytes(node)
    admin = AdminClient({"bootstrap.servers": node.server})
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    described = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert described["cleanup.policy"].value == "delete"
    assert described["min.cleanable.dirty.ratio"].value == "0.2"
    resource.add_incremental_config(
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    )
    admin.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
    wait_compacted(node, before // 2)
    found = CONFLUENT.read(node.server, TOPIC)
    assert table([(message.key, message.value) for _, message in found]) == expected


def test_wrong_settings_of_compaction_are_refused(node: NodeProcess) -> None:
    for settings in (
        {"cleanup.policy": "compact,squash"},
        {"min.cleanable.dirty.ratio": "1.5"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    ):
        with pytest.raises(KafkaException) as raised:
            create(node, **{name.replace(".", "_"): value for name, value in settings.items()})
        assert raised.value.args[0].code() == KafkaError.INVALID_CONFIG
