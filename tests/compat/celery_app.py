"""A Celery application whose broker is a node's SQS door. Its worker is started by `test_celery`, told by variables."""

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery, Task

app = Celery("compat")
app.conf.update(
    broker_url=f"sqs://any:any@{os.environ.get('COMPAT_HTTP', 'localhost:1')}",
    broker_transport_options={
        "region": "us-east-1",
        "is_secure": False,
        "visibility_timeout": 60,
        "polling_interval": 0.1,
        "wait_time_seconds": 1,
    },
    broker_connection_retry_on_startup=True,
    task_default_queue=os.environ.get("COMPAT_QUEUE", "celery"),
    task_ignore_result=True,
    worker_enable_remote_control=False,
    worker_send_task_events=False,
    task_acks_late=True,
)


def note(line: str) -> None:
    """Tell the test what was done and when."""
    with Path(os.environ["COMPAT_NOTES"]).open("a", encoding="utf-8") as notes:
        notes.write(f"{time.time()} {line}\n")


@app.task(name="compat.add")  # type: ignore[untyped-decorator]  # Celery has no types
def add(left: int, right: int) -> None:
    note(f"add {left + right}")


@app.task(name="compat.flaky", bind=True, max_retries=5)  # type: ignore[untyped-decorator]  # Celery has no types
def flaky(self: Task, failures: int) -> None:
    attempt: Any = self.request.retries
    note(f"flaky {attempt}")
    if attempt < failures:
        raise self.retry(countdown=1)
