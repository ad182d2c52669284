"""Files of a real node's data directory that are gone when it starts again: none goes unnoticed.

The checker knows what the client was told. A start either serves all of it, or says which file is missing: in its
health, in its log, or by refusing to start. What is only a cache is made anew.
"""

import json
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

from headrace import Client

TOPIC = "precious"
COUNT = 600
SETTINGS = {"log.journal_bytes": 1 << 20, "log.maintenance_interval_ms": 100}


class Image(NamedTuple):
    """A data directory, and what was acknowledged at which offset."""

    data: Path
    acknowledged: dict[int, bytes]


@pytest.fixture(scope="module", params=["killed", "stopped"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Image:
    data = tmp_path_factory.mktemp("missing") / "data"
    with running(data, settings=SETTINGS) as node:
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        topic = NewTopic(TOPIC, 1, config={"segment.bytes": "16384"})
        admin.create_topics([topic])[TOPIC].result(30)
        acknowledged: dict[int, bytes] = {}
        producer = Producer({"bootstrap.servers": node.server, "linger.ms": 1, "batch.num.messages": 5, "log_level": 0})

        def told(error: KafkaError | None, message: object) -> None:
            assert error is None, error
            acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]

        def send(count: int) -> None:
            for number in range(count):
                producer.produce(TOPIC, b"%d " % number + b"x" * 300, on_delivery=told)
            assert producer.flush(30) == 0

        send(COUNT)
        directory = partition_directory(data)
        wait_until(lambda: (directory / "checkpoint").exists(), deadline_s=30, what="the first checkpoint")
        with Client(node.http) as client:
            client.queue("work").send({"cups": 1})
        send(COUNT // 10)  # what the journal alone holds, where the node is killed
        if request.param == "killed":
            node.kill()
        else:
            assert node.stop() == 0
    assert len(acknowledged) == COUNT + COUNT // 10
    return Image(data, acknowledged)


def partition_directory(data: Path) -> Path:
    """Of the partition that holds the most."""
    found = (data / "partitions").iterdir()
    return max(found, key=lambda path: sum(file.stat().st_size for file in path.glob("*.log")))


def remove(*paths: Path) -> Path:
    """Returns the first."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    return paths[0]


def segments(data: Path) -> list[Path]:
    return sorted(partition_directory(data).glob("*.log"))


MESSAGES: dict[str, Callable[[Path], Path]] = {
    "oldest segment": lambda data: remove(segments(data)[0]),
    "middle segment": lambda data: remove(segments(data)[len(segments(data)) // 2]),
    "newest segment": lambda data: remove(segments(data)[-1]),
    "all segments": lambda data: remove(*segments(data)).parent,
    "partition": lambda data: remove(partition_directory(data)),
    "partition and the list": lambda data: remove(partition_directory(data), data / "made"),
}
JOURNAL: dict[str, Callable[[Path], Path]] = {
    "journal file": lambda data: remove(data / "journal" / "0.journal"),
    "journal": lambda data: remove(*sorted((data / "journal").iterdir())),
    "journal's folder": lambda data: remove(data / "journal"),
    "journal and its list": lambda data: remove(data / "journal", data / "journal-files"),
}
CACHES: dict[str, Callable[[Path], Path]] = {
    "indexes": lambda data: remove(*data.glob("partitions/*/*index")),
    "snapshots": lambda data: remove(*data.glob("partitions/*/folds/*.snapshot")),
    "folders of snapshots": lambda data: remove(*data.glob("partitions/*/folds")),
    "checkpoint": lambda data: remove(partition_directory(data) / "checkpoint"),
    "list of partitions": lambda data: remove(data / "made"),
    "list of journal files": lambda data: remove(data / "journal-files"),
    "identity": lambda data: remove(data / "node.toml"),
}


def copied(image: Image, tmp_path: Path) -> Path:
    return Path(shutil.copytree(image.data, tmp_path / "data"))


def health(node: NodeProcess) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{node.http}/health", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def read_all(node: NodeProcess) -> dict[int, bytes]:
    consumer = Consumer(
        {"bootstrap.servers": node.server, "group.id": "check", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: dict[int, bytes] = {}
    while True:
        message = consumer.poll(60)
        assert message is not None, "the node sends nothing more"
        if message.error() is not None:
            break
        offset, value = message.offset(), message.value()
        assert offset is not None
        assert value is not None
        found[offset] = value
    consumer.close()
    return found


@pytest.mark.parametrize("what", MESSAGES)
def test_missing_messages_are_told_in_health_and_log_with_their_file(image: Image, tmp_path: Path, what: str) -> None:
    data = copied(image, tmp_path)
    lost = MESSAGES[what](data)
    with running(data, settings=SETTINGS) as node:
        status, body = health(node)
        if status == 200 and what == "newest segment":  # the journal had all of it
            assert read_all(node) == image.acknowledged
            return
        print(f"without {what}: health {status}, {json.loads(body)['reasons'][0]['detail']}")
        assert status == 503
        assert str(lost) in body
        assert "restore" in body or "put it back" in body
        assert node.said("partition refused to open")
        with Client(node.http) as client:  # the others are served
            assert [message.json() for message in client.queue("work").receive(wait=5)] == [{"cups": 1}]


@pytest.mark.parametrize("what", JOURNAL)
def test_a_node_that_lacks_its_journal_after_a_kill_does_not_start_and_says_why(
    image: Image, tmp_path: Path, what: str, request: pytest.FixtureRequest
) -> None:
    data = copied(image, tmp_path)
    JOURNAL[what](data)
    if "stopped" in request.node.name:  # nothing of it counts then
        with running(data, settings=SETTINGS) as node:
            assert health(node)[0] == 200
            assert read_all(node) == image.acknowledged
        return
    node = NodeProcess(data, settings=SETTINGS)
    node.launch()
    try:
        assert node.wait_exit(deadline_s=60) == 1
    finally:
        node.clean_up()
    print(f"without {what}: {node.log_text().splitlines()[-1]}")
    assert f"{data}/journal/0.journal" in node.log_text()
    assert f"make an empty file {data}/journal/0.journal.lost to start without them" in node.log_text()
    (data / "journal").mkdir(exist_ok=True)
    for name in ("0.journal", "1.journal"):
        (data / "journal" / f"{name}.lost").touch()
    with running(data, settings=SETTINGS) as node:
        found = read_all(node)
        assert found.items() <= image.acknowledged.items()


@pytest.mark.parametrize("what", CACHES)
def test_what_can_be_made_anew_is_and_nothing_is_lost(image: Image, tmp_path: Path, what: str) -> None:
    data = copied(image, tmp_path)
    CACHES[what](data)
    with running(data, settings=SETTINGS) as node:
        assert health(node)[0] == 200
        assert read_all(node) == image.acknowledged
        assert node.stop() == 0
        assert not node.said("checkpoint failed")


def test_a_node_does_not_begin_anew_over_messages_without_metadata(image: Image, tmp_path: Path) -> None:
    data = copied(image, tmp_path)
    remove(*data.glob("metadata.sqlite*"), data / "node.toml")
    node = NodeProcess(data, settings=SETTINGS)
    node.launch()
    try:
        assert node.wait_exit(deadline_s=60) == 1
    finally:
        node.clean_up()
    assert "its metadata.sqlite is missing; restore that file" in node.log_text()


def test_a_partition_whose_folder_goes_while_the_node_runs_is_told_in_health_and_log(
    image: Image, tmp_path: Path
) -> None:
    data = copied(image, tmp_path)
    with running(data, settings=SETTINGS) as node:
        shutil.rmtree(partition_directory(data))
        producer = Producer({"bootstrap.servers": node.server, "message.timeout.ms": 1000, "log_level": 0})
        for _ in range(4):  # more than a segment takes
            producer.produce(TOPIC, b"x" * 8192)
            producer.flush(30)
        status, said = health(node)
        (warning,) = json.loads(said)["warnings"]
        assert status == 200
        assert warning["code"] == "partition_not_written"
        assert f"{TOPIC}-0" in warning["detail"]
        assert "No such file or directory" in warning["detail"]
        node.wait_said("a partition's files cannot be written")
