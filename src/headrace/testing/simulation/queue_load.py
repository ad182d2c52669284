"""Senders and workers of queues with each guarantee, over REST and SQS.

A send whose answer is lost is repeated with its deduplication id where the queue has them, and left open where not.
Workers acknowledge most of what they get, some of it too late, and forget the rest, as workers that die do.
"""

import asyncio

from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.testing.history import Delivered, Outcome, Queue
from headrace.testing.simulation.client import LoadClient, World
from headrace.testing.simulation.door import LEASE_S, CallRefusedError, Door, Taken, UnclearError, open_door

_LASTING = {"max_deliveries": None}
_FORGOTTEN = 0.1  # of what workers get
_DAWDLED = 0.2  # of the rest: it takes up to three leases, and is acknowledged all the same
_RETRY_MS = 200.0

_SETTINGS: dict[Queue, dict[str, object] | None] = {
    Queue(name="once", exactly_once=True, deduplicated=True): {"guarantee": "exactly_once", **_LASTING},
    Queue(name="least", deduplicated=True): {"guarantee": "at_least_once", **_LASTING},
    Queue(name="most", at_most_once=True, deduplicated=True): {"guarantee": "at_most_once", **_LASTING},
    Queue(name="keyed", by_key=True, deduplicated=True): {"ordered": True, **_LASTING},
    Queue(name="standard", quiet_after_s=LEASE_S): None,
    Queue(name="ordered.fifo", by_key=True, deduplicated=True): None,
}
QUEUES = tuple(_SETTINGS)


def door_of(queue: Queue, at: Address, clock: Clock, transport: Transport) -> Door:
    return open_door(queue, _SETTINGS[queue], at, clock, transport)


class QueueSender(LoadClient):
    def __init__(self, name: str, world: World, number: int, queue: Queue) -> None:
        super().__init__(name, world, number)
        self._queue = queue
        self._door = door_of(queue, world.http, self.clock, self.transport)

    async def run(self) -> None:
        number = 0
        while self.is_sending:
            body = f"{self.name}-{number}"
            call = self.history.send(self._queue.name, body, sender=self.name, number=number)
            outcome = await self._send(body)
            self.history.answer(call, outcome)
            self.told(body, outcome)
            number += 1
            await self.rest()

    async def _send(self, body: str) -> Outcome:
        while True:
            try:
                await self._door.send(body, key=self.name)
            except UnclearError:
                if not self._queue.deduplicated:
                    return "maybe"
                await self.clock.sleep(_RETRY_MS)
            except CallRefusedError as refusal:
                self.history.fail(f"{self.name}: {body} was refused: {refusal}")
                return "maybe"
            else:
                return "yes"


class QueueWorker(LoadClient):
    """Receives and acknowledges; forgets some as long as there are faults. `is_empty`: all was worked off."""

    def __init__(self, name: str, world: World, number: int, queue: Queue) -> None:
        super().__init__(name, world, number)
        self._queue = queue
        self._door = door_of(queue, world.http, self.clock, self.transport)
        self.is_empty = False

    async def run(self) -> None:
        while self.is_working:
            for delivery, receipt in await self._take(self.chance.choice((1, 3, 10))):
                if self._queue.at_most_once:
                    continue
                if self.is_sending and self.chance.random() < _FORGOTTEN:
                    continue
                if self.is_sending and self.chance.random() < _DAWDLED:
                    await asyncio.sleep(self.chance.uniform(0.0, 3.0 * LEASE_S))
                await self._finish(delivery, receipt)
            if self.is_sending:
                await self.rest()
            else:
                self.is_empty = await self._has_nothing()
                await self.clock.sleep(_RETRY_MS)

    async def _take(self, count: int) -> list[tuple[Delivered, str]]:
        asked, asked_s = self.history.now(), self.history.now_s()
        try:
            messages = await self._door.receive(count)
        except UnclearError:
            await self.clock.sleep(_RETRY_MS)
            return []
        except CallRefusedError as refusal:
            self.history.fail(f"{self.name}: a receive was refused: {refusal}")
            await self.clock.sleep(_RETRY_MS)
            return []
        return [(self._note(one, asked, asked_s), one.receipt) for one in messages]

    def _note(self, one: Taken, asked: int, asked_s: float) -> Delivered:
        self.told("got", one.body, one.attempt)
        return self.history.deliver(
            self._queue.name, one.body, message_id=one.message_id, attempt=one.attempt, asked=asked, asked_s=asked_s
        )

    async def _finish(self, delivery: Delivered, receipt: str) -> None:
        call = self.history.acknowledge(delivery)
        try:
            await self._door.acknowledge(receipt)
        except UnclearError:
            return
        except CallRefusedError:
            self.history.answer(call, "no")  # its lease was over
        else:
            self.history.answer(call, "yes")
        self.told("done", delivery.body, call.outcome)

    async def _has_nothing(self) -> bool:
        try:
            return await self._door.left_count() == 0
        except (UnclearError, CallRefusedError):
            return False
