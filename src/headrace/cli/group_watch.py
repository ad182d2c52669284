"""The live view of a group: its lag at each look, how fast it reads, and how fast messages arrive.

At a terminal one table is drawn in place. In a pipe each look is printed below the last, and with --json it is a line.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from headrace.cli.group_lag import GroupView, look, view_json
from headrace.cli.output import emit_json, emit_table, people
from headrace.cli.session import Session
from headrace.host.clock import SystemClock

_COLUMNS = ("topic", "partition", "committed", "end offset", "lag", "reads/s", "arrive/s", "member")


class Rates:
    """What has moved since the look before, for each second."""

    def __init__(self, before: GroupView | None, now: GroupView, *, elapsed_s: float) -> None:
        self._before = {} if before is None else {one.at: one for one in before.partitions}
        self._now = now
        self._elapsed_s = max(elapsed_s, 0.001)

    def rows(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for one in self._now.partitions:
            old = self._before.get(one.at)
            reads = arrives = None
            if old is not None:
                arrives = self._rate(one.end - old.end)
                if one.committed is not None and old.committed is not None:
                    reads = self._rate(one.committed - old.committed)
            client = None if one.member is None else one.member.client_id
            rows.append((*one.at, one.committed, one.end, one.lag, reads, arrives, client))
        return rows

    def _rate(self, moved: int) -> int:
        return round(moved / self._elapsed_s)

    @property
    def reads_per_second(self) -> int:
        return sum(row[5] or 0 for row in self.rows())

    @property
    def arrive_per_second(self) -> int:
        return sum(row[6] or 0 for row in self.rows())


Draw = Callable[[GroupView, Rates], None]


def watch(opened: Session, name: str, *, interval_s: float, count_max: int | None, as_json: bool) -> None:
    """Look until Ctrl-C, which is how a person ends it and no failure."""
    console = people()
    with suppress(KeyboardInterrupt):
        if as_json:
            opened.run(_look_again(opened, name, interval_s, count_max, _draw_json))
        elif not console.is_terminal:
            opened.run(_look_again(opened, name, interval_s, count_max, _draw_below))
        else:
            with Live(console=console, auto_refresh=False) as live:
                opened.run(_look_again(opened, name, interval_s, count_max, _drawing_in_place(live)))


async def _look_again(opened: Session, name: str, interval_s: float, count_max: int | None, draw: Draw) -> None:
    clock = SystemClock()
    before: GroupView | None = None
    before_ms = clock.monotonic_ms()
    done = 0
    while True:
        view = await look(opened.client, name)
        now_ms = clock.monotonic_ms()
        draw(view, Rates(before, view, elapsed_s=(now_ms - before_ms) / 1000))
        before, before_ms = view, now_ms
        done += 1
        if done == count_max:
            return
        await asyncio.sleep(interval_s)


def _headline(view: GroupView, rates: Rates) -> str:
    group = view.group
    count = len(group.members)
    return (
        f"[bold]{escape(group.name)}[/]  {group.kind} group, {group.state}, {count} member{'s' * (count != 1)}; "
        f"lag {view.lag}, reads {rates.reads_per_second}/s, {rates.arrive_per_second}/s arrive"
    )


def _draw_json(view: GroupView, rates: Rates) -> None:
    emit_json(
        view_json(view) | {"reads_per_second": rates.reads_per_second, "arrive_per_second": rates.arrive_per_second}
    )


def _draw_below(view: GroupView, rates: Rates) -> None:
    Console(highlight=False, width=10_000).print(_headline(view, rates))
    emit_table(_COLUMNS, rates.rows())


def _drawing_in_place(live: Live) -> Draw:
    def draw(view: GroupView, rates: Rates) -> None:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for column in _COLUMNS:
            table.add_column(column, justify="left" if column in ("topic", "member") else "right")
        for row in rates.rows():
            table.add_row(*("-" if value is None else escape(str(value)) for value in row))
        live.update(Group(_headline(view, rates), table), refresh=True)

    return draw
