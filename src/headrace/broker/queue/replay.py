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
from headrace.model.batch import BatchHeader, Buffer
from headrace.model.errors import BatchTooLargeError, CorruptBatchError
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
    fold: QueueFold,
    id: UUID,
    header: BatchHeader,
    data: Buffer,
    base_offset: Offset | None = None,
    properties: Mapping[int, Properties] | None = None,
) -> None:
    """Take over a batch that stands in the log, at its own offset or at one that its header does not say yet.

    `properties`: of its messages, where they were read before.
    """
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
        if properties is None:
            properties = _stored_properties(fold, header, data)
        fold.arrive(
            base,
            end - base,
            sent_ms=max(header.base_timestamp_ms, 0),
            properties=properties,
            producer_id=header.producer_id if header.is_transactional else None,
        )
    fold.reach(end)


def read_properties(fold: QueueFold, header: BatchHeader, data: Buffer) -> Mapping[int, Properties]:
    """What a fold must know of a producer's messages. BatchTooLargeError where they are too large to be handed out.

    A batch that cannot be decoded has plain messages; the consumer that receives one finds that out.
    """
    try:
        return properties_of(data, header, keys=fold.config.ordered or fold.config.fair)
    except CorruptBatchError as error:
        _logger.warning("a batch's messages cannot be read", extra={"offset": header.base_offset, "error": str(error)})
        return {}


def _stored_properties(fold: QueueFold, header: BatchHeader, data: Buffer) -> Mapping[int, Properties]:
    """The same of a batch that is stored: one that is too large came when the topic was no queue yet."""
    try:
        return read_properties(fold, header, data)
    except BatchTooLargeError as error:
        _logger.warning("a batch's messages cannot be read", extra={"offset": header.base_offset, "error": str(error)})
        return {}
