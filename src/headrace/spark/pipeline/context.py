"""What a pipeline's body is given: a session when it asks for one, its checkpoints, and somebody to tell how far it is.

A body starts streaming queries and calls `follow`, or works through pieces of its own, tells each by `report`, and
looks at `is_stopping` between them. Either way a request to stop lets the micro-batch or piece that is being worked on
come to its end. Were it cut off instead, nothing would be wrong: the sinks are exact, and it would be done again.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.host.clock import Clock, SystemClock
from headrace.spark.errors import explain
from headrace.spark.pipeline.errors import PipelineFailedError
from headrace.spark.pipeline.progress import Tally, Totals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LOOK_S = 1
STOP_LOOK_S = 0.1
# A batch that takes longer than this is cut off when somebody asks the run to stop.
STOP_BATCH_MS_MAX = 60_000
STOPPING = "Stopping after this batch; a second Ctrl-C or SIGTERM ends the run at once."


class View(Protocol):
    """Who is shown how far a run is."""

    def progress(self, step: str, totals: Totals, of: int | None) -> None: ...

    def note(self, sentence: str) -> None: ...


class Run:
    def __init__(
        self,
        *,
        id: str,
        directory: Path,
        checkpoints: str,
        is_continuous: bool,
        every_s: float,
        start: "Callable[[], SparkSession]",
        view: View,
        stopping: threading.Event,
        clock: Clock | None = None,
        seen: Callable[[Totals], None] = lambda totals: None,
    ) -> None:
        self.id = id
        self.directory = directory  # private to this job, kept between runs
        self.is_continuous = is_continuous
        self._checkpoints = checkpoints
        self._every_s = every_s
        self._start = start
        self._session: SparkSession | None = None
        self._view = view
        self._stopping = stopping
        self._clock = clock or SystemClock()
        self._began_ms = self._clock.monotonic_ms()
        self._seen = seen
        self._has_said_stopping = False

    def spark(self) -> "SparkSession":
        """The session, which is started by the first call."""
        if self._session is None:
            self.report("starting Spark")
            self._session = self._start()
        return self._session

    @property
    def has_session(self) -> bool:
        return self._session is not None

    def checkpoint(self, part: str = "") -> str:
        """Where a streaming query keeps its offsets; `part` tells several queries of one run apart."""
        return f"{self._checkpoints}/{part}" if part else self._checkpoints

    def trigger(self) -> dict[str, Any]:
        """For `writeStream.trigger(**run.trigger())`: all that is there now, or on and on."""
        if self.is_continuous:
            return {"processingTime": f"{self._every_s} seconds"}
        return {"availableNow": True}

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def note(self, sentence: str) -> None:
        self._view.note(sentence)

    def report(self, step: str, *, rows: int | None = None, of: int | None = None) -> None:
        """How far work is that is no streaming query: so many rows until now, of so many."""
        totals = Totals(rows or 0, 0, self._elapsed_s())
        if rows is not None:
            self._seen(totals)
        self._view.progress(step, totals, of)

    def follow(self, *queries: "StreamingQuery", step: str = "") -> Totals:
        """Wait until the queries have ended, or end them when somebody asks for it. One that fails ends all."""
        tally = Tally()
        try:
            while any(query.isActive for query in queries):
                if self.is_stopping:
                    self._say_stopping()
                    for query in queries:
                        self._end_after_batch(query)
                    break
                self._wait(queries)
                self._look(tally, queries, step)
                if any(_failure_of(query) is not None for query in queries):
                    break
            self._tell_failures(queries)
        finally:
            for query in queries:
                if query.isActive:
                    query.stop()
        return self._look(tally, queries, step)

    def _say_stopping(self) -> None:
        if not self._has_said_stopping:
            self._has_said_stopping = True
            self.note(STOPPING)

    def _wait(self, queries: "tuple[StreamingQuery, ...]") -> None:
        """For the end of a query that runs, or until it is time to look again."""
        for query in queries:
            if query.isActive:
                try:
                    query.awaitTermination(LOOK_S)
                except Exception as error:
                    if query.isActive:
                        raise PipelineFailedError(explain(error)) from error
                return

    def _tell_failures(self, queries: "tuple[StreamingQuery, ...]") -> None:
        for failure in filter(None, map(_failure_of, queries)):
            if not self.is_stopping:
                raise PipelineFailedError(explain(failure)) from failure
            # A supervisor that signals every process takes the workers away from the batch.
            self.note(f"The batch was cut off, and the next run does it again: {explain(failure)}")

    def _look(self, tally: Tally, queries: "tuple[StreamingQuery, ...]", step: str) -> Totals:
        for query in queries:
            tally.add(query.id, query.recentProgress)
        totals = tally.totals(self._elapsed_s())
        self._seen(totals)
        self._view.progress(step, totals, None)
        return totals

    def _end_after_batch(self, query: "StreamingQuery") -> None:
        deadline_ms = self._clock.monotonic_ms() + STOP_BATCH_MS_MAX
        before = _last_batch(query)
        pause = threading.Event()
        while query.isActive and query.status["isTriggerActive"] and _last_batch(query) == before:
            if self._clock.monotonic_ms() > deadline_ms:
                self.note(
                    f"The batch takes longer than {STOP_BATCH_MS_MAX // 1000} s and is cut off; it is done again."
                )
                break
            pause.wait(STOP_LOOK_S)
        query.stop()

    def _elapsed_s(self) -> float:
        return (self._clock.monotonic_ms() - self._began_ms) / 1000


def _last_batch(query: "StreamingQuery") -> int | None:
    report = query.lastProgress
    return None if report is None else int(report["batchId"])


def _failure_of(query: "StreamingQuery") -> Exception | None:
    return None if query.isActive else query.exception()
