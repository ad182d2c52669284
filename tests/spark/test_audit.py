"""The audit on real logs and lakes: no false alarm on what is right, and exactly what was planted on what is not."""

import asyncio
import datetime
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tests.spark.dead_queue import CRASHES, bury, dead_name
from tests.spark.pipeline_run import make_run
from tests.spark.source_data import create, produce, read, send, transact
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

from headrace.client.queue.client import AsyncClient
from headrace.client.queue.sync import Client
from headrace.client.values import Outgoing
from headrace.model.errors import UnknownTopicError
from headrace.spark.errors import OptionError
from headrace.spark.lake.maintenance import drop_days_before
from headrace.spark.lake.reading import read_table
from headrace.spark.pipeline.audit import AuditOptions, run
from headrace.spark.pipeline.audit_number import ALTERED, DOUBLED, LOST, OUT_OF_ORDER, UNKNOWN
from headrace.spark.pipeline.summary import Summary, Value

Found = set[tuple[str, str, int, int, int]]


def audit(
    spark: SparkSession, directory: Path, node: NodeProcess, *topics: str, **more: object
) -> tuple[Summary, Found]:
    """The summary, and everything that was found: rule, fault, offsets and count."""
    table = directory / "findings"
    options = AuditOptions(server=node.server, topics=topics, findings=str(table), **more)  # type: ignore[arg-type]
    summary = run(spark, options, make_run(spark, directory))
    columns = ("rule", "fault", "firstOffset", "lastOffset", "count")
    return summary, {tuple(row[column] for column in columns) for row in read_table(spark, table).collect()}


def by_topic(summary: Summary) -> dict[str, dict[str, Value]]:
    return {str(row[0]): dict(zip(summary.columns, row, strict=True)) for row in summary.rows}


