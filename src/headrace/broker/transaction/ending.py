"""Telling every participant of a transaction how it ended.

The decision is committed before anybody hears of it (row 29). A participant that cannot be told now is told later, for
as long as it takes: nothing can undo the decision, and telling somebody twice does nothing. A partition that no longer
exists needs no telling. One that refuses because it knows a later epoch has been told before.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.broker.broker import Broker
from headrace.broker.transaction.shard import Shard
from headrace.folds.transaction.transaction import PREPARED, Transaction
from headrace.host.clock import Clock, stamp_ms
from headrace.model.errors import (
    CoordinatorFencedError,
    HeadraceError,
    ProducerFencedError,
    UnknownQueueError,
    UnknownTopicError,
)
from headrace.model.ids import PartitionId
from headrace.wire.kafka.marker import Marker

_logger = logging.getLogger(__name__)

_BACKOFF_MS = 100
_BACKOFF_MS_MAX = 5000


class GroupOffsets(Protocol):
    """Groups, whose offsets may be committed with a transaction."""

    async def end_transaction(self, producer_id: int, producer_epoch: int, *, commit: bool) -> None: ...


class HeldLeases(Protocol):
    """Queues, whose messages may be acknowledged with a transaction."""

    async def end_transaction(self, place: PartitionId, producer_id: int, *, is_commit: bool) -> None: ...


@dataclass(slots=True)
class EndCounts:
    """How transactions ended since the process began."""

    committed: int = 0
    aborted: int = 0
    timed_out: int = 0  # of those that were aborted


Telling = Callable[[], Awaitable[Any]]


class Ender:
    def __init__(
        self,
        *,
        broker: Broker,
        groups: GroupOffsets | None,
        queues: HeldLeases | None,
        clock: Clock,
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
    ) -> None:
        self._broker = broker
        self._groups = groups
        self._queues = queues
        self._clock = clock
        self._spawn = spawn
        self.counts = EndCounts()
        self._running: dict[str, asyncio.Task[None]] = {}
        # What is on its way to a group, by transactional id: its end must not overtake it.
        self._on_their_way: dict[str, set[asyncio.Future[None]]] = {}

    def finish(self, shard: Shard, id: str) -> "asyncio.Task[None]":
        """Have a prepared transaction completed, once."""
        task = self._running.get(id)
        if task is None:
            task = self._running[id] = self._spawn(self._finish(shard, id))
            task.add_done_callback(lambda _: self._running.pop(id, None))
        return task

    async def _finish(self, shard: Shard, id: str) -> None:
        await shard.committed()
        transaction = shard.fold.get(id)
        assert transaction is not None
        assert transaction.state in PREPARED
        if waiting := self._on_their_way.get(id):
            await asyncio.wait(set(waiting))
        await self._tell(self._tellings(shard, transaction))
        shard.check_open()
        shard.store(shard.fold.complete(id, now_ms=stamp_ms(self._clock)))
        if transaction.is_commit:
            self.counts.committed += 1
        else:
            self.counts.aborted += 1

    def _tellings(self, shard: Shard, transaction: Transaction) -> list[Telling]:
        producer_id, epoch, is_commit = transaction.producer_id, transaction.epoch, transaction.is_commit
        marker = Marker(is_commit, shard.epoch)

        def end_partition(place: PartitionId) -> Awaitable[Any]:
            partition = self._broker.partition(place.topic_id, place.partition)
            return partition.end_transaction(producer_id, epoch, marker, is_bumped=transaction.is_bumped)

        def end_leases(place: PartitionId) -> Awaitable[Any]:
            assert self._queues is not None
            return self._queues.end_transaction(place, producer_id, is_commit=is_commit)

        def end_offsets() -> Awaitable[Any]:
            assert self._groups is not None
            return self._groups.end_transaction(producer_id, epoch, commit=is_commit)

        tellings: list[Telling] = []
        tellings += [lambda place=place: end_partition(place) for place in transaction.partitions]  # type: ignore[misc]
        tellings += [lambda place=place: end_leases(place) for place in transaction.acknowledgements]  # type: ignore[misc]
        if transaction.groups:
            tellings.append(end_offsets)
        return tellings

    async def _tell(self, tellings: list[Telling]) -> None:
        backoff_ms = _BACKOFF_MS
        while tellings:
            tellings = await self._tell_once(tellings)
            if tellings:
                await self._clock.sleep(backoff_ms)
                backoff_ms = min(backoff_ms * 2, _BACKOFF_MS_MAX)

    async def _tell_once(self, tellings: list[Telling]) -> list[Telling]:
        """Tell all of them at once, and return those that have to be told again."""
        begun: list[tuple[Telling, Awaitable[Any] | HeadraceError]] = []
        for telling in tellings:
            try:
                begun.append((telling, telling()))
            except HeadraceError as error:
                begun.append((telling, error))
        again: list[Telling] = []
        for telling, outcome in begun:
            try:
                if isinstance(outcome, HeadraceError):
                    raise outcome
                await outcome
            except (UnknownTopicError, UnknownQueueError, ProducerFencedError, CoordinatorFencedError) as error:
                _logger.info("a participant of a transaction needs no telling", extra={"error": str(error)})
            except HeadraceError as error:
                _logger.warning("a participant of a transaction is told later", extra={"error": str(error)})
                again.append(telling)
        return again

    def hold(self, id: str) -> "asyncio.Future[None]":
        """Let the end of a transaction wait for something: until the future is done."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        held = self._on_their_way.setdefault(id, set())
        held.add(future)

        def done(_: object) -> None:
            held.discard(future)
            if not held and self._on_their_way.get(id) is held:
                del self._on_their_way[id]

        future.add_done_callback(done)
        return future
