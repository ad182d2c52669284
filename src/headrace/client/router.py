"""Which broker to ask: connections, cached metadata, and the loop that retries until a deadline.

Metadata is a cache that may be stale. Nobody checks it before use: a broker that no longer leads a partition says so,
the cache is refreshed, and the question goes to the new leader. An error that a retry can help is retried with
growing, jittered pauses; when the deadline comes, the last error is raised, not a bare timeout.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from headrace.client.connection import Connection, connect
from headrace.client.deadline import Deadline
from headrace.client.errors import NO_ERROR, UnreachableError, wire_error
from headrace.client.outage import Outage
from headrace.client.values import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo, TopicPartition
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.model.errors import HeadraceError, InvalidPartitionsError, NotLeaderError, UnknownTopicError
from headrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headrace.wire.kafka.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

T = TypeVar("T")

METADATA, FIND_COORDINATOR = 3, 10
COORDINATES_GROUPS, COORDINATES_TRANSACTIONS = 0, 1
_COORDINATORS_BATCHED = 4
_LEADER_NOT_AVAILABLE = 5


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a client behaves. Every wait has a deadline."""

    client_id: str = "headrace"
    connect_timeout_ms: int = 5_000
    # For one call of the client, all of its retries included.
    deadline_ms: int = 30_000
    retry_pause_ms: int = 50
    retry_pause_ms_max: int = 1_000
    batch_bytes_max: int = 512 * 1024
    fetch_bytes_max: int = 8 * 1024 * 1024
    partition_fetch_bytes_max: int = 4 * 1024 * 1024
    frame_bytes_max: int = 256 * 1024 * 1024
    # Whether asking about a topic may make it, where the broker's configuration agrees.
    auto_create_topics: bool = False


