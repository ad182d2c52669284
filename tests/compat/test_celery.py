"""Celery with kombu's SQS transport: real tasks with a retry and a countdown, done by a real worker."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.compat.sqs import connect, queue_name
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
SEND = """
import sys
from tests.compat.celery_app import add, flaky
add.delay(2, 3)
add.apply_async((20, 30), countdown=2)
flaky.delay(2)
"""


@contextmanager
def worker(environment: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "celery", "-A", "tests.compat.celery_app", "worker", "-P", "solo", "-l", "info"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(15)


def read_notes(notes: Path) -> list[tuple[float, str]]:
    if not notes.exists():
        return []
    lines = [line.split(" ", 1) for line in notes.read_text().splitlines()]
    return [(float(at), what) for at, what in lines]


def test_tasks_run_are_retried_and_wait_for_their_countdown(
    node: NodeProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    notes, log, queue = tmp_path / "notes", tmp_path / "worker.log", queue_name(request.node.name)
    environment = {**os.environ, "COMPAT_HTTP": node.http, "COMPAT_QUEUE": queue, "COMPAT_NOTES": str(notes)}
    sent_s = time.time()
    subprocess.run([sys.executable, "-c", SEND], cwd=ROOT, env=environment, check=True, timeout=60)
    expected = {"add 5", "add 50", "flaky 0", "flaky 1", "flaky 2"}
    with worker(environment, log) as process:
        wait_until(
            lambda: {what for _, what in read_notes(notes)} >= expected or process.poll() is not None,
            deadline_s=60,
            what=lambda: f"every task done; the notes are {read_notes(notes)}, the worker said:\n{log.read_text()}",
        )
        sqs = connect(node)
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        wait_until(
            lambda: set(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()) == {"0"},
            deadline_s=20,
            what=lambda: "every message acknowledged",
        )
    done = read_notes(notes)
    assert sorted(what for _, what in done) == sorted(expected), log.read_text()
    at_s = {what: at for at, what in done}
    assert at_s["add 50"] - sent_s >= 2
    assert at_s["flaky 1"] - at_s["flaky 0"] >= 1
    assert at_s["flaky 2"] - at_s["flaky 1"] >= 1
