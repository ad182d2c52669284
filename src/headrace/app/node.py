"""The composition root: one node, put together, run and taken apart in order.

Up: lock the directory, open the metadata, raise the leader epochs, recover the logs, restore the folds, listen last.
Down, the other way round: stop listening and answer what is in flight, then make everything durable, then let go.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec

from headrace import __version__
from headrace.app import health
from headrace.app.config import NodeConfig
from headrace.app.identity import check_complete, check_identity
from headrace.app.key_file import read_access_keys
from headrace.app.loop_lag import LoopLag
from headrace.app.metrics import NodeMetrics
from headrace.broker.broker import Broker
from headrace.broker.config import BrokerConfig
from headrace.broker.group.groups import NodeGroups
from headrace.broker.group.share_groups import ShareGroups
from headrace.broker.queue.queues import NodeQueues
from headrace.broker.transaction.coordinator import Coordinator
from headrace.broker.transaction.held import QueueLeases
from headrace.broker.transaction.sessions import NodeTransactions
from headrace.cluster.admin import Admin, PartitionLimits
from headrace.cluster.catalog import Catalog, NodeAddress
from headrace.cluster.driver import CatalogDriver
from headrace.cluster.queue_admin import QueueAdmin
from headrace.cluster.sqlite import FILE_NAME as METADATA_FILE
from headrace.cluster.sqlite import SqliteStore
from headrace.cluster.store import Store
from headrace.gateways.answers import AnswerBudget
from headrace.gateways.http.counters import HttpCounters
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.http.listener import HttpListener, listen_http
from headrace.gateways.http.origin import Hosts
from headrace.gateways.http.router import Route, Router
from headrace.gateways.kafka.gateway import start_kafka
from headrace.gateways.kafka.listener import KafkaListener
from headrace.gateways.rest.about import node_routes
from headrace.gateways.rest.clock import clock_routes
from headrace.gateways.rest.gateway import rest_router
from headrace.gateways.sqs.gateway import SqsGateway
from headrace.host.ballast import Ballast
from headrace.host.clock import SystemClock
from headrace.host.disk import SystemDisk
from headrace.host.memory import keep_freed_memory
from headrace.host.node_clock import ClockState, NodeClock
from headrace.host.owner_only import make_files_private, take_from_others
from headrace.host.process import (
    DirectoryLock,
    boot_id,
    keep_collector_off_the_hot_path,
    let_threads_in_quickly,
    on_stop_signal,
    raise_open_files_limit,
)
from headrace.host.rand import SystemRand
from headrace.host.threads import PoolThreads
from headrace.host.transport import TcpTransport
from headrace.log.driver import LogStore
from headrace.model.address import Address
from headrace.model.errors import ConfigurationError
from headrace.model.ids import NodeId, PartitionId

_logger = logging.getLogger(__name__)

_CLUSTER = "headrace"
_PRODUCER_EXPIRY_INTERVAL_MS = 60_000
# Connections of the administrator's listener, which is for people and scripts.
_ADMIN_CONNECTIONS_MAX = 64
# Descriptors that are neither segments nor clients' connections: the store, the journal, listeners, the standard
# streams, administrators.
_DESCRIPTORS_RESERVED = 64 + _ADMIN_CONNECTIONS_MAX


class Node:
    """A running node."""

    def __init__(self, config: NodeConfig) -> None:
        self.config = config
        self.clock = NodeClock(SystemClock(), config.clock)
        self.lag = LoopLag(self.clock)
        self.kafka_address = config.kafka.listen
        self.http_address = config.http.listen
        self.http_admin_address = config.http.admin
        self.http_admin: HttpListener | None = None
        self.answers = AnswerBudget(config.answers)
        # What load balancers are told by /readyz.
        self.is_started = False
        self.is_stopping = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._rand = SystemRand()
        self._disk = SystemDisk()
        self._stack = AsyncExitStack()

    async def start(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise

    async def stop(self) -> None:
        self.is_stopping = True
        await self._stack.aclose()

    async def _start(self) -> None:
        config, clock, disk = self.config, self.clock, self._disk
        keep_freed_memory()
        let_threads_in_quickly()
        make_files_private()
        self._check_descriptors()
        self._lock_directory()
        take_from_others(config.data)
        self._sync_threads = self._threads("sync", 8)
        clock.open(disk, config.data, boot_id=boot_id())
        self._stack.callback(clock.save)
        self._read_threads = self._threads("read", 4)
        check_complete(disk, config.data, METADATA_FILE)
        self._ballast = Ballast(disk, config.data, size_bytes=config.log.disk_ballast_bytes)
        self._ballast.open()
        store = await SqliteStore.open(
            config.data, clock=clock, threads=self._threads("store", 1), make_room=self._ballast.make_room
        )
        self._stack.push_async_callback(store.close)
        catalog = Catalog(cluster=_CLUSTER)
        driver = CatalogDriver(store=store, catalog=catalog, clock=clock, rand=self._rand)
        await driver.load()
        self._run_always(driver.run())
        node_id = NodeId(config.node_id)
        limits = PartitionLimits(config.topics.partitions_max, config.topics.node_partitions_max)
        admin = Admin(store=store, catalog=catalog, node_id=node_id, clock=clock, rand=self._rand, limits=limits)
        cluster_id = await admin.cluster_id()
        check_identity(disk, self._rand, config.data, node_id=config.node_id, cluster_id=cluster_id)
        await admin.raise_epochs()
        self.logs = await self._open_logs(catalog)
        self.broker = Broker(
            node_id=node_id,
            cluster_id=cluster_id,
            catalog=catalog,
            admin=admin,
            logs=self.logs,
            clock=clock,
            disk=disk,
            threads=self._sync_threads,
            data_directory=config.data,
            config=BrokerConfig(
                auto_create_topics=config.topics.auto_create,
                default_partition_count=config.topics.partitions,
                default_replication_factor=config.topics.replication,
                producer_expiry_ms=config.log.producer_expiry_ms,
                topic_defaults=config.topics.defaults,
            ),
        )
        await self.broker.start()
        self._stack.push_async_callback(self.broker.stop)
        queue_admin = QueueAdmin(admin=admin, store=store, catalog=catalog, clock=clock, rand=self._rand)
        await self._start_queues(queue_admin, catalog)
        await self._start_groups()
        await self._start_transactions(queue_admin, catalog)
        self._run_always(clock.watch(self._sync_threads))
        self._run_always(self._expire_producers())
        self._run_always(self.lag.watch())
        self._run_always(self.logs.wait_failed())
        # The administrator's listener is the last to stop, so that it tells of the stop while it lasts.
        self._stack.push_async_callback(self._stop_admin)
        await self._listen(admin, node_id)
        await self._listen_http(store)
        # Before the listeners are stopped, which wait for what is in flight.
        self._stack.callback(self.queues.send_home)
        self._stack.callback(self.groups.send_home)
        keep_collector_off_the_hot_path()
        self.is_started = True

    async def _start_queues(self, admin: QueueAdmin, catalog: Catalog) -> None:
        self.queues = NodeQueues(
            broker=self.broker,
            admin=admin,
            catalog=catalog,
            logs=self.logs,
            clock=self.clock,
            rand=self._rand,
            threads=self._sync_threads,
            config=self.config.queues,
        )
        await self.queues.start()
        self._stack.push_async_callback(self.queues.stop)
        self._run_always(self.queues.wait_failed())

    async def _start_transactions(self, admin: QueueAdmin, catalog: Catalog) -> None:
        self.coordinator = Coordinator(
            broker=self.broker,
            logs=self.logs,
            clock=self.clock,
            threads=self._sync_threads,
            config=self.config.transactions,
            groups=self.groups,
            queues=QueueLeases(queues=self.queues, catalog=catalog),
        )
        self.transactions = NodeTransactions(
            coordinator=self.coordinator, broker=self.broker, queues=self.queues, clock=self.clock
        )
        await self.coordinator.start()
        self._stack.push_async_callback(self.coordinator.stop)
        await self.transactions.start(await admin.receipt_key())
        self._run_always(self.coordinator.wait_failed())

    async def _start_groups(self) -> None:
        self.groups = NodeGroups(
            broker=self.broker,
            logs=self.logs,
            clock=self.clock,
            rand=self._rand,
            threads=self._sync_threads,
            config=self.config.groups,
        )
        await self.groups.start()
        self._run_always(self.groups.run())

    def _check_descriptors(self) -> None:
        allowed = raise_open_files_limit()
        config = self.config
        connections_max = config.kafka.limits.connections_max + config.http.limits.connections_max
        needed = config.log.open_files_max + connections_max + _DESCRIPTORS_RESERVED
        if needed > allowed:
            raise ConfigurationError(
                "log.open_files_max, kafka.limits.connections_max and http.limits.connections_max together need "
                f"{needed} file descriptors, and this process may have {allowed}; lower them or raise the limit "
                "(ulimit -n)"
            )

    def _lock_directory(self) -> None:
        self._disk.make_directory(self.config.data)
        lock = DirectoryLock(f"{self.config.data}/lock")
        self._stack.callback(lock.release)
        if not lock.try_lock():
            raise ConfigurationError(f"{self.config.data} is in use by another node; stop it or choose another --data")

    def _threads(self, name: str, count_max: int) -> PoolThreads:
        threads = PoolThreads(name=f"headrace-{name}", count_max=count_max)
        self._stack.callback(threads.close)
        return threads

    async def _open_logs(self, catalog: Catalog) -> LogStore:
        logs = LogStore(
            disk=self._disk,
            clock=self.clock,
            rand=self._rand,
            sync_threads=self._sync_threads,
            read_threads=self._read_threads,
            directory=self.config.data,
            config=self.config.log,
            ballast=self._ballast,
        )
        partitions = {
            PartitionId(topic.id, index): topic.config
            for topic in catalog.topics.values()
            for index in range(topic.partition_count)
        }
        await logs.start(partitions)
        self._stack.push_async_callback(logs.stop)
        return logs

    async def _listen(self, admin: Admin, node_id: NodeId) -> None:
        config = self.config.kafka
        self.kafka: KafkaListener = await start_kafka(
            self.broker,
            groups=self.groups,
            transactions=self.coordinator,
            shares=ShareGroups(
                groups=self.groups,
                queues=self.queues,
                catalog=self.broker.catalog,
                logs=self.logs,
                clock=self.clock,
            ),
            transport=TcpTransport(),
            clock=self.clock,
            host=config.listen.host,
            port=config.listen.port,
            limits=config.limits,
            answers=self.answers,
        )
        self._stack.push_async_callback(self.kafka.stop)
        self.kafka_address = Address(*self.kafka.address)
        advertised = config.advertise or self.kafka_address
        await admin.register_node(NodeAddress(node_id=node_id, host=advertised.host, port=advertised.port))
        _logger.info("listening", extra={"kafka": str(self.kafka_address)})

    async def _listen_http(self, store: Store) -> None:
        config, broker, counters = self.config.http, self.broker, HttpCounters()
        metrics = NodeMetrics(
            broker=broker,
            queues=self.queues,
            groups=self.groups,
            transactions=self.coordinator,
            logs=self.logs,
            kafka=self.kafka,
            http=counters,
            answers=self.answers,
            lag=self.lag,
            clock=self.clock,
        )
        about = node_routes(
            about={"version": __version__, "node_id": broker.node_id, "cluster_id": broker.cluster_id},
            health=lambda: health.reasons(broker=broker, logs=self.logs, lag=self.lag),
            metrics=metrics.render,
            warnings=lambda: health.warnings(clock=self.clock, broker=broker, logs=self.logs),
            unready=lambda: health.unready(
                is_started=self.is_started,
                is_stopping=self.is_stopping,
                store=store,
                key=broker.catalog.keys.cluster_id,
            ),
        )
        admin_limits = msgspec.structs.replace(
            config.limits, connections_max=min(config.limits.connections_max, _ADMIN_CONNECTIONS_MAX)
        )
        public = self._rest([*self._sqs(config.listen).routes(), *about, *self._clock_routes()], is_admin=False)
        self.http = await self._open_http("http.listen", config.listen, public, counters, config.limits)
        self._stack.push_async_callback(self.http.stop)
        self.http_address = Address(*self.http.address)
        self.http_admin = await self._open_http(
            "http.admin_listen",
            config.admin,
            self._rest([*about, *self._clock_routes(is_admin=True)], is_admin=True),
            counters,
            admin_limits,
        )
        self.http_admin_address = Address(*self.http_admin.address)
        _logger.info("listening", extra={"http": str(self.http_address), "admin": str(self.http_admin_address)})

    async def _confirm_clock(self) -> ClockState:
        state = self.clock.confirm()
        await self._sync_threads.run(self.clock.save)
        return state

    def _clock_routes(self, *, is_admin: bool = False) -> list[Route]:
        return clock_routes(
            state=self.clock.state,
            confirm=self._confirm_clock,
            is_admin=is_admin,
            admin_address=lambda: str(self.http_admin_address),
        )

    def _rest(self, others: list[Route], *, is_admin: bool) -> Router:
        return rest_router(
            self.queues,
            self.transactions,
            limits=self.config.http.limits,
            is_admin=is_admin,
            admin_address=lambda: str(self.http_admin_address),
            others=others,
        )

    def _sqs(self, at: Address) -> SqsGateway:
        config = self.config.sqs
        keys = None if config.keys_file is None else read_access_keys(config.keys_file)
        # Deleting a queue is an administrator's call. Whoever holds a key is one, and so is everybody on this machine
        # where nobody is asked for a key.
        return SqsGateway(
            self.queues,
            clock=self.clock,
            config=config,
            keys=keys,
            may_delete=keys is not None or at.is_loopback,
        )

    async def _open_http(
        self, setting: str, at: Address, router: Router, counters: HttpCounters, limits: HttpLimits
    ) -> HttpListener:
        try:
            listener = await listen_http(
                TcpTransport(),
                at.host,
                at.port,
                router=router,
                clock=self.clock,
                rand=self._rand,
                counters=counters,
                limits=limits,
                hosts=Hosts(self.config.http.hosts, is_loopback=at.is_loopback),
                answers=self.answers,
            )
        except OSError as error:
            flag = "--http" if setting == "http.listen" else "--admin-listen"
            raise ConfigurationError(
                f"{at} cannot be listened on for HTTP ({error.strerror or error}); stop the program that "
                f"has it or choose another address with {flag}"
            ) from error
        return listener

    async def _stop_admin(self) -> None:
        if self.http_admin is not None:
            await self.http_admin.stop()

    async def _expire_producers(self) -> None:
        while True:
            await self.clock.sleep(_PRODUCER_EXPIRY_INTERVAL_MS)
            self.broker.expire_producers()

    def _run_always(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something for as long as the node lives. The node does not outlive it."""
        task = asyncio.get_running_loop().create_task(work)

        def ended(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
                self.failed.set_exception(error)

        async def cancel() -> None:
            task.cancel()
            await asyncio.wait([task])

        task.add_done_callback(ended)
        self._stack.push_async_callback(cancel)


async def run(config: NodeConfig, *, ready: Callable[[Node], None] | None = None) -> None:
    """Run a node until it is asked to stop."""
    node = Node(config)
    stop = asyncio.Event()
    on_stop_signal(stop.set)
    await node.start()
    try:
        if ready is not None:
            ready(node)
        node.failed.add_done_callback(lambda _: stop.set())
        await stop.wait()
        _logger.info("stopping")
        node.is_stopping = True
        if config.stop_delay_ms and not node.failed.done():
            # Until load balancers have seen that this node is not ready; a second signal cuts it short.
            stop.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(config.stop_delay_ms / 1000):
                    await stop.wait()
    finally:
        await node.stop()
    if node.failed.done():
        node.failed.result()
