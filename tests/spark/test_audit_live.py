"""The audit of messages as they come, with Spark's state in RocksDB, over a restart."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql.streaming.tws_tester import TwsTester
from tests.spark.pipeline_run import make_run
from tests.spark.source_data import create, produce, read, send, transact
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.spark.errors import OptionError
from headrace.spark.pipeline.audit import AuditOptions, run
from headrace.spark.pipeline.audit_live import FollowingProcessor
from headrace.spark.pipeline.audit_number import DOUBLED, LOST, OUT_OF_ORDER

DEADLINE_S = 200


def follow(spark: SparkSession, directory: Path, options: AuditOptions, work: Callable[[], None]) -> None:
    """A live audit that is asked to end when the work is done, which is done meanwhile in a thread."""
    stopping, failures = threading.Event(), []

    def body() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)
        stopping.set()

    thread = threading.Thread(target=body)
    thread.start()
    try:
        run(spark, options, make_run(spark, directory, continuous=True, stopping=stopping))
    finally:
        thread.join(DEADLINE_S)
    if failures:
        raise failures[0]


def numbered(*numbers: int) -> list[Outgoing]:
    return [Outgoing(json.dumps({"n": number}).encode(), key=b"alice") for number in numbers]


Told = tuple[str, str, int]


def told(values: Iterable[bytes | bytearray | None]) -> list[Told]:
    findings: list[dict[str, Any]] = [json.loads(bytes(value)) for value in values if value is not None]
    return [(one["rule"], one["fault"], one["firstOffset"]) for one in findings]


def wait_told(node: NodeProcess, alerts: str, expected: set[Told]) -> None:
    async def fetch() -> list[Told]:
        async with StreamClient(node.server) as client:
            (fetched,) = await client.fetch({TopicPartition(alerts, 0): 0}, wait_ms=200)
            return told(message.value for message in fetched.messages)

    wait_until(
        lambda: expected <= set(asyncio.run(fetch())),
        deadline_s=DEADLINE_S,
        what=lambda: f"{expected}, of which there are {asyncio.run(fetch())}",
    )


def test_findings_are_written_once_as_they_occur_also_over_a_restart(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    # As a rollup in the same session leaves it.
    spark.conf.set("spark.sql.streaming.noDataMicroBatches.enabled", "false")
    alerts = f"{topic}-alerts"
    create(node, topic)
    create(node, alerts)
    options = AuditOptions(
        server=node.server,
        topics=(topic,),
        rising="json:$.n",
        is_gapless=True,
        unique="json:$.n",
        to=alerts,
        is_live=True,
        patience_s=1.0,
    )
    first = {("number", OUT_OF_ORDER, 6), ("number", DOUBLED, 7), ("id", DOUBLED, 7)}
    second = first | {("number", LOST, 8), ("number", DOUBLED, 9), ("id", DOUBLED, 9)}

    def begin() -> None:
        transact(node, topic, ["aborted"], commit=False)  # offsets 3 and 4
        send(node, topic, numbered(5, 4, 4))
        wait_told(node, alerts, first)

    def go_on() -> None:
        wait_told(node, alerts, second)
        produce(node, topic, ["no number"])
        send(node, topic, numbered(9))

    send(node, topic, numbered(1, 2, 3))
    follow(spark, tmp_path, options, begin)
    send(node, topic, numbered(8, 2))
    follow(spark, tmp_path, options, go_on)
    found = told(row["value"] for row in read(spark, node, subscribe=alerts).collect())
    assert sorted(found) == sorted(second), "each once, and nothing of offsets and producers"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"is_live": True}, "where findings go"),
        ({"is_live": True, "to": "b", "findings": "nowhere/yet"}, "where findings go"),
        ({"is_live": True, "to": "a"}, "a topic of their own"),
        ({"is_live": True, "to": "b", "patience_s": 0.0}, "--patience"),
        ({"to": "b"}, "--continuous"),
    ],
)
def test_options_that_cannot_be_are_refused_before_a_session(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        AuditOptions(server="127.0.0.1:9092", topics=("a",), **options)  # type: ignore[arg-type]


SCOPE = ("orders", "number", "all")


class Unwrapped(FollowingProcessor):
    """`TwsTester` puts a key of several columns into a tuple of its own, which Spark does not."""

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
        return super().handleInputRows(key[0], rows, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
        return super().handleExpiredTimer(key[0], timerValues, expiredTimerInfo)


def following(*, patience_ms: int) -> TwsTester:
    return TwsTester(Unwrapped(patience_ms), timeMode="ProcessingTime")


def row(offset: int, number: int) -> Row:
    return Row(partition=0, offset=offset, endOffset=offset, first=number, last=number, isGapless=True, wrapsAt=None)


def lost(rows: Iterable[Row]) -> list[int]:
    return [one["firstOffset"] for one in rows if one["fault"] == LOST]


def test_gaps_of_different_ages_are_each_given_up_in_time() -> None:
    tester = following(patience_ms=1000)
    tester.test(SCOPE, [row(0, 1)])
    tester.setProcessingTime(10)
    tester.test(SCOPE, [row(1, 3)])
    tester.setProcessingTime(510)
    tester.test(SCOPE, [row(2, 5)])
    assert lost(tester.setProcessingTime(1009)) == []
    assert lost(tester.setProcessingTime(1010)) == [1]
    assert lost(tester.setProcessingTime(1509)) == []
    assert lost(tester.setProcessingTime(1510)) == [2]


def test_a_gap_is_given_up_although_an_earlier_one_was_filled() -> None:
    tester = following(patience_ms=1000)
    tester.test(SCOPE, [row(0, 1), row(1, 3)])
    tester.setProcessingTime(900)
    tester.test(SCOPE, [row(2, 2), row(3, 6)])
    assert lost(tester.setProcessingTime(1100)) == []
    assert lost(tester.setProcessingTime(1900)) == [3]
