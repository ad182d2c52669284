"""A node that is killed while clients send to it and receive from it."""

import asyncio
from collections import Counter
from pathlib import Path

from tests.support.node import NodeProcess, free_port

from headrace.client.queue.client import AsyncClient
from headrace.client.settings import QueueClientConfig

SENDERS = 20
MESSAGES_EACH = 60
KILLS = 3
PERSISTENT = QueueClientConfig(retry_pause_ms=5, retry_pause_ms_max=100, deadline_ms=60_000)


def test_what_is_sent_while_a_node_is_killed_is_there_once(tmp_path: Path) -> None:
    http = f"127.0.0.1:{free_port()}"
    node = NodeProcess(tmp_path / "data", arguments=("--http", http))
    node.start()

    async def main() -> None:
        async with AsyncClient(http, config=PERSISTENT) as client:
            queue = client.queue("orders")
            await queue.create(partitions=3)
            sent = 0

            async def send(sender: int) -> None:
                nonlocal sent
                for number in range(MESSAGES_EACH):
                    await queue.send(f"{sender}-{number}")
                    sent += 1

            async with asyncio.TaskGroup() as group:
                for sender in range(SENDERS):
                    group.create_task(send(sender))
                for kill in range(1, KILLS + 1):
                    while sent < kill * SENDERS * MESSAGES_EACH // (KILLS + 1):  # noqa: ASYNC110 - counted by tasks
                        await asyncio.sleep(0.001)
                    await asyncio.to_thread(node.kill)
                    await asyncio.to_thread(node.start)

            received = Counter([m.text async for m in queue.messages(batch=100, wait=0.5, until_empty=True)])
            assert received == Counter(f"{s}-{n}" for s in range(SENDERS) for n in range(MESSAGES_EACH))

    try:
        asyncio.run(main())
    finally:
        node.clean_up()
