"""One run of a pipeline, from the lock to the summary.

In this order, so that a crash at any point leaves something that makes sense:

1. The lock of the run's directory is taken. The kernel lets go of it when the process ends, however it ends; while it
   is held, a second run on the same checkpoint is refused.
2. The record says `running`, with this process's id and birth.
3. The body runs. It asks for a session when it needs one; what the JVM prints goes to a file beside the record.
4. The record says how it ended: `done`, `stopped` (somebody asked), or `failed` with the one sentence.

SIGTERM and Ctrl-C ask the run to end after its batch, and reach the driver alone: the JVM and its workers are out of
their way (`jvm.py`). A second one ends the run at once. Nothing is lost by that: the next run of the same id goes on
from the checkpoint. While a session is being started there is no batch to wait for, and a cluster may be slow to
answer: then the first request ends the run.
"""

import math
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

import msgspec

from headrace.host.clock import Clock, SystemClock
from headrace.host.other_process import birth_of
from headrace.host.process import DirectoryLock
from headrace.model.errors import HeadraceError
from headrace.spark.errors import OptionError, explain
from headrace.spark.pipeline.cluster import check_cluster
from headrace.spark.pipeline.context import Run, View
from headrace.spark.pipeline.errors import OtherRunError, PipelineFailedError, RunInProgressError, StoppedEarlyError
from headrace.spark.pipeline.place import CHECKPOINT_NAME, LOCK_NAME, LOG_NAME, check_id, run_id
from headrace.spark.pipeline.progress import Totals
from headrace.spark.pipeline.record import RunRecord, State, read_record, write_record

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.spark.pipeline.summary import Summary

EVERY_S_DEFAULT = 10.0
_RECORD_EVERY_MS = 1_000
# One request may come as several signals: `timeout` signals its child and then the whole group, and a terminal's Ctrl-C
# is forwarded once more by many a program that runs others.
_ONE_REQUEST_MS = 500

