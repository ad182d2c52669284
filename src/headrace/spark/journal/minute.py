"""How many messages of each batch belong to which minute.

A batch's header has the time of its first message and the latest time. Neither says where the others are: a producer
may fill a batch for ten minutes, or give times of its own in any order. So every message's time is read.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.batch import BatchHeader, Buffer
from headrace.spark.arrow.decode import decode_batches
from headrace.spark.arrow.varint import Ints

MINUTE_MS = 60_000
MINUTES = pa.list_(pa.struct([("startMs", pa.int64()), ("messages", pa.int64())]))

_TIMES = pa.schema([("offset", pa.int64()), ("timestamp", pa.timestamp("us", tz="UTC"))])
_NO_TIME = np.iinfo(np.int64).min


def count_minutes(
    records: Buffer, headers: Sequence[BatchHeader | None], *, topic: str, partition: int, start: int
) -> pa.Array:
    """A list for each header, of minutes and how many messages each has; null for None. `records` has their batches.

    A message without a time belongs to the minute null.
    """
    counted = [(index, header) for index, header in enumerate(headers) if header is not None]
    if not counted:
        return pa.nulls(len(headers), MINUTES)
    rows = np.array([index for index, _ in counted])
    bases = np.array([header.base_offset for _, header in counted])
    lasts = np.array([header.last_offset for _, header in counted])
    end = int(lasts[-1]) + 1
    found, _ = decode_batches(records, topic=topic, partition=partition, start=start, end=end, columns=_TIMES)
    times = pa.Table.from_batches(found, schema=_TIMES)
    offsets = times["offset"].to_numpy()
    micros = times["timestamp"].cast(pa.int64()).fill_null(_NO_TIME).to_numpy()
    minutes = np.where(micros == _NO_TIME, _NO_TIME, micros // (MINUTE_MS * 1000))
    owners = np.searchsorted(bases, offsets, side="right") - 1
    # The bytes may have messages of other batches: before the start, or of a transaction that was aborted.
    is_own = (owners >= 0) & (offsets <= lasts[owners])
    return _lists(rows[owners[is_own]], minutes[is_own], is_counted=np.isin(np.arange(len(headers)), rows))


def _lists(rows: Ints, minutes: Ints, *, is_counted: npt.NDArray[np.bool_]) -> pa.Array:
    pairs, counts = np.unique(np.stack([rows, minutes]), axis=1, return_counts=True)
    of_row = np.bincount(pairs[0], minlength=len(is_counted))
    ends = np.concatenate([[0], np.cumsum(of_row)])
    starts = pa.array(pairs[1] * MINUTE_MS, mask=pairs[1] == _NO_TIME)
    values = pa.StructArray.from_arrays([starts, pa.array(counts, pa.int64())], fields=list(MINUTES.value_type))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, type=MINUTES, mask=pa.array(~is_counted))
