"""Charts as SVG text. Colours are the page's variables, so a chart follows its light or dark."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from headrace.spark.report.scale import short, time_label, time_ticks, value_ticks, whole

WIDTH, HEIGHT = 920, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 28
_COLOURS = 8  # --series-0 … of the page; after that they come round
_POINTS_MARKED_MAX = 400
_DIGIT = 8  # the width of a letter of a label, rather too much
_BAR_HEIGHT, _BAR_GAP, _BAR_LABEL = 22, 8, 220

Point = tuple[int, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    name: str
    points: Sequence[Point]  # milliseconds since 1970, and the value; None is a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class LineChart:
    """Values over time."""

    title: str
    unit: str
    series: Sequence[Series]
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BarChart:
    """A value for each of some names, the largest where the caller puts it."""

    title: str
    unit: str
    bars: Sequence[tuple[str, float]]
    note: str = ""


def draw_lines(chart: LineChart) -> str:
    moments = [moment for one in chart.series for moment, value in one.points if value is not None]
    if not moments:
        return '<p class="empty">Nothing was measured.</p>'
    values = [value for one in chart.series for _, value in one.points if value is not None]
    frame = _Frame(min(moments), max(moments), value_ticks(max(values)))
    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">', frame.draw()]
    for index, one in enumerate(chart.series):
        parts.append(_line(one, index, frame, chart.unit))
    parts.append("</svg>")
    return "".join(parts) + _legend(chart.series)


class _Frame:
    """Where values and moments are on the paper."""

    def __init__(self, first_ms: int, last_ms: int, ticks: Sequence[float]) -> None:
        if first_ms == last_ms:
            first_ms, last_ms = first_ms - 30_000, last_ms + 30_000
        self._first_ms, self._span_ms = first_ms, last_ms - first_ms
        self._ticks = ticks

    def x(self, moment_ms: float) -> float:
        return _LEFT + (moment_ms - self._first_ms) / self._span_ms * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - value / self._ticks[-1] * (HEIGHT - _TOP - _BOTTOM)

    def draw(self) -> str:
        parts = []
        for tick in self._ticks:
            y = self.y(tick)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>')
        for moment in time_ticks(self._first_ms, self._first_ms + self._span_ms):
            x, label = self.x(moment), time_label(moment, self._span_ms)
            # A label that stands in the middle of the last moment would be cut off by the paper's edge.
            x, anchor = (WIDTH, "end") if x + len(label) * _DIGIT / 2 > WIDTH else (x, "middle")
            parts.append(f'<text class="tick" x="{x:.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{label}</text>')
        return "".join(parts)


def _line(one: Series, index: int, frame: _Frame, unit: str) -> str:
    """A path that is broken where a value is missing, and a mark with its value at each point."""
    path, pen_down = [], False
    marks = []
    for moment, value in one.points:
        if value is None:
            pen_down = False
            continue
        x, y = frame.x(moment), frame.y(value)
        path.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
        text = escape(f"{one.name}: {whole(value)} {unit}, {time_label(moment, 0)}")
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5"><title>{text}</title></circle>')
    colour = f"var(--series-{index % _COLOURS})"
    drawn = "".join(marks) if len(marks) <= _POINTS_MARKED_MAX else ""
    return f'<path class="line" style="stroke:{colour}" d="{" ".join(path)}"/><g style="fill:{colour}">{drawn}</g>'


def _legend(series: Sequence[Series]) -> str:
    items = "".join(
        f'<li><span class="swatch" style="background:var(--series-{index % _COLOURS})"></span>{escape(one.name)}</li>'
        for index, one in enumerate(series)
    )
    return f'<ul class="legend">{items}</ul>'


def draw_bars(chart: BarChart) -> str:
    if not chart.bars:
        return '<p class="empty">There is nothing to show.</p>'
    most = max(max(value for _, value in chart.bars), 1e-12)
    height = len(chart.bars) * (_BAR_HEIGHT + _BAR_GAP)
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(chart.title)}">']
    room = WIDTH - _BAR_LABEL - 90
    for index, (name, value) in enumerate(chart.bars):
        y = index * (_BAR_HEIGHT + _BAR_GAP)
        width = max(value / most * room, 1.0)
        shown = name if len(name) <= 32 else name[:31] + "…"
        text = y + _BAR_HEIGHT / 2 + 4
        parts.append(
            f'<text class="label" x="{_BAR_LABEL - 10}" y="{text:.1f}" text-anchor="end">{escape(shown)}</text>'
            f'<rect x="{_BAR_LABEL}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" rx="3" class="bar">'
            f"<title>{escape(name)}: {whole(value)} {escape(chart.unit)}</title></rect>"
            f'<text class="label" x="{_BAR_LABEL + width + 8:.1f}" y="{text:.1f}">{whole(value)}</text>'
        )
    return "".join(parts) + "</svg>"
