"""A real node on a disk that fails: syncs with errors, writes without room, syncs that take long (rows 15, 22, 24)."""

import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.produce import (
    STORAGE_ERROR,
    journals,
    make_topic,
    must_send,
    send,
    touch_metadata,
)
from tests.compat.clients.every import CONFLUENT
from tests.support.node import HEADRACE, NodeProcess, running
from tests.support.strace import injected
from tests.support.wire import Wire

from headrace.log.config import LogConfig

LARGE = b"x" * LogConfig().journal_append_bytes_max  # more than goes through the journal
SYNC = "fdatasync"
WRITE_THROUGH = "pwritev2"  # the journal's write and sync in one
WRITE = "pwritev,pwritev2"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running(tmp_path / "data") as started:
        yield started


def values(node: NodeProcess, topic: str) -> list[bytes | None]:
    stored = CONFLUENT.read(node.server, topic)
    assert [offset for offset, _ in stored] == list(range(len(stored)))
    return [one.value for _, one in stored]


def verify(node: NodeProcess) -> None:
    """The files of a stopped node are sound."""
    done = subprocess.run([*HEADRACE, "log", "verify", str(node.data), "--deep"], capture_output=True, timeout=30)
    assert done.returncode == 0, done.stdout + done.stderr


def restart(node: NodeProcess) -> None:
    assert node.stop() == 0, node.log_text()
    node.start()


@pytest.mark.parametrize("lane", ["journal", "segment"])
def test_a_failed_sync_is_never_acknowledged_and_takes_only_its_partition_offline(
    node: NodeProcess, tmp_path: Path, lane: str
) -> None:
    segment = make_topic(node, "struck")
    make_topic(node, "spared")
    if lane == "journal":
        value, call, paths = b"doubtful", WRITE_THROUGH, journals(node)
    else:
        value, call, paths = LARGE, SYNC, [segment]

    with injected(node.pid, call, "error=EIO", tmp_path / "trace", paths=paths):
        answer = send(node, "struck", value)
    assert answer.error_code == STORAGE_ERROR
    assert "offline" in str(answer.error_message)

    # Never tried again: the disk is well by now, and still nobody believes in what that sync left.
    assert send(node, "struck", b"refused").error_code == STORAGE_ERROR
    assert must_send(node, "spared", b"small") == 1
    assert must_send(node, "spared", LARGE) == 2
    assert values(node, "spared") == [b"first", b"small", LARGE]

    restart(node)
    assert values(node, "struck") in ([b"first"], [b"first", value])
    assert values(node, "spared") == [b"first", b"small", LARGE]
    must_send(node, "struck", b"after")
    assert values(node, "struck")[-1] == b"after"


def test_a_partition_that_goes_offline_is_said_in_the_log(node: NodeProcess, tmp_path: Path) -> None:
    segment = make_topic(node, "struck")
    with injected(node.pid, WRITE_THROUGH, "error=EIO", tmp_path / "trace", paths=journals(node)):
        assert send(node, "struck", b"doubtful").error_code == STORAGE_ERROR
    line = node.wait_said("offline")
    assert line["level"] in ("error", "critical")
    assert segment.parent.name in str(line)


def test_a_disk_that_syncs_nothing_is_not_acknowledged_on_and_the_node_still_answers(
    node: NodeProcess, tmp_path: Path
) -> None:
    topics = [f"topic-{number}" for number in range(4)]
    for topic in topics:
        make_topic(node, topic)
    with injected(node.pid, f"{SYNC},{WRITE_THROUGH}", "error=EIO", tmp_path / "trace"):
        for value in (b"small", LARGE):
            for topic in topics:
                assert send(node, topic, value).error_code == STORAGE_ERROR
        with Wire(node.server) as wire:
            touch_metadata(wire, topics[0])
    node.kill()
    node.start()
    for topic in topics:
        # What was written and not acknowledged may be there or not; what was acknowledged is.
        assert values(node, topic)[0] == b"first"
        must_send(node, topic, b"after")


def test_a_write_without_room_is_refused_and_leaves_nothing_behind(node: NodeProcess, tmp_path: Path) -> None:
    segment = make_topic(node, "full")
    assert values(node, "full") == [b"first"]  # in the segment from now on
    size = segment.stat().st_size
    with injected(node.pid, WRITE, "error=ENOSPC", tmp_path / "trace", paths=[segment]):
        for _ in range(2):
            answer = send(node, "full", LARGE)
            assert answer.error_code == STORAGE_ERROR
            assert "No space left" in str(answer.error_message)
        # A small one is made durable by the journal, which has its room; its segment can wait.
        assert must_send(node, "full", b"small") == 1
        assert send(node, "full", LARGE).error_code == STORAGE_ERROR
        assert segment.stat().st_size == size
    assert must_send(node, "full", b"room again") == 2
    kept = [b"first", b"small", b"room again"]
    assert values(node, "full") == kept
    node.kill()
    verify(node)
    node.start()
    assert values(node, "full") == kept


def test_a_short_write_is_finished_or_taken_back(node: NodeProcess) -> None:
    """A limit on file size makes the kernel write only a part, and then refuse: a short write without a full disk."""
    segment = make_topic(node, "short")
    must_send(node, "short", LARGE)
    size = segment.stat().st_size
    unlimited = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (size + 70_000, unlimited[1]))
    try:
        answer = send(node, "short", b"y" * len(LARGE))
        assert answer.error_code == STORAGE_ERROR
        assert segment.stat().st_size == size
    finally:
        resource.prlimit(node.pid, resource.RLIMIT_FSIZE, unlimited)
    assert must_send(node, "short", b"after") == 2
    assert values(node, "short") == [b"first", LARGE, b"after"]
    node.kill()
    verify(node)
    node.start()
    assert values(node, "short") == [b"first", LARGE, b"after"]


def test_a_slow_sync_holds_up_its_senders_and_nobody_else(node: NodeProcess, tmp_path: Path) -> None:
    make_topic(node, "slow")
    delay_s = 2.0
    worst_s = 0.0
    call, delay_us = WRITE_THROUGH, int(delay_s * 1e6)
    with injected(node.pid, call, f"delay_enter={delay_us}", tmp_path / "trace", paths=journals(node)):
        begin_s = time.monotonic()
        sender = threading.Thread(target=must_send, args=(node, "slow", b"patient"))
        sender.start()
        with Wire(node.server) as wire:
            while sender.is_alive():
                asked_s = time.monotonic()
                touch_metadata(wire, "slow")
                worst_s = max(worst_s, time.monotonic() - asked_s)
                assert values(node, "slow")[:1] == [b"first"]
        sender.join()
        assert time.monotonic() - begin_s >= delay_s
    assert worst_s < delay_s / 4, "the loop waited for the disk"
    assert values(node, "slow") == [b"first", b"patient"]
