"""The field tables, parsed: messages, structs and fields with the versions they exist in.

A table is one JSON file for each request, response, header or data type, in the form of Apache Kafka's message
definitions. Version ranges are cut to what the message is valid in, and a struct's to where something refers to it, so
that the code made from them asks for a version only where the answer can differ.
"""

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

NO_VERSIONS = (1, 0)
_OPEN_END = 1 << 15

Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    base: str  # primitive or struct name, without the array mark
    is_array: bool
    versions: Range
    nullable: Range
    tag: int | None
    ignorable: bool
    default: Any  # as in the table; None when it has none


@dataclass(slots=True, kw_only=True)
class StructTable:
    name: str
    fields: list[Field]
    versions: Range = NO_VERSIONS


@dataclass(slots=True, kw_only=True)
class Message:
    name: str
    kind: str  # request, response, header or data
    api_key: int | None
    versions: Range
    flexible_from: int | None
    latest_unstable: bool
    structs: dict[str, StructTable] = field(default_factory=dict)  # a struct stands after those that it holds

    @property
    def root(self) -> StructTable:
        return self.structs[self.name]


def parse_range(text: str) -> Range:
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return int(text[:-1]), _OPEN_END
    first, _, last = text.partition("-")
    return int(first), int(last or first)


def intersect(one: Range, other: Range) -> Range:
    both = max(one[0], other[0]), min(one[1], other[1])
    return both if both[0] <= both[1] else NO_VERSIONS


def _hull(one: Range, other: Range) -> Range:
    if one == NO_VERSIONS:
        return other
    return min(one[0], other[0]), max(one[1], other[1])


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def _parse_field(entry: dict[str, Any]) -> Field:
    versions = parse_range(entry["versions"])
    if "tag" in entry and parse_range(entry["taggedVersions"]) != versions:
        raise ValueError(f"{entry['name']}: tagged in some of its versions only, which no table had so far")
    return Field(
        name=snake(entry["name"]),
        base=entry["type"].removeprefix("[]"),
        is_array=entry["type"].startswith("[]"),
        versions=versions,
        nullable=parse_range(entry.get("nullableVersions", "none")),
        tag=entry.get("tag"),
        ignorable=entry.get("ignorable", False),
        default=entry.get("default"),
    )


def _collect(name: str, entries: list[dict[str, Any]], found: dict[str, StructTable]) -> None:
    for entry in entries:
        if "fields" in entry:
            _collect(entry["type"].removeprefix("[]"), entry["fields"], found)
    if name in found:
        raise ValueError(f"{name} is defined twice in one message")
    found[name] = StructTable(name=name, fields=[_parse_field(entry) for entry in entries])


def _narrow(message: Message, name: str, versions: Range) -> None:
    """Give a struct and all below it the versions in which they are reached."""
    struct = message.structs[name]
    struct.versions = _hull(struct.versions, versions)
    for item in struct.fields:
        reached = intersect(item.versions, versions)
        if item.base in message.structs and reached != NO_VERSIONS:
            _narrow(message, item.base, reached)


def _ordered(message: Message) -> dict[str, StructTable]:
    """Structs such that each stands after those that it holds; unreachable ones and fields are left out."""
    ordered: dict[str, StructTable] = {}

    def visit(name: str) -> None:
        if name in ordered:
            return
        struct = message.structs[name]
        kept = [replace(item, versions=intersect(item.versions, struct.versions)) for item in struct.fields]
        struct.fields = [
            replace(item, nullable=intersect(item.nullable, item.versions))
            for item in kept
            if item.versions != NO_VERSIONS
        ]
        for item in struct.fields:
            if item.base in message.structs:
                visit(item.base)
        ordered[name] = struct

    visit(message.name)
    return ordered


def load(path: Path) -> Message:
    table = json.loads(path.read_text())
    flexible = parse_range(table["flexibleVersions"])
    versions = parse_range(table["validVersions"])
    message = Message(
        name=table["name"],
        kind=table["type"],
        api_key=table.get("apiKey"),
        versions=versions,
        flexible_from=None if flexible == NO_VERSIONS else max(flexible[0], versions[0]),
        latest_unstable=table.get("latestVersionUnstable", False),
    )
    for common in table.get("commonStructs", []):
        _collect(common["name"], common["fields"], message.structs)
    _collect(message.name, table["fields"], message.structs)
    _narrow(message, message.name, versions)
    message.structs = _ordered(message)
    return message
