"""All queues of a node, behind the port that gateways use.

A queue is a topic and a subscription of the same name (`creation.py`). Its files are the topic's; what is added here
is the fold over each partition (`partition_queue.py`), what looks like one queue over them (`live_queue.py`), and what
goes on behind: dead letters (`mover.py`), redrives (`redrive.py`), retention (`keeper.py`).
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.promise import Promise
from headrace.broker.queue.browse import browse, explain
from headrace.broker.queue.cache import MessageCache
from headrace.broker.queue.config import QueuesConfig
from headrace.broker.queue.counts import counts_of
from headrace.broker.queue.creation import Creation
from headrace.broker.queue.keeper import Keeper
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader
from headrace.broker.queue.mover import Mover
from headrace.broker.queue.port import (
    DEFAULTS,
    EVERYTHING,
    BrowsePage,
    Explanation,
    Extension,
    MessageState,
    NewConfig,
    OfflinePartition,
    QueueCounts,
    QueueDescription,
    Reader,
    Redrive,
    RedriveFilter,
    Rejection,
    Release,
)
from headrace.broker.queue.readers import list_readers, move_reader, remove_reader
from headrace.broker.queue.receive import OpeningReceive, PendingReceive
from headrace.broker.queue.redrive import Redriver
from headrace.broker.queue.registry import Registry
from headrace.broker.queue.steady import SteadyClock
from headrace.broker.queue.tasks import Tasks
from headrace.cluster.catalog import Catalog
from headrace.cluster.queue_admin import QueueAdmin
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import (
    HeadraceError,
    InvalidRequestError,
    ShuttingDownError,
)
from headrace.model.message import Message, Sent
from headrace.model.queue import Queue, QueueConfig, check_queue_config

T = TypeVar("T")


class NodeQueues:
    """The queues of one node."""

    def __init__(
        self,
        *,
        broker: Broker,
        admin: QueueAdmin,
        catalog: Catalog,
        logs: LogStore,
        clock: Clock,
        rand: Rand,
        threads: Threads,
        config: QueuesConfig,
    ) -> None:
        self.config = config
        self._broker = broker
        self._admin = admin
        self._catalog = catalog
        self._clock = clock
        self._tasks = Tasks()
        steady = SteadyClock(clock)
        spawn = self._tasks.spawn
        self._cache = MessageCache(bytes_max=config.cache_bytes)
        self._loader = Loader(store=logs, spawn=spawn)
        self._mover = Mover(loader=self._loader, clock=clock, rand=rand, spawn=spawn, send=self._send_dead)
        self._redriver = Redriver(
            loader=self._loader,
            clock=clock,
            rand=rand,
            wall_ms=steady.wall_ms,
            spawn=spawn,
            find=lambda name: self._live.get(name),
            missing=lambda name: self._live.missing(name),
            send=self._send_moved,
            save=admin.save_redrives,
        )
        self._keeper = Keeper(loader=self._loader)
        self._live = Registry(
            broker=broker,
            catalog=catalog,
            logs=logs,
            clock=clock,
            steady=steady,
            threads=threads,
            tasks=self._tasks,
            cache=self._cache,
            loader=self._loader,
            on_dying=self._mover.notice,
            on_deleted=self._redriver.forget,
        )
        self._creation = Creation(
            broker=broker, admin=admin, catalog=catalog, live=self._live, auto_create=config.auto_create
        )

    # Start and stop.

    async def start(self) -> None:
        """Bring every queue's state up to the end of its log, and go on with what was begun."""
        await self._live.start(await self._admin.receipt_key())
        self._redriver.resume(await self._admin.redrives())
        self._tasks.spawn(self._keep_always())

    async def wait_failed(self) -> None:
        await self._tasks.wait_failed()

    def send_home(self) -> None:
        """Tell everybody who waits for a message that none will come."""
        error = ShuttingDownError("the node is stopping; reconnect and retry")
        for live in self._live:
            live.end(error)

    async def stop(self) -> None:
        """End what goes on behind. What was decided is written with each partition's last turn."""
        self.send_home()
        await self._tasks.stop()
        for live in self._live:
            for partition in live.partitions.opened:
                partition.write_now()

    def abandon(self) -> None:
        """Stop without a word, as a killed process does."""
        self._tasks.cancel()

    # Messages.

    def send(
        self, queue: str, messages: Sequence[Message], *, request_id: str | None = None
    ) -> Promise[list[Sent | HeadraceError]]:
        live = self._live.get(queue)
        if live is not None:
            return live.sending.send(messages, request_id=request_id)
        return self._later(
            self._creation.ensure_live(queue), lambda live: live.sending.send(messages, request_id=request_id)
        )

    def send_one(self, queue: str, message: Message) -> Promise[Sent]:
        live = self._live.get(queue)
        if live is not None:
            return live.sending.send_one(message)
        return self._later(self._creation.ensure_live(queue), lambda live: live.sending.send_one(message))

    def answer_bytes(self, queue: str, count: int) -> int:
        live = self._live.get(queue)
        return 0 if live is None else live.answer_bytes(count)

    def receive(
        self,
        queue: str,
        *,
        count_max: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        attempt_id: str | None = None,
    ) -> PendingReceive | OpeningReceive:
        count_max, wait_ms = min(count_max, self.config.receive_count_max), min(wait_ms, self.config.wait_ms_max)
        live = self._live.get(queue)
        if live is not None:
            return live.receive(count_max=count_max, lease_ms=lease_ms, wait_ms=wait_ms, attempt_id=attempt_id)
        if queue not in self._catalog.queues:
            receive = PendingReceive(count_max=count_max, lease_ms=0, attempt_id=None)
            receive.fail(self._live.missing(queue))
            return receive
        return OpeningReceive(
            self._live.open(queue),
            lambda live: live.receive(count_max=count_max, lease_ms=lease_ms, wait_ms=wait_ms, attempt_id=attempt_id),
            spawn=self._tasks.spawn,
        )

    def after_moves(self, queue: str, promise: Promise[T]) -> Promise[T]:
        live = self._live.get(queue)
        return promise if live is None else self._mover.after(live, promise)

    def acknowledge(
        self, queue: str, receipts: Sequence[str], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        return self._with(queue, lambda live: live.leases.acknowledge(receipts, may_be_late=may_be_late))

    def extend(
        self, queue: str, extensions: Sequence[Extension], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        return self._with(queue, lambda live: live.leases.extend(extensions, may_be_late=may_be_late))

    def release(
        self, queue: str, releases: Sequence[Release], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        return self._with(queue, lambda live: live.leases.release(releases, may_be_late=may_be_late))

    def reject(self, queue: str, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]:
        return self._with(queue, lambda live: live.leases.reject(rejections))

    def _with(self, queue: str, call: Callable[[LiveQueue], Promise[T]]) -> Promise[T]:
        live = self._live.get(queue)
        if live is not None:
            return call(live)
        return self._later(self._live.open(queue), call)

    def _later(self, live: Awaitable[LiveQueue], call: Callable[[LiveQueue], Promise[T]]) -> Promise[T]:
        promise: Promise[T] = Promise()

        async def go() -> None:
            try:
                result = await call(await live)
            except HeadraceError as error:
                promise.fail(error)
            except BaseException:
                promise.fail(ShuttingDownError("the node is stopping; the call may have been carried out"))
                raise
            else:
                promise.keep(result)

        self._tasks.spawn(go())
        return promise

    async def _send_moved(self, queue: str, messages: Sequence[Message]) -> list[Sent | HeadraceError]:
        """Copies of another queue's messages."""
        live = self._live.get(queue) or await self._live.open(queue)
        return await live.sending.send_moved(messages)

    async def _send_dead(self, source: Queue, queue: str, messages: Sequence[Message]) -> list[Sent | HeadraceError]:
        """Dead letters. A queue for them is made when the first one comes."""
        if self._live.get(queue) is None and queue not in self._catalog.queues:
            await self._creation.create_for_dead_letters(queue, source)
        return await self._send_moved(queue, messages)

    # Queues.

    def find(self, name: str) -> Queue:
        return self._live.queue(name)

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self._catalog.queues if name.startswith(prefix))

    def describe(self, name: str) -> QueueDescription:
        queue, live = self.find(name), self._live.find(name)
        topic = self._broker.topic(queue.topic_id)
        return QueueDescription(
            queue=queue,
            partition_count=topic.partition_count,
            durability=topic.config.durability.value,
            counts=counts_of(live),
            offline=live.partitions.offline(),
        )

    def describe_listed(self, name: str) -> QueueDescription:
        if not self._live.is_refused(name):
            return self.describe(name)
        queue, reason = self._catalog.queues[name], str(self._live.missing(name))
        topic = self._broker.topic(queue.topic_id)
        return QueueDescription(
            queue=queue,
            partition_count=topic.partition_count,
            durability=topic.config.durability.value,
            counts=QueueCounts(),
            offline=[OfflinePartition(partition=index, reason=reason) for index in range(topic.partition_count)],
        )

    async def create(
        self,
        name: str,
        config: QueueConfig = DEFAULTS,
        *,
        partition_count: int = -1,
        durability: str | None = None,
        notes: Mapping[str, dict[str, Any]] = {},
        convert: bool = False,
    ) -> Queue:
        return await self._creation.create(
            name, config, partition_count=partition_count, durability=durability, notes=notes, convert=convert
        )

    async def ensure(self, name: str) -> Queue:
        return (await self._creation.ensure_live(name)).queue

    async def update(
        self, name: str, config: NewConfig | None = None, *, notes: Mapping[str, dict[str, Any]] | None = None
    ) -> Queue:
        live = self._live.find(name)
        async with live.changing:
            old = self.find(name).config
            new = config(old) if callable(config) else config
            if new is not None and new.dead_letter != old.dead_letter:
                self._creation.check_dead_letter(name, new)
            if new is not None and new.ordered and not live.queue.config.ordered:
                # Before it is stored, so that nothing is sent in between. If it is not stored after all, the queue is
                # stricter than it says until it is changed or opened again.
                await live.make_ordered(check_queue_config(name, new))
            queue = await self._admin.change(name, new, notes)
            await live.reconfigure(queue)
        return queue

    async def delete(self, name: str) -> None:
        self.find(name)
        await self._broker.delete_topic(name)

    async def purge(self, name: str) -> int:
        return await self._live.find(name).purge()

    # Looking.

    async def browse(
        self, name: str, *, state: MessageState | None = None, count_max: int = 10, after: str | None = None
    ) -> BrowsePage:
        return await browse(self._live.find(name), self._loader, state=state, count_max=count_max, after=after)

    async def explain(self, name: str, *, id: str | None = None, key: bytes | None = None) -> Explanation:
        return await explain(self._live.find(name), self._loader, id=id, key=key)

    # Dead letters.

    def dead_letter_sources(self, name: str) -> Sequence[str]:
        self.find(name)
        return sorted(queue.name for queue in self._catalog.queues.values() if queue.dead_letter_name == name)

    async def redrive(
        self,
        name: str,
        *,
        target: str | None = None,
        filter: RedriveFilter = EVERYTHING,
        rate_per_second: int | None = None,
    ) -> Redrive:
        live = self._live.find(name)
        if target is not None:
            self.find(target)
            if target == name:
                raise InvalidRequestError(f"messages of {name} cannot be moved to where they are; name another target")
        if rate_per_second is not None and rate_per_second < 1:
            raise InvalidRequestError(f"a redrive moves at least 1 message a second, not {rate_per_second}")
        return await self._redriver.begin(live, target=target, filter=filter, rate_per_second=rate_per_second)

    def redrives(self, name: str) -> Sequence[Redrive]:
        self.find(name)
        return self._redriver.of(name)

    async def cancel_redrive(self, name: str, id: str) -> Redrive:
        self.find(name)
        return await self._redriver.cancel(name, id)

    # Named readers.

    async def move_reader(self, name: str, reader: str, positions: Mapping[int, int]) -> Reader:
        return await move_reader(self._live.find(name), reader, positions)

    def readers(self, name: str) -> Sequence[Reader]:
        return list_readers(self._live.find(name))

    async def remove_reader(self, name: str, reader: str) -> None:
        await remove_reader(self._live.find(name), reader)

    # For share groups, which read messages themselves.

    async def live(self, name: str) -> LiveQueue:
        """The queue at work. UnknownQueueError where there is none."""
        return self._live.get(name) or await self._live.open(name)

    # For the node's own figures.

    @property
    def cache_size_bytes(self) -> int:
        return self._cache.size_bytes

    def waiting_count(self, name: str) -> int:
        """Receives that wait for a message."""
        live = self._live.get(name)
        return 0 if live is None else live.waiting_count

    def offline_count(self, name: str) -> int:
        """Partitions that are offline; all of them where that is why the queue could not be opened."""
        live = self._live.get(name)
        if live is not None:
            return len(live.partitions.offline())
        topic = self._catalog.topics.get(name)
        return topic.partition_count if topic is not None and self._live.is_refused(name) else 0

    async def _keep_always(self) -> None:
        while True:
            await self._clock.sleep(self.config.keep_interval_ms)
            for live in self._live:
                await self._keeper.keep(live)