class Router:
    def __init__(
        self,
        servers: Sequence[Address],
        config: ClientConfig,
        *,
        clock: Clock,
        rand: Rand,
        transport: Transport,
    ) -> None:
        self.config = config
        self.clock = clock
        self._rand = rand
        self._transport = transport
        self._servers = list(servers)
        self._connections: dict[Address, asyncio.Task[Connection]] = {}
        self._addresses: dict[int, Address] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._outage = Outage()
        self.cluster = ClusterInfo(None, -1, ())

    def deadline(self, timeout_ms: int | None = None) -> Deadline:
        return Deadline(self.clock, self.config.deadline_ms if timeout_ms is None else timeout_ms)

    async def close(self) -> None:
        tasks, self._connections = list(self._connections.values()), {}
        for task in tasks:
            task.cancel()
        for connection in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(connection, Connection):
                connection.close()
                await connection.wait_closed()

    # Connections.

    async def connection(self, address: Address) -> Connection:
        """The open connection to an address. Callers that come together share one attempt."""
        task = self._connections.get(address)
        if task is None or (task.done() and (task.cancelled() or task.exception() or not task.result().is_open)):
            task = asyncio.get_running_loop().create_task(self._connect(address))
            self._connections[address] = task
        return await asyncio.shield(task)

    async def _connect(self, address: Address) -> Connection:
        return await connect(
            address,
            transport=self._transport,
            clock=self.clock,
            client_id=self.config.client_id,
            frame_bytes_max=self.config.frame_bytes_max,
            timeout_ms=self.config.connect_timeout_ms,
        )

    async def any_connection(self) -> Connection:
        """A connection to whichever broker answers, those that were learnt first."""
        candidates = list(dict.fromkeys([*self._addresses.values(), *self._servers]))
        errors: list[HeadraceError] = []
        for address in candidates:
            try:
                return await self.connection(address)
            except HeadraceError as error:
                errors.append(error)
        if len(errors) == 1:
            raise errors[0]
        tried = ", ".join(str(address) for address in candidates)
        raise UnreachableError(f"none of {tried} answers; the last said: {errors[-1]}")

    async def reach(self, *, waits: bool) -> None:
        """Have a connection to one of the servers: at once, or as soon as there is one within the deadline."""
        if waits:
            await self.retrying((), self.any_connection, self.deadline())
        else:
            await self.any_connection()

    async def controller(self, deadline: Deadline) -> Connection:
        """Where topics are administered. Any broker will do until metadata says better."""
        if self.cluster.controller not in self._addresses:
            await self.refresh((), deadline)
        address = self._addresses.get(self.cluster.controller)
        return await (self.any_connection() if address is None else self._announced(address))

    async def coordinator(self, key: str, deadline: Deadline, *, kind: int = COORDINATES_GROUPS) -> Connection:
        """A connection to the node that coordinates a group, or a transactional id."""
        # Asked for each time: it is rarely wanted twice.
        connection = await self.any_connection()
        # From version 4 several keys are asked at once.
        is_batched = connection.version(FIND_COORDINATOR) >= _COORDINATORS_BATCHED
        request = FindCoordinatorRequest(
            key="" if is_batched else key, key_type=kind, coordinator_keys=(key,) if is_batched else ()
        )
        response = await connection.call(
            FIND_COORDINATOR, request, FindCoordinatorResponse, timeout_ms=deadline.left_ms
        )
        found = response.coordinators[0] if is_batched else response
        if found.error_code != NO_ERROR:
            subject = f"group {key}" if kind == COORDINATES_GROUPS else f"transactional id {key}"
            raise wire_error(found.error_code, subject=subject, message=found.error_message)
        return await self._announced(Address(found.host, found.port))

    async def brokers(self, deadline: Deadline) -> list[Connection]:
        """A connection to every broker."""
        await self.refresh((), deadline)
        return [await self._announced(address) for address in self._addresses.values()]

    async def leader(self, at: TopicPartition, deadline: Deadline) -> Connection:
        """A connection to the node that leads a partition."""
        topic = await self.topic(at.topic, deadline)
        if at.partition >= len(topic.partitions):
            # It may have grown since it was looked at.
            topic = (await self.refresh((at.topic,), deadline))[0]
        if not 0 <= at.partition < len(topic.partitions):
            raise InvalidPartitionsError(
                f"{at.topic} has {len(topic.partitions)} partitions, numbered from 0; there is no {at.partition}"
            )
        address = self._addresses.get(topic.partitions[at.partition].leader)
        if address is None:
            raise NotLeaderError(f"{at} has no leader now; its node may be down")
        return await self._announced(address)

    async def _announced(self, address: Address) -> Connection:
        """A connection to an address that came from metadata, which may be right for the node and wrong for us."""
        try:
            return await self.connection(address)
        except UnreachableError as error:
            if address in self._servers:
                raise
            raise UnreachableError(
                f"a node announces {address} as its address, and it cannot be reached from here; "
                "is the node up, and is its kafka.advertise right?"
            ) from error

    # Metadata.

    async def topic(self, name: str, deadline: Deadline) -> TopicInfo:
        """What is known of a topic, asked for when nothing is."""
        known = self._topics.get(name)
        if known is None:
            known = (await self.refresh((name,), deadline))[0]
        return known

    def forget(self, names: Iterable[str]) -> None:
        for name in names:
            self._topics.pop(name, None)

    async def refresh(self, names: Sequence[str] | None, deadline: Deadline) -> list[TopicInfo]:
        """Ask for topics by name (None: all of them) and for the brokers, and remember the answer."""
        connection = await self.any_connection()
        wanted = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=self.config.auto_create_topics)
        response = await connection.call(METADATA, request, MetadataResponse, timeout_ms=deadline.left_ms)
        brokers = tuple(BrokerInfo(b.node_id, Address(b.host, b.port)) for b in response.brokers)
        self._addresses = {broker.node_id: broker.address for broker in brokers}
        self.cluster = ClusterInfo(response.cluster_id, response.controller_id, brokers)
        topics = [_topic_info(topic) for topic in response.topics]
        self._topics.update((topic.name, topic) for topic in topics)
        return topics

    # Retries.

    async def retrying(self, topics: Iterable[str], attempt: Callable[[], Awaitable[T]], deadline: Deadline) -> T:
        """Run an attempt until it succeeds, fails for good, or the deadline comes."""
        pause_ms: float = self.config.retry_pause_ms
        names = tuple(topics)
        unknown_seen = False
        while True:
            try:
                result = await attempt()
                self._outage.end()
                return result
            except HeadraceError as error:
                # An unknown topic is worth one fresh look: the cache may be old, but waiting makes no topic.
                if not error.retriable or deadline.is_past or (unknown_seen and isinstance(error, UnknownTopicError)):
                    raise
                unknown_seen = isinstance(error, UnknownTopicError)
                self._outage.note(error)
                pause = min(pause_ms * self._rand.uniform(0.5, 1.5), deadline.left_ms)
            self.forget(names)
            await self.clock.sleep(pause)
            pause_ms = min(pause_ms * 2, self.config.retry_pause_ms_max)


def _topic_info(topic: MetadataResponseTopic) -> TopicInfo:
    name = topic.name or str(topic.topic_id)
    if topic.error_code not in (NO_ERROR, _LEADER_NOT_AVAILABLE):
        raise wire_error(topic.error_code, subject=name)
    partitions = sorted(
        PartitionInfo(p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in topic.partitions
    )
    return TopicInfo(name, topic.topic_id, topic.is_internal, tuple(partitions))
