"""How a message was done, as far as the log still says so.

A queue forgets a message when it is done. The entry that ended it stands behind it in the log until that part of the
log is cleaned, so it is looked for from the message on, in a bounded part of the log.
"""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.broker.queue.loader import Loader
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import MessageState
from headrace.folds.queue.codec import decode_op
from headrace.folds.queue.op import (
    Acked,
    DeadLettered,
    Dropped,
    Expired,
    ExpiryCause,
    Moved,
    Op,
    Purged,
    Repeated,
    TxnAcked,
    TxnEnded,
)
from headrace.model.batch import read_header
from headrace.wire.kafka.marker import is_marker
from headrace.wire.kafka.records import control_kind, decode_batch

_SEARCHED_BYTES = 32 * 1024 * 1024


class Fate(NamedTuple):
    """How a message ended, and when."""

    state: MessageState
    at_ms: int
    reason: str = ""  # of a dead-lettered one


async def find_fate(partition: PartitionQueue, loader: Loader, offset: int) -> Fate | None:
    """None where the entry was cleaned away, or stands far behind."""
    search = _Search(offset)
    at, read_bytes = offset, 0
    while at < partition.partition.high_watermark and read_bytes < _SEARCHED_BYTES:
        stretch = await loader.stretch(partition, at)
        for op in _ops(partition, memoryview(stretch.data)):
            found = search.look_at(op)
            if found is not None:
                return found
        if stretch.next_offset <= at:
            break
        at = stretch.next_offset
        read_bytes += len(stretch.data)
    return search.likely


class _Search:
    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._holders: set[int] = set()  # producers that have acknowledged it in a transaction
        self.likely: Fate | None = None  # what ended it if nothing else did

    def look_at(self, op: Op) -> Fate | None:
        """How an entry ended the message, if it did."""
        offset, at_ms = self._offset, op.at.wall_ms
        match op:
            case Acked() if offset in op.offsets:
                return Fate(MessageState.ACKNOWLEDGED, at_ms)
            case DeadLettered() if offset in op.offsets:
                return Fate(MessageState.DEAD_LETTERED, at_ms, op.reason)
            case Moved() if offset in op.offsets:
                return Fate(MessageState.MOVED, at_ms)
            case Dropped() if offset in op.offsets:
                return Fate(MessageState.DROPPED, at_ms)
            case Repeated() if offset in op.offsets:
                return Fate(MessageState.WITHDRAWN, at_ms)
            case Expired() if offset in op.offsets or (offset < op.upto and op.cause is not ExpiryCause.RETENTION):
                return Fate(MessageState.EXPIRED, at_ms)
            case Expired() if offset < op.upto and self.likely is None:
                self.likely = Fate(MessageState.EXPIRED, at_ms)  # unless it was delayed for long, and spared
            case Purged() if offset < op.upto:
                return Fate(MessageState.PURGED, at_ms)
            case TxnAcked() if offset in op.offsets:
                self._holders.add(op.producer_id)
            case TxnEnded() if op.producer_id in self._holders:
                if op.is_commit:
                    return Fate(MessageState.ACKNOWLEDGED, at_ms)
                self._holders.discard(op.producer_id)
            case _:
                pass
        return None


def _ops(partition: PartitionQueue, data: memoryview) -> Iterator[Op]:
    """The queue's own entries in a reading."""
    while data:
        header = read_header(data)
        batch, data = data[: header.size], data[header.size :]
        if not header.is_control or is_marker(header):
            continue
        for record in decode_batch(batch):
            found = decode_op(control_kind(record), record.value or b"")
            if found is not None and found[0] == partition.id:
                yield found[1]
