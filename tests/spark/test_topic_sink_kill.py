"""A driver that dies while it streams into a topic: nothing is lost, nothing is doubled, whenever it dies."""

import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.spark.killed_driver import Driver, driving
from tests.spark.topic_sink import create_topic, values
from tests.spark.topic_sink_driver import OPEN, POINTS, PUBLISHED, ROWS, rows, start
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

PARTITIONS = 3
ANY = ""
KILLS = [*POINTS, ANY, ANY, PUBLISHED, ANY, OPEN, ANY] if os.environ.get("HEADRACE_LONG") else [PUBLISHED, OPEN]


def wait_to_kill(driver: Driver, point: str, marker: Path, checkpoint: Path) -> None:
    if point != ANY:
        driver.wait_until(marker.exists, what=f"the driver stops {point}")
        return
    done = checkpoint / "commits"
    count = len(list(done.glob("[0-9]*")))
    driver.wait_until(lambda: len(list(done.glob("[0-9]*"))) > count + 1, what="the driver publishes batches")
    threading.Event().wait(random.uniform(0, 0.5))  # anywhere in the next batch


@pytest.mark.timeout(900)
def test_a_killed_driver_loses_and_doubles_nothing(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create_topic(node, topic, partitions=PARTITIONS)
    checkpoint = tmp_path / "checkpoint"
    for number, point in enumerate(KILLS):
        marker = tmp_path / f"reached-{number}"
        with driving(
            "tests.spark.topic_sink_driver", [node.server, topic, checkpoint, point, marker], log=tmp_path / "log"
        ) as driver:
            wait_to_kill(driver, point, marker, checkpoint)
            driver.kill()
    # The last one lives on until everything that was begun is done, and something more.
    begun = len(list((checkpoint / "offsets").glob("[0-9]*")))
    query = start(rows(spark), node.server, topic, str(checkpoint))
    try:
        wait_until(
            lambda: len(list((checkpoint / "commits").glob("[0-9]*"))) > begun or not query.isActive,
            deadline_s=120,
            what="the query goes on from its checkpoint",
        )
    finally:
        query.stop()
    assert query.exception() is None
    counts = values(node, topic, partitions=PARTITIONS)
    check_exact(counts, at_least=(begun + 1) * ROWS)


def check_exact(counts: Counter[str], *, at_least: int) -> None:
    """Every number from 0 on is there once. The query may have published a batch when it was stopped."""
    assert {number: count for number, count in counts.items() if count > 1} == {}, "doubled"
    assert len(counts) >= at_least
    assert len(counts) % ROWS == 0, "a part of a batch"
    assert [number for number in range(len(counts)) if str(number) not in counts] == [], "lost"
