"""What keeps a run of schemathesis short and near the point: few queues, which so hold messages, and short waits."""

import re
from typing import Any

import schemathesis

WAIT_SECONDS_MAX = 0.05
PARTITIONS_MAX = 4
QUEUES = ("orders", "jobs")
_NAME = re.compile(r"[A-Za-z0-9._-]+")


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Whatever is valid stays so, and whatever is not stays as it is."""
    path, query, body = case.path_parameters or {}, case.query or {}, case.body
    queue = path.get("queue")
    if isinstance(queue, str) and _NAME.fullmatch(queue) is not None and queue.strip("."):
        path["queue"] = QUEUES[sum(queue.encode()) % len(QUEUES)]
    if isinstance(query, dict) and isinstance(wait := query.get("wait"), int | float) and 0 < wait <= 50:
        query["wait"] = min(wait, WAIT_SECONDS_MAX)
    partitions = body.get("partitions") if isinstance(body, dict) else None
    if isinstance(partitions, int | float) and PARTITIONS_MAX < partitions <= 10_000:
        body["partitions"] = PARTITIONS_MAX