# What Spark takes for a master. It says so of anything else only after it has started, and in Java.
_MASTER = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*\d+)?\])?"
    r"|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^,/\s]+:\d+(,[^,/\s]+:\d+)*"
    r"|yarn|k8s://\S+"
)
_REMOTE = re.compile(r"sc://(\[[0-9a-fA-F:.]+\]|[^:/;\[\]\s]+)(:\d+)?(/\S*)?|local(\[\S*\])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """How and where to run, the same for every pipeline."""

    state: Path
    id: str | None = None  # None: from what the pipeline works on
    checkpoint: str | None = None  # None: in the run's directory; on a cluster it has to be where all can write
    is_continuous: bool = False
    every_s: float = EVERY_S_DEFAULT
    master: str | None = None
    remote: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    is_verbose: bool = False  # what the JVM says goes to the screen and not to a file

    def __post_init__(self) -> None:
        if self.id is not None:
            check_id(self.id)
        if self.master is not None and self.remote is not None:
            raise OptionError("--spark and --remote exclude each other; give the one that the cluster has")
        if self.master is not None and not _MASTER.fullmatch(self.master):
            raise OptionError(
                f"--spark {self.master!r} is no Spark cluster; write spark://HOST:PORT, yarn, k8s://…, or local[N] for "
                "this process"
            )
        if self.remote is not None and not _REMOTE.fullmatch(self.remote):
            raise OptionError(f"--remote {self.remote!r} is no Spark Connect address; write sc://HOST:PORT")
        if not 0 <= self.every_s < math.inf:
            raise OptionError(f"--every {self.every_s} is no number of seconds from zero on")


def execute(
    pipeline: str,
    identity: Mapping[str, str],
    body: "Callable[[Run], Summary]",
    settings: RunSettings,
    view: View,
    *,
    clock: Clock | None = None,
    end_at_once: Callable[[], NoReturn] | None = None,
) -> "tuple[str, Summary]":
    """Run a body; give its id and its summary. What is no HeadraceError is raised as PipelineFailedError.

    `end_at_once` is called for a second request to stop, in the middle of what the main thread does, and ends the
    process. Without it KeyboardInterrupt is raised there. Raised inside a call to the JVM, PySpark prints it.
    """
    clock = clock or SystemClock()
    id = settings.id or run_id(pipeline, identity)
    directory = settings.state / id
    with _locked(directory, id), _stop_requests(clock) as requests:
        book = _Book(directory, _new_record(pipeline, identity, id, directory, settings, clock), clock)

        def end() -> NoReturn:
            book.close("stopped")
            if end_at_once is not None:
                end_at_once()
            raise KeyboardInterrupt

        requests.asked_again = end
        run = Run(
            id=id,
            directory=directory,
            checkpoints=book.record.checkpoint,
            is_continuous=settings.is_continuous,
            every_s=settings.every_s,
            start=lambda: _start_session(id, settings, directory / LOG_NAME, requests),
            view=view,
            stopping=requests.asked,
            clock=clock,
            seen=book.note,
        )
        try:
            summary = body(run)
        except HeadraceError as error:
            book.close("failed", str(error))
            raise
        except Exception as error:
            sentence = explain(error)
            book.close("failed", sentence)
            raise PipelineFailedError(sentence) from error
        except StoppedEarlyError:
            book.close("stopped")
            raise
        except BaseException as error:  # a second request to stop, an exit
            book.close("stopped" if requests.asked.is_set() else "failed", str(error) or type(error).__name__)
            raise
        finally:
            _stop_session(run)
        book.close("stopped" if requests.asked.is_set() else "done")
        return id, summary


def _new_record(
    pipeline: str, identity: Mapping[str, str], id: str, directory: Path, settings: RunSettings, clock: Clock
) -> RunRecord:
    before = read_record(directory)
    if before is not None and (before.pipeline, before.identity) != (pipeline, dict(identity)):
        was = ", ".join(f"{name} {value}" for name, value in before.identity.items())
        raise OtherRunError(
            f"{id} is a run of {before.pipeline} ({was}), and its checkpoint does not fit; give another --id, "
            f"or `headrace pipeline forget {id}`"
        )
    birth = birth_of(os.getpid())
    assert birth is not None, "this process runs"
    return RunRecord(
        id=id,
        pipeline=pipeline,
        identity=dict(identity),
        is_continuous=settings.is_continuous,
        checkpoint=settings.checkpoint or str((directory / CHECKPOINT_NAME).absolute()),
        state="running",
        pid=os.getpid(),
        birth=birth,
        run_count=1 if before is None else before.run_count + 1,
        started_ms=clock.wall_ms(),
    )


class _Book:
    """Keeps the record up to date, not more often than anybody would look."""

    def __init__(self, directory: Path, record: RunRecord, clock: Clock) -> None:
        self.record = record
        self._directory = directory
        self._clock = clock
        self._written_ms = clock.monotonic_ms()
        write_record(directory, record)

    def note(self, totals: Totals) -> None:
        self.record = msgspec.structs.replace(
            self.record,
            rows=totals.rows,
            batches=totals.batches,
            rows_per_second=round(totals.pace, 1),
            lag=totals.lag,
        )
        if self._clock.monotonic_ms() - self._written_ms >= _RECORD_EVERY_MS:
            self._written_ms = self._clock.monotonic_ms()
            write_record(self._directory, self.record)

    def close(self, state: State, failure: str | None = None) -> None:
        self.record = msgspec.structs.replace(self.record, state=state, ended_ms=self._clock.wall_ms(), failure=failure)
        write_record(self._directory, self.record)


@contextmanager
def _locked(directory: Path, id: str) -> Iterator[None]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = DirectoryLock(str(directory / LOCK_NAME))
    except OSError as error:
        raise OptionError(
            f"{directory} cannot be used for the run's state: {error.strerror}; give --state DIR"
        ) from None
    try:
        if not lock.try_lock():
            other = read_record(directory)
            who = "" if other is None else f" as process {other.pid}"
            raise RunInProgressError(
                f"{id} runs already{who}, and two runs on one checkpoint would spoil it; "
                f"`headrace pipeline stop {id}` ends it, --id NAME starts another"
            )
        yield
    finally:
        lock.release()


class StopRequests:
    """What SIGTERM and Ctrl-C have asked for."""

    def __init__(self, clock: Clock) -> None:
        self.asked = threading.Event()
        self.asked_again: Callable[[], None] = lambda: None
        self._clock = clock
        self._asked_ms = 0
        self._is_starting = False

    def take(self, number: int, frame: FrameType | None) -> None:
        now_ms = self._clock.monotonic_ms()
        is_again = self.asked.is_set()
        if not is_again:
            self._asked_ms = now_ms
            self.asked.set()
        if self._is_starting:
            raise StoppedEarlyError
        if is_again and now_ms - self._asked_ms >= _ONE_REQUEST_MS:
            self.asked_again()

    @contextmanager
    def starting(self) -> Iterator[None]:
        """A session is started in here: a request cuts that off."""
        if self.asked.is_set():
            raise StoppedEarlyError
        self._is_starting = True
        try:
            yield
        except StoppedEarlyError:
            raise
        except KeyboardInterrupt:  # PySpark's own handler for Ctrl-C, which it puts in place of ours
            self.asked.set()
            raise StoppedEarlyError from None
        finally:
            self._is_starting = False


@contextmanager
def _stop_requests(clock: Clock) -> Iterator[StopRequests]:
    """Signals reach the main thread only; a run in another one is not to be stopped so."""
    requests = StopRequests(clock)
    if threading.current_thread() is not threading.main_thread():
        yield requests
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    _take_signals(requests)
    try:
        yield requests
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _take_signals(requests: StopRequests) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, requests.take)
        signal.signal(signal.SIGINT, requests.take)


def _start_session(id: str, settings: RunSettings, log: Path, requests: StopRequests) -> "SparkSession":
    from headrace.spark.session import log_refusals, session

    with requests.starting(), _output_into(None if settings.is_verbose else log):
        check_cluster(settings.master, settings.remote)
        try:
            started = session(f"headrace {id}", master=settings.master, remote=settings.remote, config=settings.config)
        except HeadraceError:
            raise
        except Exception as error:
            more = "" if settings.is_verbose else f"; what it said is in {log}"
            raise PipelineFailedError(f"Spark did not start: {explain(error).rstrip('.')}{more}") from error
    if settings.is_verbose:
        log_refusals()
    # PySpark has a handler of its own for Ctrl-C, which cancels all jobs.
    _take_signals(requests)
    return started


def _stop_session(run: Run) -> None:
    if run.has_session:
        with suppress(Exception):  # a JVM that is gone cannot be stopped any more, and has said so
            run.spark().stop()


@contextmanager
def _output_into(log: Path | None) -> Iterator[None]:
    """What is started meanwhile has this file for its output: the JVM, and the Python workers that it starts."""
    if log is None:
        yield
        return
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with log.open("ab") as file:
        try:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            yield
        finally:
            for number, handle in enumerate(kept, start=1):
                os.dup2(handle, number)
                os.close(handle)
