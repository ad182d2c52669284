"""One conversation of the queue client with a real node."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tests.cli.running import RunningNode

from headrace.client.queue.client import AsyncClient

T = TypeVar("T")


def run(node: RunningNode, work: Callable[[AsyncClient], Awaitable[T]]) -> T:
    async def main() -> T:
        async with AsyncClient(node.ready["http"]) as client:
            return await work(client)

    return asyncio.run(main())
