"""Times as people give them on a command line."""

from datetime import UTC, datetime

from headrace.cli.output import WrongUseError


def parse_moment(text: str) -> int:
    """Milliseconds since 1970 from epoch milliseconds or ISO 8601; without an offset it is this machine's time."""
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        return int(stripped)
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise WrongUseError(
            f"{text!r} is no time; write 2026-01-31, 2026-01-31T12:00:00Z or milliseconds since 1970"
        ) from None
    milliseconds = round(moment.timestamp() * 1000)
    if milliseconds < 0:
        raise WrongUseError(f"{text!r} is before 1970")
    return milliseconds


def show_moment(timestamp_ms: int) -> str:
    """ISO 8601 with milliseconds, in UTC; a dash where a message has no time."""
    if timestamp_ms < 0:
        return "-"
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