def delete_below(node: NodeProcess, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    for outcome in admin.delete_records([KafkaPartition(topic, 0, offset)]).values():
        outcome.result(30)


# What is right.


def with_transactions(node: NodeProcess, topic: str) -> None:
    create(node, topic)
    produce(node, topic, ["plain"])
    transact(node, topic, ["a", "b"], commit=True)
    transact(node, topic, ["c", "d", "e"], commit=False)
    produce(node, topic, ["plain"])


def compacted(spark: SparkSession, node: NodeProcess, topic: str) -> None:
    create(node, topic, cleanup_policy="compact", segment_bytes="16384", min_cleanable_dirty_ratio="0.01")
    for batch in range(10):
        send(node, topic, [Outgoing(b"%d" % batch + bytes(1000), key=b"k%d" % key) for key in range(10)])
    wait_until(
        lambda: read(spark, node, "offset BIGINT", subscribe=topic).count() < 100,
        deadline_s=60,
        what="the topic is compacted",
    )


def worked_on(node: NodeProcess, queue: str) -> None:
    """A queue with leases, acknowledgements, releases, dead letters, and a transaction that acknowledges."""
    bury(node.http, queue, ["", "late", CRASHES, "", ""])
    with Client(node.http) as client:
        orders = client.queue(queue)
        orders.send_many([{"n": number, "reason": ""} for number in range(5)])
        first, second, third = orders.receive(max=3, wait=5)
        first.ack()
        second.release(0)
        with client.transaction() as transaction:
            transaction.queue(queue).send({"n": 7, "reason": ""})
            transaction.ack(third)
        client.queue(dead_name(queue)).redrive()


def at_most_once(node: NodeProcess, queue: str) -> None:
    async def main() -> None:
        async with AsyncClient(node.http) as client:
            orders = client.queue(queue)
            await orders.create(guarantee="at_most_once")
            await orders.send_many(["a", "b"])
            assert len(await orders.receive(10, 5)) == 2

    asyncio.run(main())


def test_nothing_is_found_where_everything_is_explained(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    names = [f"{topic}-{kind}" for kind in ("transactions", "compacted", "queue", "hasty")]
    with_transactions(node, names[0])
    compacted(spark, node, names[1])
    worked_on(node, names[2])
    at_most_once(node, names[3])
    with Client(node.http) as client, client.transaction(timeout=600) as undecided:
        undecided.queue(names[0]).send("open")
        summary, found = audit(spark, tmp_path, node, *names)
    assert (found, summary.is_found, summary.notes) == (set(), False, [])
    rows = by_topic(summary)
    told = {name: rows[names[0]][name] for name in ("rows", "marker", "aborted", "open", "lost")}
    assert told == {"rows": 4, "marker": 2, "aborted": 3, "open": 1, "lost": 0}
    held = rows[names[1]]
    assert 10 <= int(held["rows"] or 0) < 100
    assert int(held["rows"] or 0) + int(held["cleaned"] or 0) == 100
    assert int(rows[names[2]]["entry"] or 0) > 5


# What was planted.


def lake(path: Path, rows: DataFrame) -> str:
    rows = rows.withColumn("day", sf.to_date("timestamp"))
    writer = rows.write.format("headrace_delta").mode("append").option("partitionBy", "topic,day")
    writer.option("path", str(path)).save()
    return str(path)


def test_what_was_dropped_doubled_swapped_or_changed_in_a_lake_is_found_and_nothing_else(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic)
    produce(node, topic, [f"order {number}" for number in range(100)])
    transact(node, topic, ["x"], commit=False)
    produce(node, topic, [f"order {number}" for number in range(102, 110)])
    rows = read(spark, node, subscribe=topic, includeHeaders="true").persist()
    swapped = rows.withColumn("offset", sf.expr("case offset when 30 then 31 when 31 then 30 else offset end"))
    changed = swapped.withColumn("value", sf.expr("if(offset = 40, binary('other'), value)"))
    kept = changed.where("offset not in (10, 11, 12, 50)")
    copy = lake(tmp_path / "lake", kept.unionByName(changed.where("offset = 20")).where("offset < 108"))
    summary, found = audit(spark, tmp_path, node, lake=copy)
    assert found == {
        ("lake", LOST, 10, 12, 3),
        ("lake", LOST, 50, 50, 1),
        ("lake", DOUBLED, 20, 20, 1),
        ("lake", OUT_OF_ORDER, 30, 30, 1),
        ("lake", OUT_OF_ORDER, 31, 31, 1),
        ("lake", ALTERED, 40, 40, 1),
    }
    row = by_topic(summary)[topic]
    told = {name: row[name] for name in ("rows", "first", "last", "marker", "aborted", "lost", "doubled", "other")}
    assert told == {
        "rows": 102,
        "first": 0,
        "last": 107,
        "marker": 1,
        "aborted": 1,
        "lost": 4,
        "doubled": 1,
        "other": 1,
    }
    assert summary.is_found
    assert f"{topic}-0 at 10 to 12: 3 lost, by lake: in the log and not in the lake" in summary.notes


def archive(node: NodeProcess, path: Path, rows: DataFrame) -> None:
    """As the archive writes them: the table's marks say how far it has come."""
    rows = rows.withColumn("day", sf.to_date("timestamp"))
    writer = rows.write.format("headrace_delta").mode("append").option("partitionBy", "topic,day")
    writer.option("keyedBy", "offset").option("kafka.bootstrap.servers", node.server).option("path", str(path)).save()


def rewrite(spark: SparkSession, path: Path, change: Callable[[DataFrame], DataFrame]) -> None:
    """Change rows of a table behind its writer's back. Its marks stay as they are."""
    rows = change(read_table(spark, path)).persist()
    rows.count()
    writer = rows.write.format("headrace_delta").mode("overwrite").option("partitionBy", "topic,day")
    writer.option("path", str(path)).save()
    rows.unpersist()


def all_findings(spark: SparkSession, directory: Path) -> set[tuple[object, ...]]:
    columns = ("topic", "partition", "fault", "firstOffset", "lastOffset", "count", "detail")
    return {tuple(row[column] for column in columns) for row in read_table(spark, directory / "findings").collect()}


DAY_MS = 86_400_000
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


def stamped(numbers: Iterable[int], *, partition: int = 0, at_ms: int = NOON_MS) -> list[Outgoing]:
    """Messages with a key, a header and a time of their own."""
    return [
        Outgoing(
            b"value %d" % number,
            key=b"key %d" % number,
            headers=(("number", b"%d" % number), ("empty", b"")),
            timestamp_ms=at_ms + number,
            partition=partition,
        )
        for number in numbers
    ]


DEFECTS = {
    "offset": "case offset when 20 then 21 when 21 then 20 else offset end",
    "value": "case offset when 10 then binary('other') when 22 then binary('value 23') else value end",
    "key": "if(offset = 11, null, key)",
    "timestamp": "if(offset = 12, timestamp + interval 1 millisecond, timestamp)",
    "headers": "case offset when 13 then array(headers[1], headers[0]) "
    "when 14 then array(headers[0], named_struct('key', 'empty', 'value', cast(null as binary))) else headers end",
}


def test_every_defect_of_a_lake_is_found_with_the_right_words(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    gone, right = f"{topic}-gone", f"{topic}-right"
    create(node, topic, partitions=3, retention_ms="-1")
    for partition in range(2):
        send(node, topic, stamped(range(40), partition=partition))
    send(node, topic, stamped(range(5), partition=2))
    for name in (gone, right):
        create(node, name, retention_ms="-1")
        send(node, name, stamped(range(3)))
    transact(node, right, ["taken back"], commit=False)
    send(node, right, stamped([6]))
    path = tmp_path / "lake"
    archive(node, path, read(spark, node, subscribe=f"{topic},{gone},{right}", includeHeaders="true"))
    send(node, topic, stamped(range(5, 9), partition=2))

    def damage(rows: DataFrame) -> DataFrame:
        at = f"topic = '{topic}' and partition = 0"
        changed = rows.withColumns({name: sf.expr(f"if({at}, {said}, {name})") for name, said in DEFECTS.items()})
        kept = changed.where(f"not ({at} and (offset < 2 or offset in (30, 31) or offset > 36))")
        kept = kept.where(f"topic <> '{gone}' and not (topic = '{topic}' and partition = 1)")
        of_right = kept.where(f"topic = '{right}' and offset = 0")
        added = of_right.withColumn("offset", sf.lit(3).cast("bigint")).unionByName(
            of_right.withColumn("offset", sf.lit(1_000).cast("bigint"))
        )
        return kept.unionByName(kept.where(f"{at} and offset = 15")).unionByName(added)

    rewrite(spark, path, damage)
    summary, _ = audit(spark, tmp_path, node, lake=str(path))
    nowhere = "in the log and not in the lake"
    assert all_findings(spark, tmp_path) == {
        (topic, 0, LOST, 0, 1, 2, nowhere),
        (topic, 0, ALTERED, 10, 10, 1, "the log has another value"),
        (topic, 0, ALTERED, 11, 11, 1, "the log has another key"),
        (topic, 0, ALTERED, 12, 12, 1, "the log has another timestamp"),
        (topic, 0, ALTERED, 13, 13, 1, "the log has another headers"),
        (topic, 0, ALTERED, 14, 14, 1, "the log has another headers"),
        (topic, 0, DOUBLED, 15, 15, 1, "the lake has it 2 times"),
        (topic, 0, OUT_OF_ORDER, 20, 20, 1, "this belongs at offset 21"),
        (topic, 0, OUT_OF_ORDER, 21, 21, 1, "this belongs at offset 20"),
        (topic, 0, ALTERED, 22, 22, 1, "the log has another value"),
        (topic, 0, LOST, 30, 31, 2, nowhere),
        (topic, 0, LOST, 37, 39, 3, nowhere),
        (topic, 1, LOST, 0, 39, 40, nowhere),
        (gone, 0, LOST, 0, 2, 3, nowhere),
        (right, 0, ALTERED, 3, 3, 1, "the log has no message at this offset"),
        (right, 0, ALTERED, 1_000, 1_000, 1, "the log ends before this offset"),
    }
    assert summary.is_found
    assert "4 messages of the log come after what was archived, and were not compared." in summary.notes
    (lost,) = [row for row in summary.rows if (row[0], row[1]) == (topic, 1)]
    assert tuple(lost[2:5]) == (0, None, None)


def test_days_that_a_lakes_retention_dropped_are_not_missed(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic, partitions=2, retention_ms="-1")
    send(node, topic, stamped(range(5), at_ms=NOON_MS - 2 * DAY_MS))
    send(node, topic, stamped(range(5, 10), at_ms=NOON_MS))
    send(node, topic, stamped(range(5), partition=1, at_ms=NOON_MS - 2 * DAY_MS))
    path = tmp_path / "lake"
    archive(node, path, read(spark, node, subscribe=topic, includeHeaders="true"))
    assert drop_days_before(path, datetime.datetime.fromtimestamp(NOON_MS / 1000, datetime.UTC).date()) == 10
    summary, found = audit(spark, tmp_path, node, lake=str(path))
    assert (found, summary.is_found) == (set(), False)
    delete_below(node, topic, 3)
    rewrite(spark, path, lambda rows: rows.where("offset <> 5"))
    _, found = audit(spark, tmp_path / "again", node, lake=str(path))
    assert found == {("lake", LOST, 5, 5, 1)}, "a message of a day that was not dropped"


def test_what_a_lake_lost_below_the_logs_start_is_unknown(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic, retention_ms="-1")
    send(node, topic, stamped(range(10)))
    path = tmp_path / "lake"
    archive(node, path, read(spark, node, subscribe=topic, includeHeaders="true"))
    rewrite(spark, path, lambda rows: rows.where("offset between 2 and 6"))
    delete_below(node, topic, 8)
    _, found = audit(spark, tmp_path, node, lake=str(path))
    assert found == {("lake", UNKNOWN, 0, 1, 2), ("lake", UNKNOWN, 7, 7, 1), ("lake", LOST, 8, 9, 2)}


def test_gaps_of_a_lake_that_the_log_can_no_longer_explain_are_unknown(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic)
    transact(node, topic, ["a", "b"], commit=True)
    transact(node, topic, ["c"], commit=True)
    produce(node, topic, ["d"])
    copy = lake(tmp_path / "lake", read(spark, node, subscribe=topic, includeHeaders="true"))
    delete_below(node, topic, 3)
    summary, found = audit(spark, tmp_path / "cut", node, lake=copy)
    assert (found, summary.is_found) == ({("lake", UNKNOWN, 2, 2, 1)}, False)
    assert by_topic(summary)[topic]["marker"] == 1
    summary, _ = audit(spark, tmp_path / "strict", node, lake=copy, is_strict=True)
    assert summary.is_found


def test_ids_and_numbers_of_applications_are_looked_at(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic)
    alice, bob = [1, 2, 3, 5, 4, 6], [1, 2, 2, 4]
    messages = [("alice", number) for number in alice] + [("bob", number) for number in bob]
    send(
        node,
        topic,
        [
            Outgoing(
                json.dumps({"n": number}).encode(),
                key=key.encode(),
                headers=(("id", f"{key}-{number}".encode()),),
            )
            for key, number in messages
        ],
    )
    produce(node, topic, ["without a number"])
    summary, found = audit(
        spark, tmp_path, node, topic, unique="header:id", rising="json:$.n", of="key", is_gapless=True
    )
    assert found == {
        ("number", OUT_OF_ORDER, 4, 4, 1),
        ("number", DOUBLED, 8, 8, 1),
        ("id", DOUBLED, 8, 8, 1),
        ("number", LOST, 9, 9, 1),
    }
    assert summary.is_found
    assert any("bob-2 was there before, at 0-7" in note for note in summary.notes)


# What is refused.


def test_a_topic_that_there_is_not_is_refused(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(UnknownTopicError, match=f"there is no topic {topic}"):
        audit(spark, tmp_path, node, topic)


def test_a_topic_of_which_the_lake_has_nothing_is_not_called_clean(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic)
    produce(node, topic, ["a"])
    copy = lake(tmp_path / "lake", read(spark, node, subscribe=topic, includeHeaders="true"))
    with pytest.raises(OptionError, match=f"has no message of {topic}-mistyped, so nothing can be said about it"):
        audit(spark, tmp_path, node, topic, f"{topic}-mistyped", lake=copy)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "--topic or --queue"),
        ({"topics": ("a b",)}, "letters, digits"),
        ({"topics": ("a",), "unique": " "}, "--unique is empty"),
        ({"topics": ("a",), "is_gapless": True}, "belong to --rising"),
        ({"lake": "/nowhere"}, "is no Delta table"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_session(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        AuditOptions(server="127.0.0.1:9092", **options)  # type: ignore[arg-type]
