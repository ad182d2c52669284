"""A driver that archives a topic of a node. See test_archive_kill."""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.killed_driver import quick_session
from tests.spark.pipeline_run import make_run
from tests.spark.stopping_sink import register_if_asked

from headrace.spark.pipeline import archive
from headrace.spark.pipeline.archive import ArchiveOptions
from headrace.spark.pipeline.summary import Summary

BATCH_ROWS = 400


def archive_all(spark: SparkSession, server: str, topic: str, table: Path, state: Path) -> Summary:
    """All messages that there are, in small batches."""
    options = ArchiveOptions(server=server, table=str(table), topics=(topic,), batch_rows=BATCH_ROWS, compacts=False)
    return archive.run(spark, options, make_run(spark, state))


if __name__ == "__main__":
    made = quick_session("archive-driver")
    register_if_asked(made)
    given_server, given_topic, given_table, given_state = sys.argv[1:]
    archive_all(made, given_server, given_topic, Path(given_table), Path(given_state))
