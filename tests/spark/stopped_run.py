"""A run whose second batch waits in a Python worker until it is told to go on. See test_pipeline_stop."""

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.taskcontext import TaskContext
from tests.spark.pipeline_run import RecordingView

from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.run import RunSettings, execute
from headrace.spark.pipeline.summary import Summary

BATCH_ROWS = 10
HELD, GO = "held", "go"
ENDED_AT_ONCE = 9
_LOOK_S = 0.02


class PrintingView(RecordingView):
    def note(self, sentence: str) -> None:
        print(sentence, flush=True)


def body(run: Run, server: str, topic: str, place: Path) -> Summary:
    def held(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        if context.getLocalProperty("streaming.sql.batchId") == "1":
            (place / HELD).touch()
            pause = threading.Event()
            while not (place / GO).exists():
                pause.wait(_LOOK_S)
        yield from batches

    rows = (
        run.spark()
        .readStream.format("headrace")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(BATCH_ROWS))
        .load()
        .select("value")
        .mapInArrow(held, "value binary")
    )
    writer = rows.writeStream.format("headrace_delta").option("checkpointLocation", run.checkpoint())
    run.follow(writer.trigger(**run.trigger()).start(str(place / "table")))
    return Summary(title="stopped")


def main(server: str, topic: str, place: Path, kind: str) -> None:
    settings = RunSettings(
        state=place / "state", id="job", master="local[2]", is_continuous=kind == "continuous", every_s=0
    )
    _, summary = execute(
        "archive",
        {"topics": topic},
        lambda run: body(run, server, topic, place),
        settings,
        PrintingView(),
        end_at_once=lambda: os._exit(ENDED_AT_ONCE),
    )
    print(summary.title, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), sys.argv[4])
