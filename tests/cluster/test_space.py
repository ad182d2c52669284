"""A disk that fills up: sends are refused early, the rest goes on, and sends return with the space (row 21)."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from tests.cluster.produce import NONE, STORAGE_ERROR, make_topic, must_send, send
from tests.compat.clients.every import CONFLUENT
from tests.support.node import running
from tests.support.wait import wait_until

MIB = 1024 * 1024
_MEMORY = Path("/dev/shm")


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one: its free space moves less than a disk's that others use too."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else tmp_path
    directory = Path(tempfile.mkdtemp(prefix="headrace-space-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def free_bytes(directory: Path) -> int:
    status = os.statvfs(directory)
    return status.f_bavail * status.f_frsize


def test_a_full_disk_refuses_sends_early_and_takes_them_again_when_there_is_space(volume: Path) -> None:
    free = free_bytes(volume)
    margin = min(64 * MIB, free // 4)
    settings = {
        "log.journal_bytes": MIB,
        "log.disk_reserve_bytes": free - margin,
        "log.disk_check_interval_ms": 50,
    }
    with running(volume / "data", settings=settings) as node:
        make_topic(node, "kept")
        make_topic(node, "dropped")
        must_send(node, "kept", b"second")
        filler = volume / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, margin + margin // 2)
        node.wait_said("disk reserve reached")

        answer = send(node, "kept", b"refused")
        assert answer.error_code == STORAGE_ERROR
        assert "reserve" in str(answer.error_message)
        assert [one.value for _, one in CONFLUENT.read(node.server, "kept")] == [b"first", b"second"]
        admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
        (deleted,) = admin.delete_records([TopicPartition("kept", 0, 1)]).values()
        assert deleted.result(10).low_watermark == 1
        (gone,) = admin.delete_topics(["dropped"]).values()
        gone.result(10)

        filler.unlink()
        node.wait_said("disk has space again")
        wait_until(lambda: send(node, "kept", b"third").error_code == NONE, deadline_s=20, what="sends are taken")
        values = [one.value for _, one in CONFLUENT.read(node.server, "kept", offset=1)]
        assert values == [b"second", b"third"]
