"""Reading stored bytes by offset, with long poll.

A fetch that can be answered from the page cache is answered in the caller's turn. Otherwise it becomes a coroutine:
it waits for cold bytes in a thread, or, with too little to read, for the watermark of any of its partitions. Nothing
polls: a partition wakes those who wait on it when its watermark moves.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.broker.partition import Partition
from headrace.host.clock import Clock
from headrace.log.driver import Cold, LogStore
from headrace.log.reader import Reads, Slice
from headrace.model.batch import Buffer
from headrace.model.errors import CorruptLogError, HeadraceError, OffsetOutOfRangeError
from headrace.model.ids import Epoch, Offset

# What a fetch is given at a time where memory for answers is short.
SHORT_BYTES = 4 * 1024 * 1024


class Room(Protocol):
    """Memory for what is read."""

    def hold(self, size: int) -> None:
        """Hold so many bytes, which are being read."""

    async def take(self, size: int) -> bool:
        """Wait for so many bytes; False if there are none in time."""


class FetchPart(NamedTuple):
    """One partition of a fetch. Epochs are -1 where the reader knows none."""

    topic: str | UUID
    partition: int
    offset: int
    bytes_max: int
    epoch: int = -1
    last_fetched_epoch: int = -1


class Fetch(NamedTuple):
    parts: Sequence[FetchPart]
    bytes_min: int
    bytes_max: int
    wait_ms: int
    read_committed: bool = False


class Fetched(NamedTuple):
    """One partition's answer: stored bytes, to go out unchanged."""

    error: HeadraceError | None
    high_watermark: int
    last_stable_offset: int
    start_offset: int
    buffers: list[Buffer]
    diverging: tuple[int, int] | None = None
    # Producer and first offset of the aborted transactions in what was read, for who reads committed messages.
    aborted: Sequence[tuple[int, int]] = ()


class Attempt(NamedTuple):
    """What could be read without waiting for the disk."""

    results: list[Fetched]
    cold: list[tuple[int, Cold]]  # place in results, and the read to finish
    size: int
    is_final: bool  # an error or a divergence: waiting would not better it


class TailWaiter:
    """One long poll. Woken by any of its partitions, done when together they have enough."""

    def __init__(self, places: list[tuple[Partition, Offset]], bytes_min: int, *, read_committed: bool = False) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._places = places
        self._bytes_min = bytes_min
        self._read_committed = read_committed

    def wake(self) -> None:
        if self.done.done():
            return
        size = 0
        for partition, offset in self._places:
            if partition.log.broken is not None:
                self.finish()
                return
            if (partition.last_stable_offset if self._read_committed else partition.high_watermark) > offset:
                size += partition.log.bytes_from(offset)
                if size >= self._bytes_min:
                    self.finish()
                    return

    def finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)

    async def wait(self, clock: Clock, wait_ms: int) -> None:
        """Until there is enough, or the time is over."""
        timer = clock.call_later(wait_ms, self.finish)
        for partition, _ in self._places:
            partition.waiters.add(self)
        # Something may have been committed since the caller looked: nobody was told of this waiter then.
        self.wake()
        try:
            await self.done
        finally:
            timer.cancel()
            for partition, _ in self._places:
                partition.waiters.discard(self)


