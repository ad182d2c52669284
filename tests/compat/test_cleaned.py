"""A topic whose dead messages were cleaned away: clients read exactly the live ones, in order, at their offsets."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.compat.clients.every import CLIENTS, CONFLUENT
from tests.compat.clients.message import Client, Message
from tests.support.node import free_port

from headrace.app.config import NodeConfig, load
from headrace.app.node import Node
from headrace.model.ids import Offset

TOPIC = "cleaned"
COUNT = 300
LIVE = [0, 7, 8, 9, 77, 150, 151, 298]


def config(data: Path) -> NodeConfig:
    flags = {"data": str(data), "kafka.listen": f"127.0.0.1:{free_port()}", "http.listen": "127.0.0.1:0"}
    return load(flags={path: (path, text) for path, text in flags.items()}).config


class Keeper:
    """Knows that only some messages are live."""

    def __init__(self, end: Offset) -> None:
        self._end = end

    def limit(self) -> Offset:
        return self._end

    def live_count(self, start: Offset, end: Offset) -> int:
        return len(self.live_offsets(start, end))

    def live_offsets(self, start: Offset, end: Offset) -> Sequence[int]:
        return [offset for offset in LIVE if start <= offset < end]


async def fill_and_clean(node: Node, *, writes_on: bool) -> None:
    server = str(node.kafka_address)
    await node.broker.create_topic(TOPIC, partition_count=1, overrides={"segment.bytes": "16384"})
    for codec in ("none", "gzip", "lz4", "zstd", "snappy"):
        begin = node.broker.partition(TOPIC, 0).end_offset
        values = [b"%d " % (begin + number) + b"x" * 500 for number in range(COUNT // 5)]
        await asyncio.to_thread(CONFLUENT.write, server, TOPIC, [Message(value=value) for value in values], codec=codec)
    log = node.broker.partition(TOPIC, 0).log
    log.roll(now_ms=node.clock.wall_ms())
    before = log.size_bytes
    log.retainer = Keeper(log.end_offset)
    assert await node.logs.checkpoint(log)
    while await node.logs.clean(log):
        pass
    assert log.size_bytes < before
    if writes_on:
        await asyncio.to_thread(CONFLUENT.write, server, TOPIC, [Message(value=b"new")])


@pytest.mark.parametrize("writes_on", [False, True], ids=["idle", "written-on"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_clients_read_exactly_what_is_live_across_gaps(tmp_path: Path, client: Client, writes_on: bool) -> None:
    def read(server: str) -> list[list[tuple[int, Message]]]:
        # From the beginning, from inside a gap, and from inside a batch that was thinned out.
        return [client.read(server, TOPIC), client.read(server, TOPIC, offset=20), client.read(server, TOPIC, offset=8)]

    async def main() -> list[list[list[tuple[int, Message]]]]:
        node = Node(config(tmp_path / "data"))
        await node.start()
        try:
            await fill_and_clean(node, writes_on=writes_on)
            first = await asyncio.to_thread(read, str(node.kafka_address))
        finally:
            await node.stop()
        node = Node(config(tmp_path / "data"))
        await node.start()
        try:
            return [first, await asyncio.to_thread(read, str(node.kafka_address))]
        finally:
            await node.stop()

    expected = [*LIVE, *([COUNT] if writes_on else [])]
    for whole, later, inside in asyncio.run(main()):
        assert [offset for offset, _ in whole] == expected
        assert [offset for offset, _ in later] == [offset for offset in expected if offset >= 20]
        assert [offset for offset, _ in inside] == [offset for offset in expected if offset >= 8]
        for offset, message in whole:
            assert message.value is not None
            assert message.value == b"new" or message.value.startswith(b"%d " % offset)
