"""Messages of queues for share consumers: leased, and read as stored batches.

A share consumer stands in the queue's own line, beside those who come by HTTP or SQS, and what it gets is under the
same leases. Two things differ: it names what it holds by offset, so that is remembered for it (`Holder`); and one
request is for several queues, so it stands in several lines until one of them has something.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.broker.group.share_ack import reject
from headrace.broker.group.share_port import Acquired, Acquisition, Holder, SharedPart
from headrace.broker.group.share_queues import SharedQueues
from headrace.broker.group.share_read import read_batches
from headrace.broker.promise import Promise
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.receive import LeaseReceive
from headrace.folds.queue.fold import Lease
from headrace.host.clock import Clock
from headrace.log.driver import LogStore
from headrace.model.errors import CorruptLogError, HeadraceError, ShuttingDownError, TooManyLeasedError
from headrace.model.group_setting import GroupConfig
from headrace.model.ids import PartitionId
from headrace.model.message import Received
from headrace.model.queue import Guarantee

_ATTEMPT_MAX = 32_767  # what the protocol's field can say
# What one request is handed at most, whatever it asks for: a turn of the event loop is no longer than that.
_RECORDS_MAX = 2_000
# Errors of which a consumer is told nothing: it gets nothing for a while, or finds the connection closed.
_PASSING = (TooManyLeasedError, ShuttingDownError)
# A holder's leases are looked through for those that are over when there are so many more, and twice as many.
_PRUNE_COUNT = 1000


class _Asked(NamedTuple):
    """A queue of a request, and which of its partitions are wanted; None: all of them."""

    live: LiveQueue
    partitions: frozenset[int] | None


class _Wanted(NamedTuple):
    records_max: int
    bytes_max: int
    lease_ms: int | None  # None: as long as each queue says


class _Receive(NamedTuple):
    live: LiveQueue
    receive: LeaseReceive


class ShareWork:
    def __init__(
        self, *, queues: SharedQueues, config_of: Callable[[str], GroupConfig], logs: LogStore, clock: Clock
    ) -> None:
        self._config_of = config_of
        self._queues = queues
        self._logs = logs
        self._clock = clock

    async def acquire(
        self, holder: Holder, places: Sequence[PartitionId], *, records_max: int, bytes_max: int, wait_ms: int
    ) -> Acquisition:
        config = self._config_of(holder.group_id)
        asked, parts = await self._ask(places)
        lease_ms = self._queues.lease_ms(config, places)
        if records_max <= 0:
            return Acquisition(lease_ms, parts)
        records_max = min(records_max, _RECORDS_MAX)
        if asked:
            holder.turn += 1
            first = holder.turn % len(asked)
            asked = asked[first:] + asked[:first]
        receives: list[_Receive] = []
        try:
            wanted = _Wanted(records_max, bytes_max, config.share_lock_ms)
            left = await self._take(asked, receives, wanted)
            if left == records_max and wait_ms > 0 and not parts:
                await self._wait(asked, receives, wanted, wait_ms)
            for live, receive in receives:
                error = receive.promise.exception()
                if error is None:
                    _refuse_worn(live, receive, config.share_deliveries_max)
                    parts += await self._collect(holder, live, receive, bytes_max)
                elif isinstance(error, HeadraceError) and not isinstance(error, _PASSING):
                    parts += [SharedPart(place, error) for place in places if place.topic_id == live.queue.topic_id]
        except BaseException:
            for _, receive in receives:
                receive.cancel()
                receive.give_back()
            raise
        return Acquisition(lease_ms, parts)

    async def _ask(self, places: Sequence[PartitionId]) -> tuple[list[_Asked], list[SharedPart]]:
        parts: list[SharedPart] = []
        wanted: dict[LiveQueue, set[int]] = {}
        for place in places:
            try:
                live = await self._queues.open(place)
                if place.partition >= live.partitions.count:
                    continue  # it is being added
                live.partitions.at(place.partition)
            except HeadraceError as error:
                parts.append(SharedPart(place, error))
            else:
                wanted.setdefault(live, set()).add(place.partition)
        asked = [
            _Asked(live, None if len(partitions) == live.partitions.count else frozenset(partitions))
            for live, partitions in wanted.items()
        ]
        return asked, parts

    # Standing in line.

    async def _take(self, asked: Sequence[_Asked], receives: list[_Receive], wanted: _Wanted) -> int:
        """Lease what is there. Returns how many more it might have been."""
        left = wanted.records_max
        for live, partitions in asked:
            receive = _begin(live, partitions, wanted._replace(records_max=left), wait_ms=0)
            if receive is None:
                continue
            receives.append(_Receive(live, receive))
            left -= sum(len(leases) for _, leases in receive.taken)
            if left <= 0:
                break
        for _, receive in receives:
            with suppress(HeadraceError):  # which is found again where the answer is put together
                await receive.promise
        return left

    async def _wait(self, asked: Sequence[_Asked], receives: list[_Receive], wanted: _Wanted, wait_ms: int) -> None:
        """Wait in every line until the first has something."""
        receives.clear()
        for live, partitions in asked:
            receive = _begin(live, partitions, wanted, wait_ms=wait_ms)
            if receive is not None:
                receives.append(_Receive(live, receive))
        if not receives:
            await self._clock.sleep(wait_ms)
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(_: Promise[list[Received]]) -> None:
            waiting = [one.receive for one in receives]
            if any(receive.promise.done() and receive.taken for receive in waiting):
                for other in waiting:
                    if other.line is not None:
                        other.cancel()
            if not over.done() and all(receive.promise.done() or receive.is_cancelled for receive in waiting):
                over.set_result(None)

        for _, receive in receives:
            receive.promise.then(ended)
        await over
        receives[:] = [one for one in receives if one.receive.promise.done()]

    # What was handed out.

    async def _collect(
        self, holder: Holder, live: LiveQueue, receive: LeaseReceive, bytes_max: int
    ) -> list[SharedPart]:
        """Read what was leased, and note who holds it."""
        parts: list[SharedPart] = []
        is_final = live.queue.config.guarantee is Guarantee.AT_MOST_ONCE
        for partition, taken in receive.taken:
            place = partition.partition.id
            leases = {lease.offset: lease for lease in sorted(taken)}
            try:
                # What is handed out for good cannot be given back, so all of it goes out.
                found = await read_batches(
                    self._logs, partition, list(leases), bytes_max=None if is_final else max(bytes_max, 1)
                )
            except CorruptLogError as damage:
                partition.partition.take_offline(damage)
                parts.append(SharedPart(place, live.partitions.refusal(partition.index)))
                continue
            except HeadraceError as error:
                partition.give_back(taken)
                parts.append(SharedPart(place, error))
                continue
            bytes_max -= found.size
            partition.cache.drop(leases)
            if found.lost:
                partition.give_up(found.lost)
            partition.give_back([leases[offset] for offset in found.unread])
            for offset in (*found.lost, *found.unread):
                del leases[offset]
            if not is_final:
                _note(holder, place, partition, leases.values())
            parts.append(SharedPart(place, None, found.buffers, _ranges(leases.values())))
        receive.taken = []
        return parts


def _begin(live: LiveQueue, partitions: frozenset[int] | None, wanted: _Wanted, *, wait_ms: int) -> LeaseReceive | None:
    """None: as many are leased as may be. Kafka's consumers are not told of that; they get nothing for a while."""
    count_max = min(wanted.records_max, _count_within(live, wanted.bytes_max))
    try:
        return live.acquire(count_max=count_max, partitions=partitions, wait_ms=wait_ms, lease_ms=wanted.lease_ms)
    except TooManyLeasedError:
        return None


