"""From the log to a queue's fold: batch by batch, in the order of the log."""

import logging
from collections.abc import Mapping
from uuid import UUID

from headrace.broker.partition import Partition
from headrace.broker.restore import restore_fold
from headrace.folds.queue.codec import decode_op
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.image import fold_name, restore
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptBatchError
from headrace.model.ids import Offset
from headrace.model.message import Properties
from headrace.wire.kafka.marker import decode_marker, is_marker
from headrace.wire.kafka.records import control_kind, decode_batch
from headrace.wire.message import properties_of

_logger = logging.getLogger(__name__)


async def restore_queue(id: UUID, partition: Partition, *, store: LogStore, threads: Threads) -> QueueFold:
    """A queue's state at the log's end; see `restore_fold`."""
    name = fold_name(id)
    fold = await restore_fold(
        partition,
        name=name,
        empty=lambda start: QueueFold(end_offset=start),
        restore=lambda data: restore(data, name=name, file=f"{partition.log.directory}/{name}"),
        apply=lambda fold, header, data: replay_batch(fold, id, header, data),
        store=store,
        threads=threads,
    )
    log = partition.log
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
                fold.epoch = header.leader_epoch
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
