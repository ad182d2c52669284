"""The shape of JSON messages, found by looking at some of them, in the words of Spark's schemas.

It is a beginning for whoever writes the pipeline: what no message had is not in it, and where messages contradict each
other the field is text. Pure.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# An object with more fields than this is a map whose keys are data.
FIELD_COUNT_MAX = 100

_LONG = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Scalar:
    type: str


@dataclass(frozen=True, slots=True)
class Items:
    of: "Shape | None"


@dataclass(frozen=True, slots=True)
class Fields:
    by_name: Mapping[str, "Shape | None"]


Shape = Scalar | Items | Fields  # None beside it: nothing but null was seen

TEXT = Scalar("STRING")


def shape_of_messages(values: Iterable[bytes | None]) -> Fields | None:
    """The shape that the JSON objects among them have in common; None where those are not the most of them."""
    merged: Shape | None = None
    object_count = other_count = 0
    for value in values:
        if value is None:
            continue
        read = _read(value)
        if isinstance(read, dict):
            merged = merge(merged, shape_of(read))
            object_count += 1
        else:
            other_count += 1
    return merged if isinstance(merged, Fields) and object_count > other_count else None


def _read(value: bytes) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return None


def shape_of(value: Any) -> Shape | None:
    match value:
        case None:
            return None
        case bool():
            return Scalar("BOOLEAN")
        case int():
            return Scalar("BIGINT" if value in _LONG else "DOUBLE")
        case float():
            return Scalar("DOUBLE")
        case list():
            of: Shape | None = None
            for item in value:
                of = merge(of, shape_of(item))
            return Items(of)
        case dict() if 0 < len(value) <= FIELD_COUNT_MAX:
            return Fields(_once({name: shape_of(inner) for name, inner in value.items()}))
    return TEXT


def merge(one: Shape | None, other: Shape | None) -> Shape | None:
    """What both fit into."""
    match one, other:
        case (None, found) | (found, None):
            return found
        case Scalar(), Scalar():
            numbers = {one.type, other.type} == {"BIGINT", "DOUBLE"}
            return one if one == other else Scalar("DOUBLE") if numbers else TEXT
        case Items(), Items():
            return Items(merge(one.of, other.of))
        case Fields(), Fields():
            names = {**one.by_name, **other.by_name}
            if len(names) > FIELD_COUNT_MAX:
                return TEXT
            return Fields(_once({name: merge(one.by_name.get(name), other.by_name.get(name)) for name in names}))
    return TEXT


def _once(fields: dict[str, Shape | None]) -> dict[str, Shape | None]:
    """Spark's names do not tell `Id` from `id`: the first one stays."""
    first: dict[str, str] = {}
    for name in fields:
        first.setdefault(name.lower(), name)
    return {name: shape for name, shape in fields.items() if first[name.lower()] == name}


def columns(shape: Fields) -> list[str]:
    """One column definition for each field."""
    return [f"{quoted(name)} {type_text(inner)}" for name, inner in shape.by_name.items()]


def type_text(shape: Shape | None) -> str:
    match shape:
        case None:
            return TEXT.type
        case Scalar():
            return shape.type
        case Items():
            return f"ARRAY<{type_text(shape.of)}>"
        case Fields():
            inner = ", ".join(f"{quoted(name)}: {type_text(of)}" for name, of in shape.by_name.items())
            return f"STRUCT<{inner}>"


def quoted(name: str) -> str:
    """A name as Spark takes it: as it is where it is plain, else in backticks."""
    if name.isascii() and name.isidentifier():
        return f"`{name}`" if name.upper() in _RESERVED else name
    return "`" + name.replace("`", "``") + "`"


# Words of Spark's grammar that would be read as something else where a column's name is expected.
_RESERVED = frozenset({"COLUMN", "CONSTRAINT", "CHECK", "PRIMARY", "FOREIGN", "UNIQUE"})
