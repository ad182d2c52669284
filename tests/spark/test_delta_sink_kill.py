"""A driver that dies while it streams into a Delta table: nothing is lost, nothing is doubled, whenever it dies."""

import json
import os
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.delta_sink_driver import write_all
from tests.spark.killed_driver import ANY, LONG, kill_by_table
from tests.spark.stopping_sink import AFTER, BEFORE

from headrace.spark.lake.maintenance import vacuum

KILLS = [AFTER, BEFORE, ANY, AFTER, ANY, ANY, BEFORE, ANY, ANY] if LONG else [AFTER, ANY]
FILES = 60 if LONG else 5
ROWS = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A stream of files, one for each batch."""
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        file = directory / f"{number:03}.json"
        file.write_text("".join(json.dumps({"id": row}) + "\n" for row in ids), encoding="utf-8")
        # Spark takes files by age, and files of one moment in no order.
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


@pytest.mark.timeout(900)
def test_a_killed_driver_loses_and_doubles_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    for point in KILLS:
        kill_by_table("tests.spark.delta_sink_driver", [source, table, checkpoint], point, table, place=tmp_path)
    write_all(spark, source, table, checkpoint)

    counts = Counter(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())
    assert [row for row in range(FILES * ROWS) if row not in counts] == [], "lost"
    assert {row: count for row, count in counts.items() if count > 1} == {}, "doubled"

    named = {Path(uri) for uri in DeltaTable(table).file_uris()}
    vacuum(table, retention_hours=0)
    assert set(table.rglob("*.parquet")) == named, "what killed drivers left is still there"
