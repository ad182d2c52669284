"""A fold at the end of its log: from its newest snapshot, and what came after it."""

import logging
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from headrace.broker.partition import Partition
from headrace.host.threads import Threads
from headrace.log import snapshots
from headrace.log.disk_error import reading
from headrace.log.driver import LogStore
from headrace.log.recovery import FOLDS_DIRECTORY
from headrace.log.snapshots import Snapshot
from headrace.model.batch import BatchHeader, Buffer, read_header
from headrace.model.errors import CorruptLogError, UnsupportedError
from headrace.model.ids import Offset

_logger = logging.getLogger(__name__)

_READ_BYTES = 1024 * 1024


class Fold(Protocol):
    """What follows from a log, up to an offset."""

    @property
    def end_offset(self) -> Offset:
        """Everything below it was applied."""

    def reach(self, end_offset: Offset, /) -> None: ...


FoldType = TypeVar("FoldType", bound=Fold)


async def restore_fold(
    partition: Partition,
    *,
    name: str,
    empty: Callable[[Offset], FoldType],
    restore: Callable[[Buffer], FoldType],
    apply: Callable[[FoldType, BatchHeader, memoryview], None],
    store: LogStore,
    threads: Threads,
) -> FoldType:
    """The fold at the log's end, from the newest snapshot that checks.

    Returns in the turn in which the end is reached, so a caller that attaches it without waiting misses nothing.
    """
    log = partition.log
    directory = f"{log.directory}/{FOLDS_DIRECTORY}"
    saved = snapshots.load(log.disk, directory, name, upto=partition.end_offset)
    with reading(log.directory):
        fold = await _restore_newest(saved, restore, threads)
    if fold is None:
        fold = empty(log.start_offset)
    if fold.end_offset < log.cleaned_offset:
        raise CorruptLogError(
            file=f"{directory}/{name}",
            position=0,
            expected=f"a snapshot at offset {log.cleaned_offset} or above, since what is below was cleaned",
            found=f"none above offset {fold.end_offset}",
            what="snapshot",
        )
    while (offset := max(fold.end_offset, log.start_offset)) < partition.end_offset:
        with reading(log.directory):
            found = await store.read(log.read(Offset(offset), bytes_max=_READ_BYTES, upto=partition.end_offset))
        data = memoryview(found.data)
        while data:
            header = read_header(data)
            if header.base_offset >= fold.end_offset:
                apply(fold, header, data[: header.size])
                fold.reach(Offset(header.next_offset))
            data = data[header.size :]
        fold.reach(found.next_offset)
    return fold


async def _restore_newest(
    saved: Iterator[Snapshot], restore: Callable[[Buffer], FoldType], threads: Threads
) -> FoldType | None:
    """The first that checks. Its bytes are let go with it, before the log is read."""
    while (snapshot := await threads.run(lambda: next(saved, None))) is not None:
        try:
            return restore(snapshot.data)
        except (CorruptLogError, UnsupportedError) as error:
            _logger.warning("snapshot is not used; replaying", extra={"error": str(error)})
    return None
