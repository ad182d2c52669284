"""Reading messages that were chosen: from our cache, from the page cache at once, or from the device in a thread.

A partition in which damage is found goes offline with that: none of its messages is given up as if it were gone.
"""

import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, NamedTuple

from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.log.driver import Cold, LogStore
from headrace.log.reader import Slice
from headrace.model.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.model.errors import (
    BatchTooLargeError,
    CorruptBatchError,
    CorruptLogError,
    HeadraceError,
    OffsetOutOfRangeError,
)
from headrace.model.ids import Offset
from headrace.wire.message import StoredMessage, decode_messages

_logger = logging.getLogger(__name__)

# Read at a time: what is behind the message that is wanted will be wanted next.
_READ_BYTES = 256 * 1024

Found = dict[tuple[int, int], StoredMessage]  # by partition and offset
Done = Callable[[Found, HeadraceError | None], None]
# Also how many of those that were wanted were looked for.
DoneFirst = Callable[[Found, HeadraceError | None, int], None]

# How many messages are read before it is looked at how large they are: the first time, and later.
_FIRST_PIECE, _PIECE = 16, 128


class Wanted(NamedTuple):
    partition: PartitionQueue
    offset: int


class Loader:
    def __init__(self, *, store: LogStore, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._store = store
        self._spawn = spawn

    def load(self, wanted: Sequence[Wanted], done: Done, *, later: Sequence[Wanted] = ()) -> None:
        """Find messages and tell them, at once where no device has to be waited for. What is gone is not among them.

        `later`: what the same caller will want next, which is kept if it is come across.
        """
        found: Found = {}
        try:
            cold = self._go(wanted, later, found)
        except HeadraceError as error:
            done(found, error)
            return
        if cold is None:
            done(found, None)
        else:
            self._spawn(self._finish(cold, found, done))

    def load_first(self, wanted: Sequence[Wanted], done: DoneFirst, *, bytes_max: int) -> None:
        """The same, from the first one on until there are about so many bytes of them."""
        self._load_on(wanted, 0, {}, done, bytes_max, bytes_max)

    def _load_on(
        self, wanted: Sequence[Wanted], at: int, found: Found, done: DoneFirst, bytes_max: int, bytes_left: int
    ) -> None:
        piece = wanted[at : at + _piece_count(at, bytes_max, bytes_left)]
        end = at + len(piece)

        def told(more: Found, error: HeadraceError | None) -> None:
            found.update(more)
            left = bytes_left - _size(more)
            if error is not None or end == len(wanted) or left <= 0:
                done(found, error, end)
            else:
                self._load_on(wanted, end, found, done, bytes_max, left)

        self.load(piece, told, later=wanted[end:])

    async def read_first(self, wanted: Sequence[Wanted], *, bytes_max: int) -> tuple[Found, int]:
        """For those who may wait; with how many of those that were wanted were looked for."""
        found: Found = {}
        at, left = 0, bytes_max
        while at < len(wanted) and left > 0:
            piece = wanted[at : at + _piece_count(at, bytes_max, left)]
            at += len(piece)
            more = await self.read(piece, later=wanted[at:])
            found |= more
            left -= _size(more)
        for partition, offset in wanted:
            if offset in partition.fold.leases:  # it was only looked at, and nobody comes for it
                partition.cache.take(offset)
        return found, at

    async def read(self, wanted: Sequence[Wanted], *, later: Sequence[Wanted] = ()) -> Found:
        """All of them, for those who may wait."""
        found: Found = {}
        cold = self._go(wanted, later, found)
        while cold is not None:
            cold = await self._step(cold, found)
        return found

    async def stretch(self, partition: PartitionQueue, offset: int) -> Slice:
        """Whole batches from the one that holds an offset on, whatever has become of their messages."""
        log = partition.partition.log
        while True:
            reads = log.read(Offset(offset), bytes_max=_READ_BYTES, upto=partition.partition.high_watermark)
            try:
                slice = self._store.try_read(reads)
                return await self._store.finish(slice) if isinstance(slice, Cold) else slice
            except FileNotFoundError:
                continue  # cleaning was quicker, and has put another file in its place
            except OffsetOutOfRangeError:
                return Slice(b"", log.start_offset)  # retention was
            except CorruptLogError as damage:
                partition.partition.take_offline(damage)
                raise

    def glance(self, partition: PartitionQueue, offset: int) -> BatchHeader | None:
        """The header of the batch that holds a message; None where a device would have to be waited for."""
        log = partition.partition.log
        try:
            found = self._store.try_read(
                log.read(Offset(offset), bytes_max=HEADER_SIZE, upto=partition.partition.high_watermark)
            )
        except OffsetOutOfRangeError:
            return None
        except CorruptLogError as damage:
            partition.partition.take_offline(damage)
            return None
        return None if isinstance(found, Cold) or not found.data else read_header(found.data)

    async def _finish(self, cold: "_Rest", found: Found, done: Done) -> None:
        rest: _Rest | None = cold
        try:
            while rest is not None:
                rest = await self._step(rest, found)
        except HeadraceError as error:
            done(found, error)
            return
        done(found, None)

    async def _step(self, rest: "_Rest", found: Found) -> "_Rest | None":
        partition = rest.wanted[0].partition
        try:
            slice: Slice = await self._store.finish(rest.cold)
        except FileNotFoundError:
            return self._go(rest.wanted[1:], rest.later, found)  # retention was quicker
        except CorruptLogError as damage:
            partition.partition.take_offline(damage)
            raise
        self._decode(partition, slice, rest.wanted, rest.later, found)
        return self._go(rest.wanted[1:], rest.later, found)

    def _go(self, wanted: Sequence[Wanted], later: Sequence[Wanted], found: Found) -> "_Rest | None":
        for at, (partition, offset) in enumerate(wanted):
            place = partition.index, offset
            if place in found:
                continue
            message = partition.cache.get(offset)
            if message is None:
                log = partition.partition.log
                try:
                    reads = log.read(Offset(offset), bytes_max=_READ_BYTES, upto=partition.partition.high_watermark)
                    slice = self._store.try_read(reads)
                except OffsetOutOfRangeError:
                    continue
                except CorruptLogError as damage:
                    partition.partition.take_offline(damage)
                    raise
                if isinstance(slice, Cold):
                    return _Rest(slice, wanted[at:], later)
                self._decode(partition, slice, wanted[at:], later, found)
                message = found.get(place)
            if message is not None:
                found[place] = message
        return None

    def _decode(
        self,
        partition: PartitionQueue,
        slice: Slice,
        wanted: Iterable[Wanted],
        later: Iterable[Wanted],
        found: Found,
    ) -> None:
        """Take apart the batches of a reading, keeping what is likely to be asked for next.

        That is what waits, and what this caller will want. What others have leased was handed out or is about to be,
        and nobody would come for it.
        """
        offsets, expected = _in(wanted, partition), _in(later, partition)
        index, cache, fold = partition.index, partition.cache, partition.fold
        data = memoryview(slice.data)
        while data:
            header = read_header(data)
            batch, data = data[: header.size], data[header.size :]
            if header.is_control:
                continue
            is_wanted = not offsets.isdisjoint(range(header.base_offset, header.next_offset))
            if not is_wanted and not cache.has_room:
                return
            others = []
            for message in readable_messages(batch):
                offset = message.offset
                if offset in offsets:
                    found[index, offset] = message
                elif offset in expected or (fold.is_live(offset) and offset not in fold.leases):
                    others.append(message)
            cache.add_read(others)


def _piece_count(seen: int, bytes_max: int, bytes_left: int) -> int:
    """How many messages to read next, if they are like those that were seen."""
    if not seen:
        return _FIRST_PIECE
    mean = (bytes_max - bytes_left) // seen + 1
    return min(max(bytes_left // mean, 1), _PIECE)


def _size(found: Found) -> int:
    return sum(len(message.body) for message in found.values())


class _Rest(NamedTuple):
    """A reading that waits for the device, for the first of what is still wanted."""

    cold: Cold
    wanted: Sequence[Wanted]
    later: Sequence[Wanted]


def _in(wanted: Iterable[Wanted], partition: PartitionQueue) -> set[int]:
    return {offset for other, offset in wanted if other is partition}


def readable_messages(batch: memoryview) -> list[StoredMessage]:
    """Those of a batch; none where a producer wrote what no reader can decode, or before the topic was a queue."""
    try:
        return decode_messages(batch)
    except (CorruptBatchError, BatchTooLargeError) as error:
        _logger.warning("a batch's messages cannot be read", extra={"error": str(error)})
        return []
