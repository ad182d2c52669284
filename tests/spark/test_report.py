"""Reports: everything escaped, nothing from elsewhere, charts that say what they were given."""

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from headrace.spark.report.chart import BarChart, LineChart, Series, draw_bars, draw_lines
from headrace.spark.report.page import Figure, Figures, Report, Table, Text, render, write_report
from headrace.spark.report.scale import short, time_label, time_ticks, value_ticks

NASTY = "<script>alert('tea & \"cake\"')</script>"
MINUTE_MS = 60_000
_VOID = {"meta", "br", "line", "circle", "rect", "path"}


class Balanced(HTMLParser):
    """Raises at a tag that closes another one than was opened last."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in {"meta"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def everything() -> Report:
    points = [(at * MINUTE_MS, None if at == 5 else float(at)) for at in range(10)]
    return Report(
        title=NASTY,
        subtitle=NASTY,
        sections=[
            Figures([Figure(label=NASTY, value=NASTY, note=NASTY)]),
            Table(
                title=NASTY, columns=(NASTY, "n", "yes"), rows=[(NASTY, 1234, True), (None, None, False)], note=NASTY
            ),
            Text(title=NASTY, paragraphs=[NASTY]),
            LineChart(title=NASTY, unit=NASTY, series=[Series(name=NASTY, points=points)], note=NASTY),
            BarChart(title=NASTY, unit=NASTY, bars=[(NASTY, 3), ("b", 0)], note=NASTY),
        ],
    )


def test_a_report_is_one_well_formed_file_that_asks_for_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "new" / "report.html"
    write_report(path, everything())
    text = path.read_text(encoding="utf-8")
    page = Balanced()
    page.feed(text)
    assert page.open == []
    assert not page.seen & {"script", "img", "link", "iframe"}
    assert not re.search(r"https?:|url\(|@import", text)
    assert "prefers-color-scheme:dark" in text
    assert [one.name for one in path.parent.iterdir()] == ["report.html"]


def test_numbers_are_set_right_and_text_is_not() -> None:
    text = render(everything())
    assert '<td class="number">1,234</td>' in text
    assert '<td class="number">-</td>' in text
    assert "<td>yes</td>" in text


def test_a_line_is_broken_where_a_value_is_missing() -> None:
    points = [(0, 1.0), (MINUTE_MS, None), (2 * MINUTE_MS, 2.0), (3 * MINUTE_MS, 3.0)]
    drawn = draw_lines(LineChart(title="t", unit="u", series=[Series(name="a", points=points)]))
    svg = ElementTree.fromstring(drawn[: drawn.index("</svg>") + 6])
    (path,) = svg.iter("path")
    assert re.sub(r"[0-9. ]", "", path.attrib["d"]) == "MML"
    assert len(list(svg.iter("circle"))) == 3


def test_the_highest_value_is_within_the_frame() -> None:
    points = [(at * MINUTE_MS, value) for at, value in enumerate([0.0, 99_999.0, 100_001.0])]
    drawn = draw_lines(LineChart(title="t", unit="u", series=[Series(name="a", points=points)]))
    heights = [float(y) for y in re.findall(r'cy="([0-9.]+)"', drawn)]
    assert min(heights) >= 12
    assert max(heights) == pytest.approx(252)


@pytest.mark.parametrize("points", [[], [(0, None)]])
def test_a_chart_of_nothing_says_so(points: list[tuple[int, float | None]]) -> None:
    assert "Nothing" in draw_lines(LineChart(title="t", unit="u", series=[Series(name="a", points=points)]))
    assert "nothing" in draw_bars(BarChart(title="t", unit="u", bars=[]))


def test_the_label_of_the_last_moment_ends_on_the_paper() -> None:
    drawn = ElementTree.fromstring(
        draw_lines(
            LineChart(title="a", unit="b", series=[Series(name="c", points=[(0, 1.0), (60_000, 2.0)])])
        ).partition("</svg>")[0]
        + "</svg>"
    )
    last = [text for text in drawn.iter("text") if text.text == "00:01:00"]
    assert [(text.get("x"), text.get("text-anchor")) for text in last] == [("920.0", "end")]


def test_one_point_is_a_chart_too() -> None:
    assert "<circle" in draw_lines(LineChart(title="t", unit="u", series=[Series(name="a", points=[(5, 0.0)])]))


@pytest.mark.parametrize(
    ("most", "ticks"),
    [(0, [0, 1]), (1, [0, 0.2, 0.4, 0.6, 0.8, 1]), (7, [0, 2, 4, 6, 8]), (100_000, [0, 2e4, 4e4, 6e4, 8e4, 1e5])],
)
def test_ticks_are_round_numbers_up_to_the_most(most: float, ticks: list[float]) -> None:
    assert value_ticks(most) == pytest.approx(ticks)


def test_ticks_of_time_are_round_moments() -> None:
    assert time_ticks(1, 10 * MINUTE_MS) == [5 * MINUTE_MS, 10 * MINUTE_MS]
    assert len(time_ticks(0, 400 * 86_400_000 * 30)) <= 9
    assert time_label(90_000, 60_000) == "00:01:30"
    assert time_label(0, 10 * 86_400_000) == "01 Jan"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (950, "950"), (1200, "1.2k"), (2.5e6, "2.5M"), (3e9, "3G")])
def test_axes_have_few_digits(value: float, text: str) -> None:
    assert short(value) == text
