"""headrace's own control entries lie among the messages of a log, and no client sees them.

They are control batches as Kafka has for the ends of transactions, with record types 100 to 102 of our own. Clients
cannot write them, so a node runs here in the test's own process and they are appended under its partition.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from tests.compat.clients.every import CLIENTS, CONFLUENT
from tests.compat.clients.message import Client, Message
from tests.support.node import NodeProcess, free_port
from tests.support.wire import Wire

from headrace.app.config import NodeConfig, load
from headrace.app.node import Node
from headrace.log.partition_log import Incoming
from headrace.model.batch import read_header
from headrace.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.records import encode_control_batch

INVALID_RECORD = 87
PRODUCE = 0
TOPIC = "mixed"
KINDS = (100, 101, 102)
T = TypeVar("T")


def config(data: Path) -> NodeConfig:
    flags = {"data": str(data), "kafka.listen": f"127.0.0.1:{free_port()}", "http.listen": "127.0.0.1:0"}
    return load(flags={path: (path, text) for path, text in flags.items()}).config


class Reader:
    """Somebody who waits at the end of a partition."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


async def append_control(node: Node, kind: int, size: int) -> None:
    """Write one control entry as the node itself will, and wait until it is committed."""
    partition = node.broker.partition(TOPIC, 0)
    data = encode_control_batch(kind, b"\x00" * size, timestamp_ms=node.clock.wall_ms())
    incoming = Incoming(read_header(data), memoryview(data))
    log = partition.log
    base = log.end_offset
    log.append([incoming], epoch=partition.epoch, now_ms=node.clock.wall_ms())
    node.logs.committer.commit(log, base, [incoming.data], len(data))
    reader = Reader()
    partition.waiters.add(reader)
    async with asyncio.timeout(10):
        while partition.high_watermark <= base:
            await reader.woken.wait()
            reader.woken.clear()
    partition.waiters.discard(reader)


async def fill(node: Node) -> list[tuple[int, bytes]]:
    """Messages with control entries before, between, in a long row, and after them. Returns offsets and values."""
    server = str(node.kafka_address)
    await node.broker.create_topic(TOPIC, partition_count=1)
    expected: list[tuple[int, bytes]] = []

    async def messages(count: int, codec: str) -> None:
        values = [b"%d-%d" % (len(expected), number) for number in range(count)]
        begin = node.broker.partition(TOPIC, 0).end_offset
        write = [Message(value=value) for value in values]
        await asyncio.to_thread(CONFLUENT.write, server, TOPIC, write, codec=codec)
        expected.extend((begin + at, value) for at, value in enumerate(values))

    for kind in KINDS:
        await append_control(node, kind, 20)
    for codec in ("none", "gzip", "zstd"):
        await messages(7, codec)
        for kind in KINDS:
            await append_control(node, kind, 0)
        await messages(1, codec)
    # More than one fetch holds, so that some answers have nothing but control entries in them.
    for _ in range(40):
        await append_control(node, 101, 50_000)
    await messages(3, "lz4")
    await append_control(node, 102, 20)
    return expected


def with_node(tmp_path: Path, act: Callable[[str], T]) -> tuple[list[tuple[int, bytes]], T]:
    async def run() -> tuple[list[tuple[int, bytes]], T]:
        node = Node(config(tmp_path / "data"))
        await node.start()
        try:
            expected = await fill(node)
            return expected, await asyncio.to_thread(act, str(node.kafka_address))
        finally:
            await node.stop()

    return asyncio.run(run())


@pytest.mark.parametrize("committed", [False, True], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_clients_skip_private_control_entries_and_go_on(tmp_path: Path, client: Client, committed: bool) -> None:
    def read(server: str) -> list[list[tuple[int, Message]]]:
        whole = client.read(server, TOPIC, committed=committed)
        # From an offset that a control entry has, too.
        return [whole, client.read(server, TOPIC, offset=1, committed=committed)]

    expected, (whole, later) = with_node(tmp_path, read)
    assert [(offset, one.value) for offset, one in whole] == expected
    assert [(offset, one.value) for offset, one in later] == expected


@pytest.mark.parametrize("kind", [0, 1, *KINDS])
def test_a_control_entry_from_a_client_is_refused(node: NodeProcess, topic: str, kind: int) -> None:
    CONFLUENT.write(node.server, topic, [Message(value=b"before")])
    records = bytes(encode_control_batch(kind, b"forged", timestamp_ms=1_700_000_000_000))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=(TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=0, records=records),)),),
    )
    with Wire(node.server) as wire:
        answer = wire.ask(PRODUCE, 9, request)
    assert answer.responses[0].partition_responses[0].error_code == INVALID_RECORD
    CONFLUENT.write(node.server, topic, [Message(value=b"after")])
    assert [(offset, one.value) for offset, one in CONFLUENT.read(node.server, topic)] == [
        (0, b"before"),
        (1, b"after"),
    ]
