"""The sink of `format("headrace")`: rows into topics and queues, exactly once.

    query = (
        df.selectExpr("customer AS key", "to_json(struct(*)) AS value")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", "127.0.0.1:9092").option("topic", "invoices")
        .option("checkpointLocation", "/checkpoints/invoices")
        .start()
    )

Theory of operation:

1. On the driver, before a batch runs: options and columns are checked, the node is asked about the topic (`target.py`).
2. In the tasks: rows become record batches for partitions (`task.py`), which are staged (`staging.py`): nothing of them
   is at a node yet, so a task that fails, is repeated or runs twice leaves nothing behind.
3. On the driver, when all tasks are done: one transaction publishes everything that they staged, together with the
   number of the batch (`publish.py`). The name of the transaction is the query's, which is in its checkpoint.

Spark writes down that a batch is done after 3. A driver that dies between the two runs the batch again, 3 finds its
number, and nothing is published a second time. Which tasks there are, and which rows each of them has, may differ
between the two runs and is used for nothing.

A batch write (`df.write`) goes the same way: all of its rows are published, or none. It is known by the option
`idempotencyKey`, or by `txnAppId` and `txnVersion`, where it has one.

Spark builds the writer anew for each batch, on the driver for the tasks and once more for the commit; and it calls
`abort` after a `commit` that raised.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from pyspark.taskcontext import TaskContext

from headrace.host.rand import SystemRand
from headrace.spark.errors import OptionError, without_stack
from headrace.spark.query_batch import query_batch, query_of
from headrace.spark.sink.checkpoint import is_first_batch
from headrace.spark.sink.column import check_columns
from headrace.spark.sink.option import SinkOptions, read_options
from headrace.spark.sink.plan import Plan
from headrace.spark.sink.publish import Identity, publish
from headrace.spark.sink.staging import Stage, Staged, prepare_staging
from headrace.spark.sink.target import check_reachable, find_shape

if TYPE_CHECKING:
    import pyarrow as pa


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "BatchWriter":
    """For `df.write`."""
    if overwrite:
        raise OptionError("a topic is added to and not overwritten; say mode('append')")
    plan = make_plan(read_options(options), schema, waits=False)
    return BatchWriter(plan, job_identity(plan.options))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> "StreamWriter":
    """For `df.writeStream`. In the output mode complete each batch adds all its rows, as in Spark's Kafka sink."""
    plan = make_plan(read_options(options), schema, waits=not is_first_batch(options.get("checkpointLocation")))
    if plan.options.job is not None:
        raise OptionError("a streaming query knows its batches; leave out idempotencyKey, txnAppId and txnVersion")
    return StreamWriter(plan)


def make_plan(options: SinkOptions, schema: StructType, *, waits: bool) -> Plan:
    """Everything that can be refused before anything runs is refused here."""
    names = check_columns(schema, has_topic=options.topic is not None, is_queue=options.is_queue)
    shape = None
    if options.topic is None:
        check_reachable(options, waits=waits)
    else:
        shape = find_shape(options, options.topic, waits=waits)
    return Plan(
        options=options,
        names=names,
        shape=shape,
        staging=prepare_staging(options.staging),
    )


def query_identity(options: SinkOptions, query_id: str, batch_id: int) -> Identity:
    return Identity(f"spark-query-{query_id}{_suffix(options)}", batch_id)


def job_identity(options: SinkOptions) -> Identity:
    if options.job is None:
        return Identity(f"spark-write-{SystemRand().uuid()}", None)
    # Names of jobs and of topics may both have the "-" that joins them: the length says where the first of them ends.
    name = options.job.name
    return Identity(f"spark-job-{len(name)}-{name}{_suffix(options)}", options.job.version)


def _suffix(options: SinkOptions) -> str:
    return "" if options.topic is None else f"-{options.topic}"


def _stage(plan: Plan, identity: Identity, batches: "Iterator[pa.RecordBatch]", *, turn: int) -> Stage:
    # Here and not above: only tasks take the time to import what encodes.
    from headrace.spark.sink.task import TaskWriter

    stage = Stage(plan.staging, identity.name)
    with without_stack():
        try:
            writer = TaskWriter(plan, stage, turn=turn)
            for batch in batches:
                writer.add(batch)
            writer.finish()
        except BaseException:
            stage.discard()
            raise
    return stage


def _task_number() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    """What the tasks that came to an end have staged; one that failed has removed its own."""
    return [message for message in messages if isinstance(message, Staged)]


class BatchWriter(DataSourceArrowWriter):
    """`df.write`: one transaction, which happens once when the job has a key."""

    def __init__(self, plan: Plan, identity: Identity) -> None:
        self._plan = plan
        self._identity = identity

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Staged:
        return _stage(self._plan, self._identity, iterator, turn=_task_number()).finish(batch=None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with without_stack():
            publish(self._plan.options, self._identity, _staged(messages))
        self._plan.staging.remove_job(self._identity.name)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._plan.staging.remove_job(self._identity.name)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: one transaction for each batch, which happens once."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Staged:
        with without_stack():
            batch = query_batch()
        identity = query_identity(self._plan.options, *batch)
        turn = _task_number() + batch.batch_id
        return _stage(self._plan, identity, iterator, turn=turn).finish(batch=batch)

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        staged = _staged(messages)
        if not staged:
            return
        with without_stack():
            query_id = query_of((one.batch for one in staged), batch_id)
            identity = query_identity(self._plan.options, query_id, batch_id)
            publish(self._plan.options, identity, staged)
        self._plan.staging.remove_job(identity.name)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        for batch in {one.batch for one in _staged(messages) if one.batch is not None}:
            self._plan.staging.remove_job(query_identity(self._plan.options, *batch).name)
