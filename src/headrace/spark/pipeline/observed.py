"""The load that a rollup's table has seen: how many a day, how many at the peak, how large."""

from typing import TYPE_CHECKING, NamedTuple

from headrace.model.extra import how_to_install
from headrace.spark.errors import MissingExtraError, OptionError

if TYPE_CHECKING:
    import pyarrow as pa

_MINUTE_S = 60
_DAY_S = 86_400


class Observed(NamedTuple):
    messages_per_day: float
    peak_per_s: float
    message_bytes: float
    span: str  # from when to when, for people


def observed_load(table: str) -> Observed:
    """From the rows about what was sent. The peak is that of the busiest minute."""
    sent = _sent_by_minute(table)
    if not sent.num_rows:
        raise OptionError(f"--rollup {table} has no messages in it yet")
    minutes = sent.column("minute").to_pylist()
    messages = sent.column("messages_sum").to_pylist()
    first, last = min(minutes), max(minutes)
    span_s = (last - first).total_seconds() + _MINUTE_S
    total = sum(messages)
    return Observed(
        messages_per_day=total / span_s * _DAY_S,
        peak_per_s=max(messages) / _MINUTE_S,
        message_bytes=sum(sent.column("bytes_sum").to_pylist()) / total,
        span=f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC",
    )


def _sent_by_minute(table: str) -> "pa.Table":
    try:
        import pyarrow.compute as pc
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError
    except ModuleNotFoundError:
        raise MissingExtraError(f"--rollup reads a Delta table; {how_to_install('spark')}") from None
    try:
        rows = DeltaTable(table).to_pyarrow_table(columns=["minute", "messages", "bytes", "event"])
    except TableNotFoundError:
        raise OptionError(
            f"--rollup {table} is no Delta table; run `headrace pipeline run rollup --table` first"
        ) from None
    return (
        rows.filter(pc.field("event") == "sent").group_by("minute").aggregate([("messages", "sum"), ("bytes", "sum")])
    )
