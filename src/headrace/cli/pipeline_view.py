"""How far a pipeline is, on the screen: a line that is drawn over for people, lines of JSON for programs."""

import os
import sys
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner

from headrace.cli.output import emit_json, emit_table, people
from headrace.host.clock import SystemClock
from headrace.spark.pipeline.progress import Totals
from headrace.spark.pipeline.summary import Summary

_LINES_EVERY_MS = 1_000
_PLAIN_EVERY_MS = 10_000


class PipelineView(Protocol):
    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def progress(self, step: str, totals: Totals, of: int | None) -> None: ...

    def note(self, sentence: str) -> None: ...

    def summary(self, id: str, summary: Summary) -> None: ...


class PeopleView:
    """One line at the bottom of a terminal; in a pipe, a line now and then. All of it on standard error."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._console = Console(stderr=True, highlight=False, soft_wrap=True, file=_terminal())
        self._live: Live | None = None
        self._clock = SystemClock()
        self._said_ms = self._clock.monotonic_ms()  # who is quicker than one line's time says nothing in a pipe

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def progress(self, step: str, totals: Totals, of: int | None) -> None:
        line = progress_line(step or self._pipeline, totals, of)
        if self._console.is_terminal:
            if self._live is None:
                self._live = Live(console=self._console, transient=True, refresh_per_second=8)
                self._live.start()
            self._live.update(Spinner("dots", text=line))
        elif self._is_due():
            self._console.print(line)

    def _is_due(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms < _PLAIN_EVERY_MS:
            return False
        self._said_ms = now_ms
        return True

    def note(self, sentence: str) -> None:
        self._console.print(escape(sentence))

    def summary(self, id: str, summary: Summary) -> None:
        self.__exit__(None, None, None)
        people().print(f"[bold]{escape(summary.title)}[/]")
        if summary.rows:
            emit_table(summary.columns, summary.rows)
        width = max((len(name) for name in summary.figures), default=0)
        for name, value in summary.figures.items():
            people().print(f"{escape(name.ljust(width))}  {escape(shown(value))}")
        for sentence in summary.notes:
            people().print(escape(sentence))


class JsonView:
    """Each event a line: started, progress, note, summary."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._said_ms: int | None = None
        self._last: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        pass

    def progress(self, step: str, totals: Totals, of: int | None) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._said_ms is not None and now_ms - self._said_ms < _LINES_EVERY_MS:
            return
        event = {"step": step, "rows": totals.rows, "of": of, "batches": totals.batches, "lag": totals.lag}
        if event == self._last:
            return
        self._said_ms, self._last = now_ms, event
        rate = {"seconds": round(totals.seconds, 3), "rows_per_second": round(totals.pace, 1)}
        emit_json({"event": "progress", **event, **rate})

    def note(self, sentence: str) -> None:
        emit_json({"event": "note", "text": sentence})

    def summary(self, id: str, summary: Summary) -> None:
        emit_json({"event": "summary", "id": id, **summary.as_json()})


def _terminal() -> TextIO | None:
    """The terminal under a name of its own: while a JVM is started, standard error is a file for what that says."""
    if not sys.stderr.isatty():
        return None
    return os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding=sys.stderr.encoding, errors="replace")


def progress_line(step: str, totals: Totals, of: int | None) -> str:
    if not totals.rows and not totals.batches and of is None:
        return escape(step)
    rows = f"{totals.rows:,}" + ("" if of is None else f" of {of:,}")
    parts = [f"{escape(step)}  {rows} rows", f"{totals.pace:,.0f}/s"]
    if totals.batches:
        parts.append(f"batch {totals.batches}")
    if totals.lag is not None:
        parts.append(f"lag {totals.lag:,}")
    return ", ".join(parts)


def shown(value: object) -> str:
    """A figure for a person's eye."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.3g}"
    return "-" if value is None else str(value)
