"""The stream client: topics as logs, over the Kafka wire, direct to the node that leads each partition.

    async with StreamClient("127.0.0.1:9092") as client:
        await client.admin.create_topic("orders", partition_count=3)
        await client.produce("orders", [Outgoing(b"one tea", key=b"alice")])
        at = TopicPartition("orders", 0)
        for fetched in await client.fetch({at: 0}, wait_ms=500):
            ...

Every call has a deadline (`ClientConfig.deadline_ms`) within which it reconnects and retries what a retry can help;
what it raises is a `HeadraceError`. A client belongs to one event loop and may be shared by its tasks.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from headrace.client.admin import Admin
from headrace.client.fetcher import EARLIEST, LATEST, Fetcher
from headrace.client.group import Groups
from headrace.client.producer import ACKS_ALL, Producer
from headrace.client.router import ClientConfig, Router
from headrace.client.settings import kafka_servers
from headrace.client.transactional import TransactionalProducer
from headrace.client.values import Fetched, Located, Outgoing, Produced, TopicPartition
from headrace.host.clock import Clock, SystemClock
from headrace.host.rand import Rand, SystemRand
from headrace.host.transport import TcpTransport, Transport
from headrace.model.address import Address, parse_address
from headrace.model.errors import InvalidRequestError

NO_OFFSET = -1


class StreamClient:
    """An asynchronous client; use it as a context manager.

    Without `servers` it takes those that HEADRACE_SERVER names, or else 127.0.0.1:9092.
    """

    def __init__(
        self,
        servers: str | Sequence[str | Address] | None = None,
        *,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        rand: Rand | None = None,
        transport: Transport | None = None,
    ) -> None:
        servers = kafka_servers() if servers is None else servers
        listed = servers.split(",") if isinstance(servers, str) else servers
        rand = rand or SystemRand()
        self._router = Router(
            [_address(server) for server in listed],
            config or ClientConfig(),
            clock=clock or SystemClock(),
            rand=rand,
            transport=transport or TcpTransport(),
        )
        self._producer = Producer(self._router, rand)
        self._fetcher = Fetcher(self._router)
        self.admin = Admin(self._router)
        self.groups = Groups(self._router)

    async def connect(self, *, waits: bool = False) -> None:
        """Reach one of the servers. Without a retry: who begins with a wrong address should hear of it at once.

        Who knows that the address is right `waits` for a node that restarts, until the deadline.
        """
        await self._router.reach(waits=waits)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._router.close()

    async def produce(
        self, topic: str, messages: Iterable[Outgoing], *, compression: str = "none", acks: int = ACKS_ALL
    ) -> list[Produced]:
        """Store messages and say where. With acks=all (-1), once each, whatever is retried on the way."""
        return await self._producer.send(topic, messages, compression=compression, acks=acks)

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> TransactionalProducer:
        """A producer whose writes to any partitions and groups count together; `begin` it before its first."""
        return TransactionalProducer(self._router, transactional_id, timeout_ms=timeout_ms)

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        wait_ms: int = 500,
        bytes_min: int = 1,
        bytes_max: int | None = None,
    ) -> list[Fetched]:
        """Messages from each position on; waits up to `wait_ms` for at least `bytes_min` of them."""
        limit = self._router.config.fetch_bytes_max if bytes_max is None else bytes_max
        return await self._fetcher.fetch(positions, wait_ms=wait_ms, bytes_min=bytes_min, bytes_max=limit)

    async def partitions(self, topic: str) -> list[TopicPartition]:
        """The partitions that a topic has now."""
        info = await self.admin.describe_topic(topic)
        return [TopicPartition(topic, partition.partition) for partition in info.partitions]

    async def start_offsets(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still holds."""
        return await self._places(ats, EARLIEST)

    async def end_offsets(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset that each partition's next message will have."""
        return await self._places(ats, LATEST)

    async def _places(self, ats: Iterable[TopicPartition], place: int) -> dict[TopicPartition, int]:
        found = await self._fetcher.list_offsets(dict.fromkeys(ats, place))
        return {at: located.offset for at, located in found.items()}

    async def offsets_for_time(
        self, ats: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, Located | None]:
        """The first message at or after a time in each partition; None where there is none yet."""
        if timestamp_ms < 0:
            raise InvalidRequestError(f"{timestamp_ms} is no time; give milliseconds since 1970")
        found = await self._fetcher.list_offsets(dict.fromkeys(ats, timestamp_ms))
        return {at: None if located.offset == NO_OFFSET else located for at, located in found.items()}


def _address(server: str | Address) -> Address:
    if isinstance(server, Address):
        return server
    try:
        return parse_address(server)
    except ValueError as error:
        raise InvalidRequestError(str(error)) from None
