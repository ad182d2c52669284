"""Stored bytes by offset, and where to go on after them."""

import asyncio

from tests.cli.running import RunningNode

from headrace.client.raw_fetch import Position, RawFetcher, next_offset
from headrace.client.router import ClientConfig, Router
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing, TopicPartition
from headrace.host.clock import SystemClock
from headrace.host.rand import SystemRand
from headrace.host.transport import TcpTransport
from headrace.model.address import parse_address
from headrace.wire.kafka.records import Record, decode_batch, encode_batch


def test_the_next_offset_is_behind_the_last_batch_that_is_whole() -> None:
    first = encode_batch([Record(1, None, b"a")] * 3, base_offset=10)
    data = first + encode_batch([Record(1, None, b"b")] * 2, base_offset=13)
    assert next_offset(data, 0) == 15
    assert next_offset(data[:-1], 0) == 13
    assert next_offset(data, 40) == 40
    assert next_offset(first[:-1], 11) == 11
    assert next_offset(data[:20], 11) == 11
    assert next_offset(b"", 7) == 7
    assert next_offset(bytes(100), 7) == 7  # no batch has a size of 12 bytes


def test_partitions_answer_with_their_bytes_or_that_an_offset_is_not_theirs(node: RunningNode) -> None:
    async def main() -> None:
        async with StreamClient(node.server) as client:
            await client.admin.create_topic("raw", partition_count=3)
            await client.produce("raw", [Outgoing(b"a", partition=0), Outgoing(b"b", partition=1)])
        router = Router(
            [parse_address(node.server)],
            ClientConfig(),
            clock=SystemClock(),
            rand=SystemRand(),
            transport=TcpTransport(),
        )
        positions = {TopicPartition("raw", n): Position(99 if n == 1 else 0, 1000) for n in range(3)}
        answers = await RawFetcher(router).fetch(positions, committed=False, wait_ms=0, bytes_max=10_000)
        await router.close()
        full, wrong, empty = sorted(answers)
        assert [record.value for record in decode_batch(full.records)] == [b"a"]
        assert (full.next_offset, full.readable_end, full.error) == (1, 1, None)
        assert wrong.error is not None
        assert (len(empty.records), empty.next_offset, empty.readable_end) == (0, 0, 0)

    asyncio.run(main())
