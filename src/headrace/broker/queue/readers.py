"""Named readers by offset: each has a place in every partition, and nothing is dropped before it has read it."""

import re
from collections.abc import Mapping

from headrace.broker.ledger import Told
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import Reader
from headrace.model.errors import HeadraceError, InvalidRequestError, UnknownReaderError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)


async def move_reader(live: LiveQueue, name: str, positions: Mapping[int, int]) -> Reader:
    """Register a reader at the log's start, or move it. Partitions that are not named stay where they are."""
    if not _NAME.fullmatch(name):
        raise InvalidRequestError("a reader's name has 1 to 100 letters, digits, '.', '_' and '-'")
    for index, offset in positions.items():
        if not 0 <= index < live.partitions.count:
            raise InvalidRequestError(f"queue {live.queue.name} has no partition {index}")
        end = live.partitions.at(index).partition.high_watermark
        if not 0 <= offset <= end:
            raise InvalidRequestError(f"partition {index} has offsets up to {end}, not {offset}")
    if not any(name in partition.fold.readers for partition in live.partitions):
        live.partitions.check_all()  # where a new one is not written down, nothing would be held for it

    def move(partition: PartitionQueue, told: Told) -> None:
        known = partition.fold.readers.get(name, partition.partition.start_offset)
        partition.move_reader(name, positions.get(partition.index, known), told)

    await live.each_partition(move)
    return find_reader(live, name)


def inherit_readers(live: LiveQueue, opened: PartitionQueue) -> None:
    """Have a partition that was added hold what it gets for those who read the others: they cannot have read it."""
    names = {name for partition in live.partitions for name in partition.fold.readers}
    for name in sorted(names - opened.fold.readers.keys()):
        opened.move_reader(name, opened.partition.start_offset, _nobody_waits)


def _nobody_waits(_: HeadraceError | None) -> None:
    """It is written before any message is, in the same turn."""


def find_reader(live: LiveQueue, name: str) -> Reader:
    positions = {
        partition.index: partition.fold.readers[name] for partition in live.partitions if name in partition.fold.readers
    }
    if not positions:
        raise UnknownReaderError(f"queue {live.queue.name} has no reader {name}")
    return Reader(name=name, positions=positions)


def list_readers(live: LiveQueue) -> list[Reader]:
    names = {name for partition in live.partitions for name in partition.fold.readers}
    return [find_reader(live, name) for name in sorted(names)]


async def remove_reader(live: LiveQueue, name: str) -> None:
    find_reader(live, name)
    live.partitions.check_all()  # elsewhere it would come back with its partition
    await live.each_partition(lambda partition, told: partition.remove_reader(name, told))
