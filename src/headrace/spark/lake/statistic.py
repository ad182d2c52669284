"""What a Delta log says about a file's rows: their count, and nulls, least and greatest value of columns, as JSON.

Readers skip files by it. It comes from the footer that the Parquet writer has just made, so it costs no second look at
the rows. Text is kept by its beginning: a log with long values in it is slow to read. Bytes are left out.

Least and greatest values are there for every column of a file, or for none: readers in Python and Rust take a column
without them, beside one that has them, for a column in which nothing is, and would not find its rows.
"""

import datetime
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_TEXT_MAX = 32
_LAST_CHARACTER = "\U0010ffff"


def bounded_columns(schema: pa.Schema) -> list[str]:
    """The columns whose least and greatest values readers ask for."""
    return [field.name for field in schema if not (pa.types.is_nested(field.type) or _is_bytes(field.type))]


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind))


def statistics_json(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    bounded = set(bounded_columns(schema))
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    is_complete = True
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if name not in bounded:
            continue
        chunks = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            is_complete = False
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        filled = [chunk for chunk in chunks if chunk.num_values]
        if not filled:
            continue
        if all(chunk.has_min_max for chunk in filled):
            least[name] = _spelled(min(chunk.min for chunk in filled), is_greatest=False)
            greatest[name] = _spelled(max(chunk.max for chunk in filled), is_greatest=True)
        is_complete = is_complete and least.get(name) is not None and greatest[name] is not None
    said: dict[str, Any] = {"numRecords": footer.num_rows, "nullCount": nulls}
    if is_complete:
        said |= {"minValues": least, "maxValues": greatest}
    return json.dumps(said)


def _spelled(value: object, *, is_greatest: bool) -> Any:
    """A bound as the Delta protocol writes it; None for what JSON cannot say exactly."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case bool() | int() | float():
            return value
        case str() if len(value) > _TEXT_MAX:
            return value[:_TEXT_MAX] + (_LAST_CHARACTER if is_greatest else "")
        case str():
            return value
        case datetime.datetime() if value.tzinfo is None:
            return value.isoformat(timespec="microseconds")
        case datetime.datetime():
            return value.astimezone(datetime.UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case datetime.date():
            return value.isoformat()
        case _:
            return None
