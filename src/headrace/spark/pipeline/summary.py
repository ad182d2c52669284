"""What a pipeline says at its end: a table, a few figures, and notes; the same for people and for programs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Value = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Value]] = ()
    figures: Mapping[str, Value] = field(default_factory=dict)  # totals, shown below the table
    notes: Sequence[str] = ()  # sentences
    is_found: bool = False  # the pipeline looked for something wrong and found it: exit code 3

    def __post_init__(self) -> None:
        for row in self.rows:
            assert len(row) == len(self.columns), f"a row of {len(row)} values under {len(self.columns)} columns"

    def as_json(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows],
            "figures": dict(self.figures),
            "notes": list(self.notes),
            "is_found": self.is_found,
        }
