"""A driver that dies while it streams into a Delta table: nothing is lost, nothing is doubled, whenever it dies."""

import json
import os
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.delta_sink_driver import AFTER, BEFORE, rows, write
from tests.spark.killed_driver import Driver, driving

from headrace.spark.lake.maintenance import vacuum

LONG = bool(os.environ.get("HEADRACE_LONG"))
# Each is a point in a batch: before or after the table's commit, or any moment.
ANY = ""
KILLS = [AFTER, BEFORE, ANY, AFTER, ANY, ANY, BEFORE, ANY, ANY] if LONG else [AFTER, ANY]
FILES = 60 if LONG else 10
ROWS = 200


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A stream of files, one for each batch."""
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        text = "".join(json.dumps({"id": row}) + "\n" for row in ids)
        (directory / f"{number:03}.json").write_text(text, encoding="utf-8")
        # Spark takes files by age, and files of one moment in no order.
        os.utime(directory / f"{number:03}.json", (1_700_000_000 + number, 1_700_000_000 + number))
    return directory


def version_of(table: Path) -> int:
    return DeltaTable(table).version() if DeltaTable.is_deltatable(str(table)) else 0


def wait_to_kill(driver: Driver, point: str, marker: Path, table: Path) -> None:
    if point != ANY:
        driver.wait_until(marker.exists, what=f"the driver stops {point} a commit")
        return
    version = version_of(table) + random.randint(1, 2)
    driver.wait_until(lambda: version_of(table) >= version, what="the driver adds batches")
    threading.Event().wait(random.uniform(0, 0.3))  # anywhere in the next batch


@pytest.mark.timeout(900)
def test_a_killed_driver_loses_and_doubles_nothing(spark: SparkSession, source: Path, tmp_path: Path) -> None:
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    for number, point in enumerate(KILLS):
        marker = tmp_path / f"reached-{number}"
        with driving(
            "tests.spark.delta_sink_driver", [source, table, checkpoint, point, marker], log=tmp_path / "log"
        ) as driver:
            wait_to_kill(driver, point, marker, table)
            driver.kill()
    write(rows(spark, source), table, checkpoint)
    counts = Counter(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())
    assert [row for row in range(FILES * ROWS) if row not in counts] == [], "lost"
    assert {row: count for row, count in counts.items() if count > 1} == {}, "doubled"

    named = {Path(uri) for uri in DeltaTable(table).file_uris()}
    vacuum(table, retention_hours=0)
    assert set(table.rglob("*.parquet")) == named, "what killed drivers left is still there"