class Fetcher:
    def __init__(self, *, find: Callable[[str | UUID, int], Partition], store: LogStore, clock: Clock) -> None:
        self._find = find
        self._store = store
        self._clock = clock

    def fetch(self, request: Fetch, room: Room | None = None) -> "list[Fetched] | asyncio.Task[list[Fetched]]":
        """The answer, or a task that will have it and asks for room before it reads."""
        attempt = self._attempt(request)
        if not attempt.cold and (attempt.size >= request.bytes_min or attempt.is_final or request.wait_ms <= 0):
            return attempt.results
        waiter = None
        if not attempt.cold:
            places = [(self._find(part.topic, part.partition), Offset(part.offset)) for part in request.parts]
            waiter = TailWaiter(places, request.bytes_min, read_committed=request.read_committed)
            return asyncio.get_running_loop().create_task(self._fetch_later(request, waiter, room))
        if room is not None:
            room.hold(attempt.size)
        return asyncio.get_running_loop().create_task(self._finish_cold(request, attempt))

    async def _fetch_later(self, request: Fetch, waiter: TailWaiter, room: Room | None) -> list[Fetched]:
        await waiter.wait(self._clock, request.wait_ms)
        if room is not None and (size := self.readable_bytes(request)):
            size = min(size, SHORT_BYTES)
            if not await room.take(size):
                return self.positions(request)
            request = request._replace(bytes_max=min(request.bytes_max, size))
        return await self._finish_cold(request, self._attempt(request))

    async def _finish_cold(self, request: Fetch, attempt: Attempt) -> list[Fetched]:
        for place, cold in attempt.cold:
            attempt.results[place] = await self._finish(attempt.results[place], cold, request, request.parts[place])
        return attempt.results

    async def _finish(self, result: Fetched, cold: Cold, request: Fetch, part: FetchPart) -> Fetched:
        try:
            found: Slice = await self._store.finish(cold)
        except HeadraceError as error:
            self._note(error)
            return result._replace(error=error)
        except FileNotFoundError:
            # Retention took the segment between the lookup and the read; the next fetch is told the new start.
            return result
        if not len(found.data):
            return result._replace(buffers=[])
        result = result._replace(buffers=[found.data])
        return self._with_aborted(result, part, found.next_offset) if request.read_committed else result

    def _with_aborted(self, result: Fetched, part: FetchPart, end: Offset) -> Fetched:
        """Say which of what was read is of aborted transactions. Whole batches were read, so from before the offset."""
        try:
            partition = self._find(part.topic, part.partition)
        except HeadraceError as error:
            return result._replace(error=error, buffers=[])
        aborted = partition.aborted_in(Offset(part.offset), end, result.buffers[-1])
        return result._replace(aborted=aborted)

    def readable_bytes(self, request: Fetch) -> int:
        """About how many bytes there are for it now."""
        size = 0
        for part in request.parts:
            with suppress(HeadraceError):
                partition = self._find(part.topic, part.partition)
                offset = Offset(part.offset)
                if partition.start_offset <= offset < partition.high_watermark:
                    size += min(partition.log.bytes_from(offset), part.bytes_max)
        return min(size, request.bytes_max)

    def positions(self, request: Fetch) -> list[Fetched]:
        """Where the partitions stand, with nothing read."""
        return [self._position(part, request) for part in request.parts]

    def _position(self, part: FetchPart, request: Fetch) -> Fetched:
        try:
            return self._look(self._find(part.topic, part.partition), part, request, 0)[0]
        except OffsetOutOfRangeError as error:
            return Fetched(error, -1, -1, error.start, [])
        except HeadraceError as error:
            return Fetched(error, -1, -1, -1, [])

    def _attempt(self, request: Fetch) -> Attempt:
        results: list[Fetched] = []
        cold: list[tuple[int, Cold]] = []
        size = 0
        is_final = False
        for part in request.parts:
            try:
                partition = self._find(part.topic, part.partition)
                result, reads = self._look(partition, part, request, size)
                is_final = is_final or result.diverging is not None
                if reads is not None:
                    found = self._store.try_read(reads)
                    if isinstance(found, Cold):
                        cold.append((len(results), found))
                        size += min(part.bytes_max, request.bytes_max)
                    elif len(found.data):
                        result.buffers.append(found.data)
                        size += len(found.data)
                        if request.read_committed:
                            result = self._with_aborted(result, part, found.next_offset)
            except OffsetOutOfRangeError as error:
                result = Fetched(error, -1, -1, error.start, [])
                is_final = True
            except HeadraceError as error:
                self._note(error)
                result = Fetched(error, -1, -1, -1, [])
                is_final = True
            results.append(result)
        return Attempt(results, cold, size, is_final)

    def _note(self, error: HeadraceError) -> None:
        if isinstance(error, CorruptLogError):
            self._store.damage.note(error)

    def _look(
        self, partition: Partition, part: FetchPart, request: Fetch, size: int
    ) -> tuple[Fetched, Reads[Slice] | None]:
        """Decide what one partition has to read."""
        partition.check_epoch(Epoch(part.epoch))
        offset = Offset(part.offset)
        end = partition.last_stable_offset if request.read_committed else partition.high_watermark
        result = Fetched(None, partition.high_watermark, partition.last_stable_offset, partition.start_offset, [])
        if part.last_fetched_epoch >= 0:
            epoch, epoch_end = partition.epoch_end(Epoch(part.last_fetched_epoch))
            if epoch_end >= 0 and (epoch < part.last_fetched_epoch or epoch_end < offset):
                return result._replace(diverging=(epoch, epoch_end)), None
        partition.check_offset(offset)
        bytes_left = request.bytes_max - size
        if offset >= end or (size and bytes_left <= 0):
            return result, None
        bytes_max = max(min(part.bytes_max, bytes_left), 0)
        return result, partition.log.read(offset, bytes_max=bytes_max, upto=end, whole_first=size == 0)
