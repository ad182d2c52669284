"""A run for tests of pipelines' bodies: on the tests' session, with a view that remembers."""

import threading
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.spark.pipeline.context import Run
from headrace.spark.pipeline.progress import Totals


class RecordingView:
    def __init__(self) -> None:
        self.steps: list[tuple[str, Totals, int | None]] = []
        self.notes: list[str] = []

    def progress(self, step: str, totals: Totals, of: int | None) -> None:
        self.steps.append((step, totals, of))

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def make_run(
    spark: SparkSession,
    directory: Path,
    *,
    continuous: bool = False,
    every_s: float = 0.0,
    view: RecordingView | None = None,
    stopping: threading.Event | None = None,
) -> Run:
    directory.mkdir(parents=True, exist_ok=True)
    return Run(
        id="test",
        directory=directory,
        checkpoints=str(directory / "checkpoint"),
        is_continuous=continuous,
        every_s=every_s,
        start=lambda: spark,
        view=view or RecordingView(),
        stopping=stopping or threading.Event(),
    )
