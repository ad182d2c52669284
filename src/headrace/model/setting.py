"""Settings that users give as text, by the names of Kafka's tools: their grammar, their check, how they are shown."""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

from headrace.model.errors import InvalidConfigError


class ConfigKey(NamedTuple):
    """One setting that users may give."""

    name: str
    field: str | None  # of the configuration that it sets; None for what is stored and shown only
    kind: str  # "boolean", "int", "long", "double", "string" or "list": what Kafka's admin tools call the type
    grammar: str
    parse: Callable[[str], Any]
    documentation: str
    default: str


class UnsupportedValueError(ValueError):
    """A value that Kafka knows and that would promise what this node does not do."""


Keys = Mapping[str, ConfigKey]
Grammar = tuple[str, Callable[[str], Any]]

# Python's own parsers would also take 1_000 and the digits of other scripts.
_WHOLE = re.compile(r"-?[0-9]+")
_DECIMAL = re.compile(r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def integer(low: int, high: int, *, or_else: int | None = None, meaning: str = "") -> Grammar:
    grammar = f"a whole number from {low} to {high}" + (f", or {or_else} for {meaning}" if meaning else "")

    def parse(text: str) -> int:
        if not _WHOLE.fullmatch(text.strip()):
            raise ValueError
        value = int(text)
        if value != or_else and not low <= value <= high:
            raise ValueError
        return value

    return grammar, parse


def fraction(text: str) -> float:
    if not _DECIMAL.fullmatch(text.strip()):
        raise ValueError
    value = float(text)
    if not 0 <= value <= 1:
        raise ValueError
    return value


def choice(kind: type[Enum]) -> Grammar:
    return "one of " + ", ".join(member.value for member in kind), kind


def only(*values: str, unsupported: Mapping[str, str] = {}) -> Grammar:
    """One of these values; `unsupported` has Kafka's others, each with the reason that it is rejected for."""

    def parse(text: str) -> str:
        if text in unsupported:
            raise UnsupportedValueError(unsupported[text])
        if text not in values:
            raise ValueError
        return text

    return "one of " + ", ".join(values) if len(values) > 1 else values[0], parse


def boolean(*, true_is_unsupported: str = "") -> Grammar:
    def parse(text: str) -> bool:
        value = {"true": True, "false": False}.get(text.strip().lower())
        if value is None:
            raise ValueError
        if value and true_is_unsupported:
            raise UnsupportedValueError(true_is_unsupported)
        return value

    return ("false" if true_is_unsupported else "true or false"), parse


def text_of(value: object) -> str:
    """A parsed value in the form that it is set with."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value.value) if isinstance(value, Enum) else str(value)


def find(keys: Keys, name: str) -> ConfigKey:
    """A setting by its name. An unknown one names the nearest valid one."""
    key = keys.get(name)
    if key is None:
        near = difflib.get_close_matches(name, keys, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}?" if near else "valid keys are " + ", ".join(keys)
        raise InvalidConfigError(f"{name} is not a setting; {hint}")
    return key


def parse_fields(keys: Keys, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Check settings one by one. Returns the values of those that are obeyed, by field."""
    fields: dict[str, Any] = {}
    for name, text in overrides.items():
        key = find(keys, name)
        try:
            value = key.parse(text)
        except UnsupportedValueError as error:
            raise InvalidConfigError(f"{name}={text} is not supported: {error}; it takes {key.grammar}") from None
        except ValueError:
            raise InvalidConfigError(f"{name}={text!r} is not valid; it takes {key.grammar}") from None
        if key.field is not None:
            fields[key.field] = value
    return fields


def show_value(key: ConfigKey, overrides: Mapping[str, str]) -> str:
    """A setting's value, in the form that it is set with, under these overrides."""
    text = overrides.get(key.name)
    return key.default if text is None else text_of(key.parse(text))
