"""What tests of queues say often, in few words."""

from collections.abc import Sequence
from typing import Any

from tests.broker.node import Node

from headrace.broker.queue.port import Release
from headrace.model.errors import HeadraceError
from headrace.model.message import Message, Received, Sent
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle

NAME = "orders"


class QueueWorld:
    """A node with one queue, spoken to as a gateway does."""

    def __init__(self, node: Node) -> None:
        self.node = node

    async def start(self, *, partitions: int = 1, **config: Any) -> "QueueWorld":
        await self.node.start()
        await self.node.queues.create(NAME, QueueConfig(**config), partition_count=partitions)
        return self

    @property
    def queues(self) -> Any:
        return self.node.queues

    async def send(self, *bodies: bytes, queue: str = NAME, **options: Any) -> list[Sent]:
        outcomes = await self.node.queues.send(queue, [Message(body, **options) for body in bodies])
        assert all(isinstance(outcome, Sent) for outcome in outcomes), outcomes
        return outcomes  # type: ignore[return-value]

    async def receive(self, count_max: int = 10, *, queue: str = NAME, **options: Any) -> list[Received]:
        receive = self.node.queues.receive(queue, count_max=count_max, **options)
        await settle()
        if not receive.promise.done():
            return await receive.promise
        return receive.promise.result()

    async def bodies(self, count_max: int = 10, **options: Any) -> list[bytes]:
        return [message.body for message in await self.receive(count_max, **options)]

    async def acknowledge(
        self, *messages: Received, queue: str = NAME, may_be_late: bool = False
    ) -> list[HeadraceError | None]:
        receipts = [message.receipt for message in messages]
        return await self.node.queues.acknowledge(queue, receipts, may_be_late=may_be_late)

    async def release(self, *messages: Received, delay_ms: int | None = None) -> list[HeadraceError | None]:
        return await self.node.queues.release(NAME, [Release(message.receipt, delay_ms) for message in messages])

    def counts(self, queue: str = NAME) -> Any:
        return self.node.queues.describe(queue).counts


def bodies_of(messages: Sequence[Received]) -> list[bytes]:
    return [message.body for message in messages]
