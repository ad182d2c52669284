"""What every command shares: where output goes, in which form, and how an expected error ends the program.

Data goes to standard output and nothing else does, so that a pipe sees only data; notices, progress and errors go to
standard error. Exit codes: 0 done, 1 failed, 2 wrongly used (typer's own).
"""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NoReturn

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperGroup

from headrace.model.errors import HeadraceError

EXIT_FAILED = 1
EXIT_MISUSED = 2

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


class Group(TyperGroup):
    """A command group that turns an expected error into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except HeadraceError as error:
            fail(str(error), self.exit_code(error))

    def exit_code(self, error: HeadraceError) -> int:
        return EXIT_FAILED


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    """Say why in one sentence and leave."""
    notice(f"[bold red]error:[/] {escape(message)}")
    raise typer.Exit(code)


# Consoles are made for each use: a test or a caller may have replaced the standard streams since.


def people() -> Console:
    """Standard output, for tables."""
    return Console(highlight=False)


def notice(markup: str) -> None:
    """One line for the person at the terminal, never part of the data."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(markup)


def emit_json(value: Any) -> None:
    """One JSON document on one line: easy to pipe, easy to read line by line."""
    emit_bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def emit_bytes(data: bytes) -> None:
    """All of the bytes, at once. Under PYTHONUNBUFFERED the stream is a bare file, whose writes may be short."""
    left = memoryview(data)
    while left:
        left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table of plain values; columns of numbers are set to the right. In a pipe it is never cut to a width."""
    materialised = [list(row) for row in rows]
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        numeric = bool(materialised) and all(isinstance(row[index], int) for row in materialised)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in materialised:
        table.add_row(*(escape(_cell(value)) for value in row))
    console = people()
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000)
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def as_text(data: bytes) -> str:
    """Bytes for a person's eye: text where it is text, escapes where it is not."""
    return data.decode("utf-8", errors="backslashreplace")
