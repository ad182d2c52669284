"""A report: sections in an order, as one HTML file that needs nothing else.

No script, no font, no picture from elsewhere. All text is escaped here, so callers give plain text; colours follow the
reader's light or dark setting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import assert_never

from headrace.host.whole_file import replace_file
from headrace.spark.report.chart import BarChart, LineChart, draw_bars, draw_lines
from headrace.spark.report.scale import whole

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One number that a reader should not have to look for."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figures:
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    title: str
    paragraphs: Sequence[str]


Section = Figures | Table | Text | LineChart | BarChart


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    title: str
    sections: Sequence[Section]
    subtitle: str = ""


def write_report(path: Path, report: Report) -> None:
    """The file is there whole or not at all."""
    replace_file(path, render(report).encode())


def render(report: Report) -> str:
    title = escape(report.title)
    sections = "\n".join(_section(section) for section in report.sections)
    subtitle = f'<p class="subtitle">{escape(report.subtitle)}</p>' if report.subtitle else ""
    return (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head>\n"
        f"<body><main><h1>{title}</h1>{subtitle}\n{sections}\n</main></body></html>\n"
    )


def _section(section: Section) -> str:
    match section:
        case Figures():
            return _figures(section)
        case Table():
            return _framed(section.title, _table(section), section.note)
        case Text():
            return _framed(section.title, "".join(f"<p>{escape(one)}</p>" for one in section.paragraphs), "")
        case LineChart():
            return _framed(f"{section.title} ({section.unit})", draw_lines(section), section.note)
        case BarChart():
            return _framed(f"{section.title} ({section.unit})", draw_bars(section), section.note)
        case _:
            assert_never(section)


def _framed(title: str, inner: str, note: str) -> str:
    below = f'<p class="note">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{inner}{below}</section>"


def _figures(section: Figures) -> str:
    cards = "".join(
        f'<div class="card"><div class="label">{escape(one.label)}</div><div class="value">{escape(one.value)}</div>'
        f'<div class="note">{escape(one.note)}</div></div>'
        for one in section.figures
    )
    return f'<div class="cards">{cards}</div>'


def _table(table: Table) -> str:
    numeric = [
        bool(table.rows) and all(_is_number(row[index]) or row[index] is None for row in table.rows)
        for index in range(len(table.columns))
    ]
    heads = "".join(f"<th{_right(one)}>{escape(name)}</th>" for name, one in zip(table.columns, numeric, strict=True))
    rows = "".join(
        "<tr>"
        + "".join(f"<td{_right(one)}>{_cell(value)}</td>" for value, one in zip(row, numeric, strict=True))
        + "</tr>"
        for row in table.rows
    )
    return f'<div class="wide"><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>'


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _right(is_numeric: bool) -> str:
    return ' class="number"' if is_numeric else ""


def _cell(value: Value) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return whole(value)
    return escape(value)


_STYLE = """
:root{color-scheme:light dark;--page:#fbfbfa;--card:#fff;--ink:#1c2024;--dim:#60646c;--edge:#e3e4e6;
--series-0:#2563eb;--series-1:#d97706;--series-2:#059669;--series-3:#db2777;
--series-4:#7c3aed;--series-5:#0891b2;--series-6:#65a30d;--series-7:#dc2626}
@media (prefers-color-scheme:dark){:root{--page:#111315;--card:#191c1f;--ink:#eceef0;--dim:#9ba1a8;--edge:#2c3035;
--series-0:#60a5fa;--series-1:#fbbf24;--series-2:#34d399;--series-3:#f472b6;
--series-4:#a78bfa;--series-5:#22d3ee;--series-6:#a3e635;--series-7:#f87171}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1020px;margin:0 auto;padding:32px 20px 64px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:16px;margin:0 0 12px}
.subtitle,.note,.empty{color:var(--dim);margin:0}.note{font-size:13px;margin-top:8px}
section,.card{background:var(--card);border:1px solid var(--edge);border-radius:10px;padding:18px 20px;margin-top:18px}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(170px,1fr));gap:14px}
.card .label{color:var(--dim);font-size:13px}.card .value{font-size:26px;font-variant-numeric:tabular-nums}
.card .note{margin-top:0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--dim);font-weight:600}
th,td{padding:6px 12px 6px 0;border-bottom:1px solid var(--edge);vertical-align:top}
tbody tr:last-child td{border-bottom:0}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
svg{width:100%;height:auto;display:block}.grid{stroke:var(--edge)}
.tick,svg .label{fill:var(--dim);font-size:12px}svg .label{fill:var(--ink)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}.bar{fill:var(--series-0)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;list-style:none;margin:10px 0 0;padding:0;font-size:13px}
.swatch{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
""".replace("\n", "")