def _refuse_worn(live: LiveQueue, receive: LeaseReceive, deliveries_max: int | None) -> None:
    """Take out what was delivered more often than the group's settings allow."""
    if deliveries_max is None or live.queue.config.guarantee is Guarantee.AT_MOST_ONCE:
        return
    for at, (partition, leases) in enumerate(receive.taken):
        if worn := [lease.offset for lease in leases if lease.attempt > deliveries_max]:
            reject(live, partition, worn, f"delivered {deliveries_max} times, the limit of the share group")
            receive.taken[at] = partition, [lease for lease in leases if lease.attempt <= deliveries_max]


def _count_within(live: LiveQueue, bytes_max: int) -> int:
    """How many messages of mean size are so many bytes."""
    partitions = live.partitions.opened
    size = sum(partition.partition.size_bytes for partition in partitions)
    count = sum(one.partition.end_offset - one.partition.start_offset for one in partitions)
    return max(bytes_max * max(count, 1) // max(size, 1), 1)


def _note(holder: Holder, place: PartitionId, partition: PartitionQueue, leases: Iterable[Lease]) -> None:
    held = holder.held.setdefault(place, {})
    held.update((lease.offset, lease.number) for lease in leases)
    if len(held) > 2 * holder.kept_counts.get(place, 0) + _PRUNE_COUNT:
        holder.held[place] = {offset: attempt for offset, attempt in held.items() if partition.holds(offset, attempt)}
        holder.kept_counts[place] = len(holder.held[place])


def _ranges(leases: Iterable[Lease]) -> list[Acquired]:
    """Neighbours of the same attempt as one."""
    ranges: list[Acquired] = []
    for lease in leases:
        offset, attempt = lease.offset, min(lease.attempt, _ATTEMPT_MAX)
        last = ranges[-1] if ranges else None
        if last is not None and last.last + 1 == offset and last.attempt == attempt:
            ranges[-1] = Acquired(last.first, offset, attempt)
        else:
            ranges.append(Acquired(offset, offset, attempt))
    return ranges
