"""Ticks of an axis: round numbers, round times, and how to write them. Pure."""

import math
from datetime import UTC, datetime

_TIME_STEPS_MS = tuple(
    seconds * 1000
    for seconds in (1, 5, 15, 30, 60, 300, 900, 1800, 3600, 10800, 21600, 43200, 86400, 604800, 2592000, 31536000)
)
_DAY_MS = 86_400_000
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def value_ticks(most: float, count: int = 5) -> list[float]:
    """From zero to at least the most, in steps of 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999999)
    return [step * number for number in range(math.ceil(most / step - 1e-9) + 1)]


def time_ticks(first_ms: int, last_ms: int, count: int = 8) -> list[int]:
    """Round moments between two, at most so many."""
    span = max(last_ms - first_ms, 1)
    step = next((one for one in _TIME_STEPS_MS if span / one <= count), None)
    if step is None:
        step = math.ceil(span / count / _TIME_STEPS_MS[-1]) * _TIME_STEPS_MS[-1]
    begin = math.ceil(first_ms / step) * step
    return list(range(begin, last_ms + 1, step))


def time_label(moment_ms: int, span_ms: int) -> str:
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC)
    if span_ms > 3 * _DAY_MS:
        return moment.strftime("%d %b")
    if span_ms > _DAY_MS:
        return moment.strftime("%d %b %H:%M")
    return moment.strftime("%H:%M:%S" if span_ms < 300_000 else "%H:%M")


def short(value: float) -> str:
    """1,200,000 as 1.2M: few digits, for axes."""
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def whole(value: float) -> str:
    """A value beside its mark: every digit of a large one, four of a small one."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:,.4g}"
