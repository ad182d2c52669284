"""Rows by the values of a table's partition columns, and how such values are written. Pure."""

import datetime
import decimal
from collections.abc import Iterator, Sequence
from typing import TypeAlias
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

# One value for each partition column, as the Delta log spells it; None for null.
Values: TypeAlias = tuple[str | None, ...]

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"


def split(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Values, pa.Table]]:
    """The rows of each combination of values, in the order they had."""
    if not table.num_rows:
        return
    if not columns:
        yield (), table
        return
    distinct = table.select(columns).group_by(list(columns)).aggregate([])
    if distinct.num_rows == 1:
        yield _values(distinct, 0), table
        return
    codes = [_codes(table[name]) for name in columns]
    order = np.lexsort(codes[::-1])  # stable: equal rows stay in order
    is_first = np.zeros(len(order), dtype=bool)
    is_first[0] = True
    for code in codes:
        is_first[1:] |= np.diff(code[order]) != 0
    starts = np.flatnonzero(is_first)
    sorted_rows = table.take(pa.array(order))
    firsts = sorted_rows.select(columns).take(pa.array(starts))
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(order)], strict=True)):
        yield _values(firsts, index), sorted_rows.slice(start, end - start)


def directory(columns: Sequence[str], values: Values) -> str:
    """`topic=orders/day=2026-03-01`: Delta does not ask for it, but Spark reads the values from there."""
    return "/".join(
        f"{quote(name, safe='')}={NULL_DIRECTORY if value is None else quote(value, safe='')}"
        for name, value in zip(columns, values, strict=True)
    )


def named_column(directory: str) -> str | None:
    """The column that one directory of a path names; None where it names none."""
    name, equals, _ = directory.partition("=")
    return unquote(name) if equals else None


def _codes(column: pa.ChunkedArray) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    encoded = column.combine_chunks().dictionary_encode()
    codes: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    )
    return codes


def _values(table: pa.Table, index: int) -> Values:
    return tuple(spelled(column[index].as_py()) for column in table.columns)


def spelled(value: object) -> str | None:
    """The Delta protocol's form of a partition value. An empty text is null there."""
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case datetime.datetime():
            return value.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
        case datetime.date():
            return value.isoformat()
        case decimal.Decimal():
            return format(value, "f")
        case _:
            return str(value)
