"""How the node's own log lines look: a constant message with its values as fields, for people or as JSON."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

from headrace.app.config import LoggingConfig

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
# What a record has without anybody's doing; the rest are the fields that were given with `extra`.
_OWN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


def configure_logging(config: LoggingConfig) -> None:
    """Send every logger of the process to standard error in the configured form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if config.format == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[config.level])


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in record.__dict__.items() if name not in _OWN}


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class JsonFormatter(logging.Formatter):
    """One JSON object a line. A client's line breaks stay inside a string, so they cannot forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class HumanFormatter(logging.Formatter):
    """`03:04:05.678 INFO headrace.log.partition  partition opened  topic=orders partition=3`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{name}={_plain(value)}" for name, value in _fields(record).items())
        line = f"{_moment(record)[11:23]} {record.levelname:<7} {record.name}  {_plain_text(record.getMessage())}"
        if fields:
            line += f"  {fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _plain(value: object) -> str:
    text = str(value)
    return repr(text) if not text or not text.isprintable() or " " in text else text


def _plain_text(text: str) -> str:
    return text if text.isprintable() else repr(text)
