"""A simulated node with a queue that share consumers work, and what tests of that say often, in few words."""

from collections.abc import Sequence
from typing import Any

from tests.broker.group.world import GroupNode

from headrace.broker.group.share_groups import ShareGroups
from headrace.broker.group.share_port import AckBatch, AckType, Acquisition, Holder
from headrace.model.batch import read_header
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionId
from headrace.model.message import Message, Received, Sent
from headrace.model.queue import QueueConfig
from headrace.wire.kafka.records import Record, decode_batch

NAME = "orders"
MIB = 1024 * 1024


class ShareNode(GroupNode):
    async def start(self) -> "ShareNode":
        await super().start()
        self.shares = ShareGroups(
            groups=self.groups, queues=self.queues, catalog=self.catalog, logs=self.logs, clock=self.clock
        )
        return self

    async def make_queue(self, name: str = NAME, *, partitions: int = 1, **config: Any) -> None:
        await self.queues.create(name, QueueConfig(**config), partition_count=partitions)

    async def send(self, *bodies: bytes, name: str = NAME, **options: Any) -> None:
        outcomes = await self.queues.send(name, [Message(body, **options) for body in bodies])
        assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes

    async def receive(self, count_max: int = 10, *, name: str = NAME) -> list[Received]:
        """As somebody does who comes by HTTP."""
        return await self.queues.receive(name, count_max=count_max).promise

    def places(self, name: str = NAME) -> list[PartitionId]:
        topic = self.catalog.topics[name]
        return [PartitionId(topic.id, index) for index in range(topic.partition_count)]

    async def acquire(
        self,
        holder: Holder,
        records_max: int = 10,
        *,
        places: Sequence[PartitionId] | None = None,
        bytes_max: int = MIB,
        wait_ms: int = 0,
    ) -> Acquisition:
        return await self.shares.acquire(
            holder,
            self.places() if places is None else places,
            records_max=records_max,
            bytes_max=bytes_max,
            wait_ms=wait_ms,
        )

    async def acknowledge(
        self, holder: Holder, first: int, last: int, *types: AckType, place: PartitionId | None = None
    ) -> HeadraceError | None:
        batch = AckBatch(first, last, types or (AckType.ACCEPT,))
        try:
            await self.shares.acknowledge(holder, self.places()[0] if place is None else place, [batch])
        except HeadraceError as error:
            return error
        return None

    def counts(self, name: str = NAME) -> Any:
        return self.queues.describe(name).counts


def records_in(buffers: Sequence[Any]) -> list[Record]:
    records: list[Record] = []
    for buffer in buffers:
        data = memoryview(buffer)
        while data:
            size = read_header(data).size
            records += decode_batch(data[:size])
            data = data[size:]
    return records


def acquired(found: Acquisition) -> list[tuple[bytes | None, int]]:
    """Body and attempt of what was handed out, as a client finds it: by the ranges, among what the batches hold."""
    held = []
    for part in found.parts:
        assert part.error is None, part.error
        by_offset = {record.offset: record.value for record in records_in(part.buffers)}
        for first, last, attempt in part.acquired:
            held += [(by_offset[offset], attempt) for offset in range(first, last + 1)]
    return held


def bodies(found: Acquisition) -> list[bytes | None]:
    return [body for body, _ in acquired(found)]


def offsets(found: Acquisition) -> list[int]:
    return [offset for part in found.parts for first, last, _ in part.acquired for offset in range(first, last + 1)]
