"""The queues that are at work on this node: opened once, whoever asks, and closed with their topics."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress

from headrace.broker.broker import Broker
from headrace.broker.queue.cache import MessageCache
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.readers import inherit_readers
from headrace.broker.queue.receipt import Signer
from headrace.broker.queue.replay import restore_queue
from headrace.broker.queue.steady import FoldClock, SteadyClock
from headrace.broker.queue.tasks import Tasks
from headrace.cluster.catalog import Catalog, CatalogChange, QueueChanged, QueueDeleted, TopicChanged
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import (
    CorruptLogError,
    HeadraceError,
    NotAQueueError,
    PartitionOfflineError,
    UnknownQueueError,
    UnknownTopicError,
)
from headrace.model.names import INTERNAL_NAMES
from headrace.model.queue import Queue
from headrace.model.topic import Topic

_logger = logging.getLogger(__name__)


class Registry:
    def __init__(
        self,
        *,
        broker: Broker,
        catalog: Catalog,
        logs: LogStore,
        clock: Clock,
        steady: SteadyClock,
        threads: Threads,
        tasks: Tasks,
        cache: MessageCache,
        loader: Loader,
        on_dying: Callable[[LiveQueue], None],
        on_deleted: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._catalog = catalog
        self._logs = logs
        self._clock = clock
        self._steady = steady
        self._threads = threads
        self._tasks = tasks
        self._cache = cache
        self._loader = loader
        self._on_dying = on_dying
        self._on_deleted = on_deleted
        self._receipt_key = b""
        self._live: dict[str, LiveQueue] = {}
        self._opening: dict[str, asyncio.Task[LiveQueue]] = {}
        self._refused: dict[str, HeadraceError] = {}

    async def start(self, receipt_key: bytes) -> None:
        """Open every queue. One that cannot be opened is no reason to keep the others shut."""
        self._receipt_key = receipt_key
        for name in list(self._catalog.queues):
            try:
                await self.open(name)
            except HeadraceError as error:
                # No partition of it is at work, or its own state cannot be.
                _logger.critical("queue cannot be opened", extra={"queue": name, "error": str(error)})
                self._refused[name] = error
        self._catalog.on_change(self._changed)

    def __iter__(self) -> Iterator[LiveQueue]:
        return iter(list(self._live.values()))

    def get(self, name: str) -> LiveQueue | None:
        return self._live.get(name)

    def find(self, name: str) -> LiveQueue:
        """The queue at work, or why there is none."""
        live = self._live.get(name)
        if live is not None:
            return live
        raise self.missing(name)

    def is_refused(self, name: str) -> bool:
        """Whether it could not be opened when the node started."""
        return name in self._refused

    def missing(self, name: str) -> HeadraceError:
        refused = self._refused.get(name)
        if refused is not None:
            return PartitionOfflineError(f"queue {name} could not be opened when the node started: {refused}")
        if name in self._catalog.topics and name not in INTERNAL_NAMES:
            return NotAQueueError.of(name)
        return _unknown(name)

    def queue(self, name: str) -> Queue:
        queue = self._catalog.queues.get(name)
        if queue is None:
            raise self.missing(name)
        return queue

    async def open(self, name: str) -> LiveQueue:
        live = self._live.get(name)
        if live is not None:
            return live
        if name in self._refused:
            raise self.missing(name)
        task = self._opening.get(name)
        if task is None:
            task = self._opening[name] = self._tasks.spawn(self._open_now(name))
            task.add_done_callback(lambda _: self._opening.pop(name, None))
        return await asyncio.shield(task)

    async def _open_now(self, name: str) -> LiveQueue:
        await self._broker.settled(name)  # its metadata may be there before its files are
        queue = self.queue(name)
        await self._broker.complete_topic(self._broker.topic(queue.topic_id))
        signer = Signer(self._receipt_key, queue.id)
        live = LiveQueue(queue=queue, signer=signer, clock=self._clock, loader=self._loader)
        await self._open_partitions(live)
        live.partitions.check_any()
        live.repeats.settle()
        self._live[name] = live
        return live

    async def _open_partitions(self, live: LiveQueue) -> None:
        """Open those partitions that are not open yet: all of them, or those that were added."""
        while True:
            await self._broker.settled(live.queue.name)  # metadata of more may be there before their files are
            topic, index = self._broker.topic(live.queue.topic_id), live.partitions.count
            if index == topic.partition_count:
                return
            try:
                await self._open_partition(live, topic, index)
            except PartitionOfflineError as error:
                _logger.critical(
                    "a partition of a queue is offline; the queue goes on without it",
                    extra={"queue": live.queue.name, "partition": index, "error": str(error)},
                )
                live.partitions.add_offline(error)

    async def _open_partition(self, live: LiveQueue, topic: Topic, index: int) -> None:
        partition = self._broker.partition(topic.id, index)
        try:
            fold = await restore_queue(live.queue.id, partition, store=self._logs, threads=self._threads)
        except (CorruptLogError, PartitionOfflineError) as error:
            # Damage that only this replay came by. What the queue cannot read nobody else writes behind.
            partition.take_offline(error)
            raise PartitionOfflineError(f"{topic.name}-{index} could not be opened: {error}") from error
        opened = PartitionQueue(
            id=live.queue.id,
            partition=partition,
            fold=fold,
            now=FoldClock(self._steady, fold.now),
            clock=self._clock,
            cache=self._cache.view(),
            on_visible=live.serve,
            on_dying=lambda: self._on_dying(live),
            elsewhere=live.repeats,
            room=live.room,
        )
        partition.attach(opened)
        live.partitions.add(opened)
        opened.open(live.queue.config)
        inherit_readers(live, opened)

    def _changed(self, change: CatalogChange) -> None:
        if isinstance(change, QueueDeleted):
            self._refused.pop(change.queue.name, None)
            live = self._live.pop(change.queue.name, None)
            if live is not None:
                self._on_deleted(change.queue.name)
                live.close(_unknown(change.queue.name))  # its topic goes with it
        elif isinstance(change, QueueChanged):
            live = self._live.get(change.queue.name)
            if live is not None:
                live.queue = change.queue
        elif isinstance(change, TopicChanged):
            live = self._live.get(change.topic.name)
            if live is not None and change.topic.partition_count > live.partitions.count:
                self._tasks.spawn(self._grow(live))

    async def _grow(self, live: LiveQueue) -> None:
        async with live.changing:  # the topic may change again meanwhile, and no partition is opened twice
            with suppress(UnknownTopicError):
                await self._open_partitions(live)


def _unknown(name: str) -> UnknownQueueError:
    return UnknownQueueError(f"there is no queue {name}; create it, or check the name")
