"""What a Delta log says about a file's rows: their count, and nulls, least and greatest value of columns, as JSON.

Readers skip files by it. It comes from the footer that the Parquet writer has just made, so it costs no second look at
the rows. Text and bytes are left out: the footer has them, and a log with long values in it is slow to read.
"""

import datetime
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def bounded_columns(schema: pa.Schema) -> list[str]:
    """The columns whose least and greatest values are worth keeping."""
    return [field.name for field in schema if _is_bounded(field.type)]


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind)
    )


def statistics_json(footer: pq.FileMetaData, schema: pa.Schema) -> str:
    bounded = set(bounded_columns(schema))
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for index in range(footer.num_columns):
        name = footer.schema.column(index).path
        if name not in bounded:
            continue
        chunks = [footer.row_group(group).column(index).statistics for group in range(footer.num_row_groups)]
        if any(chunk is None or not chunk.has_null_count for chunk in chunks):
            continue
        nulls[name] = sum(chunk.null_count for chunk in chunks)
        filled = [chunk for chunk in chunks if chunk.num_values]
        if filled and all(chunk.has_min_max for chunk in filled):
            _keep(least, name, min(chunk.min for chunk in filled))
            _keep(greatest, name, max(chunk.max for chunk in filled))
    return json.dumps({"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _keep(bounds: dict[str, Any], name: str, value: object) -> None:
    match value:
        case float() if not math.isfinite(value):
            pass  # JSON has no word for it; without a bound the file is read
        case datetime.datetime() if value.tzinfo is None:
            bounds[name] = value.isoformat(timespec="microseconds")
        case datetime.datetime():
            in_utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
            bounds[name] = in_utc.isoformat(timespec="microseconds") + "Z"
        case datetime.date():
            bounds[name] = value.isoformat()
        case _:
            bounds[name] = value
