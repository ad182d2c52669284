"""A queue's settings as people write and read them: `lease=30s`, `backoff=10s-10m`, `ttl=none`."""

from difflib import get_close_matches
from typing import Any, cast, get_args

from headrace.cli.output import WrongUseError
from headrace.cli.queue_session import parse_span, show_span
from headrace.client.queue.description import Guarantee, Settings
from headrace.model.names import check_topic_name

_SPANS = frozenset({"lease", "delay", "ttl", "retention", "history", "deduplication_window", "reader_lag_max"})
_COUNTS = frozenset({"max_deliveries", "messages_max", "leased_max", "reader_lag_bytes_max"})
_SWITCHES = frozenset({"ordered", "fair", "dead_letter_expired"})
# What may be written, of those that are one of a few words.
_CHOICES: dict[str, tuple[str, ...]] = {
    "guarantee": get_args(Guarantee),
    "deduplication": get_args(Settings.__annotations__["deduplication"]),
    "overflow": get_args(Settings.__annotations__["overflow"]),
}
_MAY_BE_NONE = frozenset(name for name, kind in Settings.__annotations__.items() if type(None) in get_args(kind))
_SWITCH_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def parse_settings(pairs: list[tuple[str, str]]) -> Settings:
    return cast(Settings, {name: _parse(name, text.strip()) for name, text in pairs})


def _parse(name: str, text: str) -> Any:
    if name not in Settings.__annotations__:
        near = get_close_matches(name, Settings.__annotations__, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(Settings.__annotations__))}"
        raise WrongUseError(f"{name} is no setting of a queue; {hint}")
    if text.lower() in ("none", "null"):
        if name not in _MAY_BE_NONE:
            raise WrongUseError(f"{name} cannot be none; give a value, or leave it out")
        return None
    if name in _CHOICES and text not in _CHOICES[name]:
        raise WrongUseError(f"{name} takes {' or '.join(_CHOICES[name])}, not {text!r}")
    if name in _SPANS:
        return parse_span(text)
    if name in _COUNTS:
        if not (text.isascii() and text.isdigit()):
            or_none = " or none" if name in _MAY_BE_NONE else ""
            raise WrongUseError(f"{name} takes a whole number{or_none}, not {text!r}")
        return int(text)
    if name in _SWITCHES:
        if text.lower() not in _SWITCH_WORDS:
            raise WrongUseError(f"{name} takes true or false, not {text!r}")
        return _SWITCH_WORDS[text.lower()]
    if name == "backoff":
        first, dash, last = text.partition("-")
        if not dash:
            raise WrongUseError(f"backoff takes a first and a last rest, for example 10s-10m, not {text!r}")
        return {"first": parse_span(first), "last": parse_span(last)}
    return check_topic_name(text) if name == "dead_letter" else text


def show_setting(name: str, value: Any) -> str:
    if value is None:
        return "none"
    if name in _SPANS:
        return show_span(value)
    if name == "backoff":
        return f"{show_span(value['first'])}-{show_span(value['last'])}"
    return str(value).lower() if isinstance(value, bool) else str(value)
