"""What every command shares: where output goes, in which form, and how an expected error ends the program.

Data goes to standard output and nothing else does, so that a pipe sees only data; notices, progress and errors go to
standard error. Exit codes: 0 done, 1 failed, 2 wrongly used (typer's own): what the command itself can see to be wrong,
without asking a node.
"""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Annotated, Any, NoReturn, TypeVar, cast

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer.core import TyperCommand, TyperGroup

from headrace.model.errors import HeadraceError, InvalidNameError, InvalidRequestError, NotAQueueError

EXIT_FAILED = 1
EXIT_MISUSED = 2

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


class WrongUseError(InvalidRequestError):
    """An argument that can never be right, whatever the node."""


class OutputError(HeadraceError):
    """Standard output takes no more: its disk is full, or its device failed."""


def _without_flag_types(parameters: list[Any]) -> list[Any]:
    """Typer's help says of a switch that it takes a <bool>, which it does not."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))


class Group(TyperGroup):
    """A command group that turns an expected error into one sentence and an exit code."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _without_flag_types(super().get_params(ctx))

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NotAQueueError as error:
            fail(
                f"{error.topic} is a topic and not a queue; `headrace queue create {error.topic}` makes it one, and "
                f"`headrace consume {error.topic}` reads it as a stream"
            )
        except HeadraceError as error:
            fail(str(error), code=self.exit_code(error))
        except UnicodeEncodeError as error:
            # Bytes of an argument that are no text become surrogates, which nothing that is sent can hold.
            if not any("\ud800" <= character <= "\udfff" for character in error.object):
                raise
            fail(f"{error.object!r} is not UTF-8 text; give it as such, or in a file", code=EXIT_MISUSED)
        except OSError as error:
            # Of a file that was named the machine's own words say enough. A closed pipe is typer's matter.
            if error.filename is None:
                raise
            fail(f"{os.fsdecode(error.filename)}: {error.strerror}")

    def exit_code(self, error: HeadraceError) -> int:
        return EXIT_MISUSED if isinstance(error, WrongUseError | InvalidNameError) else EXIT_FAILED


F = TypeVar("F", bound=Callable[..., Any])


class App(typer.Typer):
    """A typer application whose commands are `Command`s."""

    def command(self, *names: Any, **more: Any) -> Callable[[F], F]:
        return super().command(*names, **{"cls": Command, **more})


def fail(message: str, *, code: int = EXIT_FAILED) -> NoReturn:
    """Say why in one sentence and leave."""
    notice(f"[bold red]error:[/] {escape(message)}")
    raise typer.Exit(code)


# Consoles are made for each use: a test or a caller may have replaced the standard streams since.


def people() -> Console:
    """Standard output. A line is a line: it is not cut to a width, so that others can search what is written."""
    return Console(file=_checked_output(), highlight=False, soft_wrap=True)


def notice(markup: str) -> None:
    """One line for the person at the terminal, never part of the data."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(markup)


def emit_json(value: Any) -> None:
    """One JSON document on one line: easy to pipe, easy to read line by line."""
    emit_bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n")


def emit_bytes(data: bytes) -> None:
    """All of the bytes, at once. Under PYTHONUNBUFFERED the stream is a bare file, whose writes may be short."""
    with _writing():
        left = memoryview(data)
        while left:
            left = left[sys.stdout.buffer.write(left) :]
        sys.stdout.buffer.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The reader of a pipe that has seen enough is no failure of ours; typer ends the program quietly.
        if error.errno == errno.EPIPE:
            raise
        _let_go_of_output()
        raise OutputError(f"standard output cannot be written: {error.strerror}") from None


def _let_go_of_output() -> None:
    """What is still buffered would fail once more when Python ends, with a complaint of its own."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


class _CheckedOutput:
    """Standard output for rich, with failures in our words."""

    def write(self, text: str) -> int:
        with _writing():
            return sys.stdout.write(text)

    def flush(self) -> None:
        with _writing():
            sys.stdout.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


def _checked_output() -> IO[str]:
    return cast(IO[str], _CheckedOutput())


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
        console = Console(file=_checked_output(), highlight=False, width=10_000)
    console.print(table, soft_wrap=False)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def as_text(data: bytes) -> str:
    """Bytes for a person's eye: text where it is text, escapes where it is not."""
    return data.decode("utf-8", errors="backslashreplace")
