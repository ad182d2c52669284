"""Times as people give them on a command line."""

from datetime import UTC, datetime, timedelta

from headrace.cli.output import WrongUseError

# The end of the year 9999, the last that ISO 8601 has four digits for.
MOMENT_MS_MAX = 253_402_300_799_999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DIGITS_MAX = len(str(MOMENT_MS_MAX))


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 from epoch milliseconds or ISO 8601; without an offset it is this machine's time."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        digits = stripped.lstrip("0") or "0"
        milliseconds = int(digits) if len(digits) <= _DIGITS_MAX else MOMENT_MS_MAX + 1
    else:
        milliseconds = _parse_iso(stripped)
    if milliseconds > MOMENT_MS_MAX:
        raise WrongUseError(f"{text!r} is after the year 9999; is it in milliseconds since 1970?")
    return milliseconds


def _parse_iso(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUseError(
            f"{text!r} is no time; write 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    try:
        milliseconds = round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        # At both ends of the calendar this machine's time zone may lie beyond it.
        milliseconds = -1 if moment.year < 1970 else MOMENT_MS_MAX + 1
    if milliseconds < 0:
        raise WrongUseError(f"{text!r} is before 1970; give a time after that")
    return milliseconds


def show_moment(timestamp_ms: int) -> str:
    """ISO 8601 with milliseconds, in UTC; a dash where a message has no time.

    Producers may send any number as a time. One after the year 9999 is shown as the number that it is.
    """
    if timestamp_ms < 0:
        return "-"
    if timestamp_ms > MOMENT_MS_MAX:
        return str(timestamp_ms)
    moment = _EPOCH + timedelta(milliseconds=timestamp_ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
