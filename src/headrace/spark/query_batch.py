"""Which query and batch a task of a streaming sink works for.

Exactly once rests on it: a batch that runs again is known by its query's id and its number. PySpark tells a sink's
tasks neither, so they are taken from properties that Spark sets for its own use. A Spark that sets them no longer, or
to something else, is refused before a row is taken, and once more before anything is published.
"""

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from pyspark.taskcontext import TaskContext

from headrace.spark.errors import UnsupportedSparkError

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class QueryBatch(NamedTuple):
    query_id: str
    batch_id: int


def query_batch() -> QueryBatch:
    """That of the task which asks."""
    context = TaskContext.get()
    if context is None:
        raise _unsupported("runs a task of a sink without a context")
    query_id, batch_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_BATCH_ID)
    try:
        UUID(query_id)
    except (TypeError, ValueError, AttributeError):
        raise _unsupported(f"does not tell a task its query: {_QUERY_ID} is {query_id!r}") from None
    if batch_id is None or not batch_id.isdecimal():
        raise _unsupported(f"does not tell a task its batch: {_BATCH_ID} is {batch_id!r}")
    return QueryBatch(str(query_id), int(batch_id))


def query_of(told: Iterable[QueryBatch | None], batch_id: int) -> str:
    """The query whose batch is committed, once its tasks and Spark agree on which one that is."""
    found = {*told}
    if len(found) != 1:
        raise _unsupported(f"has one batch committed that its tasks take for {len(found)}")
    (batch,) = found
    if batch is None or batch.batch_id != batch_id:
        raise _unsupported(f"has batch {batch_id} committed, which its tasks take for {batch and batch.batch_id}")
    return batch.query_id


def _unsupported(what: str) -> UnsupportedSparkError:
    from pyspark import __version__

    return UnsupportedSparkError(
        f"PySpark {__version__} {what}; nothing was written, because it could not be written exactly once. "
        "Install the PySpark that headrace[spark] asks for, and drop a setting that changes these properties"
    )
