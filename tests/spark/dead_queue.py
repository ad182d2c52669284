"""A queue whose messages die as their bodies say, by a real worker."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

from tests.support.wait import wait_until

from headrace.client.queue.client import AsyncClient
from headrace.client.queue.message import AsyncMessage, Reject
from headrace.client.queue.outgoing import OutgoingMessage
from headrace.client.queue.sync import Client
from headrace.client.worker.config import WorkerConfig
from headrace.client.worker.runner import Stop
from headrace.client.worker.worker import Worker

CRASHES = "crash"


class HandlerCrashedError(Exception):
    pass


async def _handle(message: AsyncMessage) -> None:
    reason = message.json()["reason"]
    if reason == CRASHES:
        raise HandlerCrashedError
    if reason:
        raise Reject(reason)


def dead_name(queue: str) -> str:
    return f"{queue}-dead"


def bury(http: str, queue: str, reasons: Sequence[str], *, partitions: int = 1) -> None:
    """Send one message for each reason, and have a worker fail each of them once, which is once too often."""
    with Client(http) as client:
        client.queue(queue).create(partitions=partitions, max_deliveries=1, lease=30)
        client.queue(queue).send_many(
            OutgoingMessage(
                body={"n": number, "reason": reason},
                key=f"key-{number % 3}",
                headers={"task": "brew" if number % 2 else "pour"},
            )
            for number, reason in enumerate(reasons)
        )
        died = sum(map(bool, reasons))
        asyncio.run(_work(http, queue, died))
        dead = dead_name(queue)
        wait_until(
            lambda: dead in client.queues() and client.queue(dead).describe().counts.visible == died,
            deadline_s=30,
            what=f"{died} dead letters of {queue}",
        )


async def _work(http: str, queue: str, died: int) -> None:
    async with AsyncClient(http) as client:
        stop = Stop()
        worker = Worker(_handle, WorkerConfig(queue=queue, wait_s=0.2))
        serving = asyncio.create_task(worker.serve(client, stop))

        async def all_done() -> None:
            while True:
                counts = (await client.queue(queue).describe()).counts
                if counts.dead_lettered == died and not counts.visible and not counts.leased:
                    return
                await asyncio.sleep(0.02)

        await asyncio.wait_for(all_done(), 30)
        stop.ask()
        await serving


def numbers(http: str, queue: str) -> Counter[int]:
    """Which messages are in a queue, by their number, and how often."""
    found: Counter[int] = Counter()
    with Client(http) as client:
        after: str | None = None
        while True:
            page = client.queue(queue).browse(limit=1000, after=after)
            found.update(json.loads(message.body)["n"] for message in page.messages)
            after = page.next
            if after is None:
                return found
