"""An archive whose driver dies, and whose checkpoint is lost: every message of the topic is in the table once."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.archive_driver import BATCH_ROWS, archive_all
from tests.spark.killed_driver import ANY, LONG, kill_by_table
from tests.spark.source_data import create, produce
from tests.spark.stopping_sink import AFTER, BEFORE
from tests.support.node import NodeProcess

KILLS = [AFTER, BEFORE, ANY, AFTER, ANY, ANY, BEFORE, ANY, ANY] if LONG else [AFTER, ANY]
BATCHES = 40 if LONG else 5
# After these kills nobody knows any more how far the queries were.
CHECKPOINT_LOST_AFTER = {0, 4} if LONG else {1}


@pytest.mark.timeout(900)
def test_a_killed_archive_loses_and_doubles_nothing(
    spark: SparkSession, node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    create(node, topic, partitions=3)
    sent = [str(number) for number in range(BATCHES * BATCH_ROWS)]
    produce(node, topic, sent)
    table, state = tmp_path / "table", tmp_path / "state"
    for number, point in enumerate(KILLS):
        arguments = [node.server, topic, table, state]
        kill_by_table("tests.spark.archive_driver", arguments, point, table, place=tmp_path)
        if number in CHECKPOINT_LOST_AFTER:
            shutil.rmtree(state)
    summary = archive_all(spark, node.server, topic, table, state)

    counts = Counter(value.decode() for value in DeltaTable(table).to_pyarrow_table()["value"].to_pylist())
    assert [value for value in sent if value not in counts] == [], "lost"
    assert {value: count for value, count in counts.items() if count > 1} == {}, "doubled"
    assert summary.as_json()["rows"][0]["lag"] == 0
