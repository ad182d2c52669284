"""What a benchmark says: figures for programs, a table for people, and its targets with met or missed."""

from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table


class Goal(msgspec.Struct, frozen=True, kw_only=True):
    """A target of the project, and what was measured."""

    text: str
    value: float
    is_met: bool

    @classmethod
    def at_least(cls, text: str, limit: float, value: float) -> "Goal":
        return cls(text=text, value=value, is_met=value >= limit)

    @classmethod
    def below(cls, text: str, limit: float, value: float) -> "Goal":
        return cls(text=text, value=value, is_met=value < limit)

    @classmethod
    def at_most(cls, text: str, limit: float, value: float) -> "Goal":
        return cls(text=text, value=value, is_met=value <= limit)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    title: str
    columns: list[str]
    rows: list[list[str]]
    figures: Any  # what the table is made of, unrounded
    goals: list[Goal] = []
    notes: list[str] = []


def console() -> Console:
    """A terminal's width where there is one; a pipe gets whole lines."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=160)


def print_table(out: Console, title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    table = Table(title=f"[bold]{title}[/]", title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    out.print(table)


def print_report(out: Console, report: Report) -> None:
    print_table(out, report.title, report.columns, report.rows)
    for note in report.notes:
        out.print(f"  [dim]{note}[/]")
    for goal in report.goals:
        out.print(f"  {verdict(goal)}  {goal.text}: {goal.value:.2f}")
    out.print()


def verdict(goal: Goal) -> str:
    return "[green]met   [/]" if goal.is_met else "[red]missed[/]"


def amount(value: float) -> str:
    """A number with as many digits as it deserves."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
