"""From the log to a queue's fold: batch by batch, in the order of the log."""

import logging
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from headrace.folds.queue.codec import decode_op
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.image import fold_name, restore
from headrace.host.threads import Threads
from headrace.log import snapshots
from headrace.log.driver import LogStore
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptBatchError, CorruptLogError, UnsupportedError
from headrace.model.ids import Offset
from headrace.model.message import Properties
from headrace.wire.kafka.marker import decode_marker, is_marker
from headrace.wire.kafka.records import control_kind, decode_batch
from headrace.wire.message import properties_of

_logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024


class Source(Protocol):
    """The end up to which a fold follows; it may move on while the fold catches up."""

    @property
    def log(self) -> PartitionLog: ...

    @property
    def end_offset(self) -> Offset: ...


async def restore_fold(id: UUID, source: Source, *, store: LogStore, threads: Threads) -> QueueFold:
    """A queue's state at the log's end, from the newest snapshot that checks and what came after it.

    Returns in the turn in which the end is reached, so a caller that attaches the fold without waiting misses nothing.
    """
    log, name = source.log, fold_name(id)
    directory = f"{log.directory}/{FOLDS_DIRECTORY}"
    fold: QueueFold | None = None
    for snapshot in await threads.run(lambda: snapshots.load(log.disk, directory, name, upto=source.end_offset)):
        try:
            fold = restore(snapshot.data, name=name, file=f"{directory}/{name}")
            break
        except (CorruptLogError, UnsupportedError) as error:
            _logger.warning("snapshot is not used; replaying", extra={"error": str(error)})
    if fold is None:
        fold = QueueFold(end_offset=log.start_offset)
    if fold.end_offset < log.cleaned_offset:
        raise CorruptLogError(
            file=f"{directory}/{name}",
            position=0,
            expected=f"a snapshot at offset {log.cleaned_offset} or above, since what is below was cleaned",
            found=f"none above offset {fold.end_offset}",
            what="queue snapshot",
        )
    while (offset := max(fold.end_offset, log.start_offset)) < source.end_offset:
        found = await store.read(log.read(Offset(offset), bytes_max=_READ_BYTES, upto=source.end_offset))
        data = memoryview(found.data)
        while data:
            header = read_header(data)
            if header.base_offset >= fold.end_offset:
                replay_batch(fold, id, header, data[: header.size])
            data = data[header.size :]
        fold.reach(found.next_offset)
    if log.start_offset > fold.floor:
        fold.raise_start(log.start_offset)
    return fold


def replay_batch(
    fold: QueueFold, id: UUID, header: BatchHeader, data: Buffer, base_offset: Offset | None = None
) -> None:
    """Take over a batch that stands in the log, at its own offset or at one that its header does not say yet."""
    base = Offset(header.base_offset) if base_offset is None else base_offset
    end = Offset(base + header.last_offset_delta + 1)
    if is_marker(header):
        fold.decide(header.producer_id, is_commit=decode_marker(data).is_commit)
    elif header.is_control:
        for record in decode_batch(data):
            found = decode_op(control_kind(record), record.value or b"")
            if found is not None and found[0] == id:
                fold.apply(found[1])
    else:
        keys = fold.config.ordered or fold.config.fair
        fold.arrive(
            base,
            end - base,
            sent_ms=max(header.base_timestamp_ms, 0),
            # The log has written the offset into the bytes, and the header was read before.
            properties=_properties(header if base_offset is None else read_header(data), data, keys),
            producer_id=header.producer_id if header.is_transactional else None,
        )
    fold.reach(end)


def _properties(header: BatchHeader, data: Buffer, keys: bool) -> Mapping[int, Properties]:
    """A batch that nobody can take apart has plain messages; who receives one finds that out."""
    try:
        return properties_of(data, header, keys=keys)
    except CorruptBatchError as error:
        _logger.warning("a batch's messages cannot be read", extra={"offset": header.base_offset, "error": str(error)})
        return {}
