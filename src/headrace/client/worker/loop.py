"""A loop for a program that ends although something in it does not.

`asyncio.run` waits without end for a task that does not heed its cancellation. A handler can be such a task, and a
worker that was told to stop for the second time has to stop.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")


def run_to_its_end(work: Coroutine[Any, Any, T], *, courtesy_s: float) -> T:
    """Run something in a loop of its own. What is left then is cancelled, and not waited for for long."""
    loop = uvloop.new_event_loop()
    try:
        result: T = loop.run_until_complete(work)
        return result
    finally:
        loop.run_until_complete(_cancel_the_others(courtesy_s))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _cancel_the_others(courtesy_s: float) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=courtesy_s)
