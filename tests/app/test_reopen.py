"""An operator reopens a partition of a running node: over HTTP, with the Python client, and on the command line."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.app.test_metrics import parse, with_node
from tests.cli.running import HEADRACE, clean_environment

from headrace.app.node import Node
from headrace.client.queue.client import AsyncClient
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.model.address import Address
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionId


async def broken(node: Node) -> None:
    """A topic with two messages, and an error in it that no rule expects."""
    async with StreamClient(str(node.kafka_address)) as client:
        await client.admin.create_topic("orders", partition_count=2)
        for text in (b"a", b"b"):
            await client.produce("orders", [Outgoing(text, partition=1)])
    log = node.logs.logs[PartitionId(node.broker.topic("orders").id, 1)]
    node.logs.stop_unexpectedly(log, RuntimeError("planted"))


async def post(address: Address, path: str) -> tuple[int, dict[str, object]]:
    reader, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(f"POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


def test_an_administrator_reopens_a_partition_over_http(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await broken(node)
        path = "/topics/orders/partitions/1/reopen"
        status, problem = await post(node.http_address, path)
        assert (status, problem["code"]) == (403, "administrators_only")
        assert str(node.http_admin_address) in str(problem["detail"])
        status, answer = await post(node.http_admin_address, path)
        assert (status, answer["topic"], answer["partition"], answer["end_offset"]) == (200, "orders", 1, 2)
        assert node.broker.partition("orders", 1).epoch == answer["epoch"]
        status, problem = await post(node.http_admin_address, path)
        assert (status, problem["code"]) == (400, "invalid_request")
        assert (await post(node.http_admin_address, "/topics/orders/partitions/2/reopen"))[0] == 404
        assert (await post(node.http_admin_address, "/topics/nothing/partitions/0/reopen"))[0] == 404

    with_node(tmp_path / "data", work)


def test_a_partition_that_stays_offline_answers_why(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await broken(node)
        log = node.logs.logs[PartitionId(node.broker.topic("orders").id, 1)]
        segment = Path(log.active.path)
        node.logs.files.close_under(log.directory)
        aside = await asyncio.to_thread(segment.rename, segment.with_suffix(".aside"))
        status, problem = await post(node.http_admin_address, "/topics/orders/partitions/1/reopen")
        assert (status, problem["code"]) == (503, "partition_offline")
        assert "orders-1 stays offline" in str(problem["detail"])
        await asyncio.to_thread(aside.rename, segment)
        async with AsyncClient(str(node.http_admin_address)) as client:
            reopened = await client.reopen_partition("orders", 1)
            assert (reopened.partition, reopened.end_offset) == (1, 2)
            with pytest.raises(HeadraceError, match="not offline"):
                await client.reopen_partition("orders", 1)

    with_node(tmp_path / "data", work)


def test_the_command_line_reopens_a_partition_and_says_why_it_cannot(tmp_path: Path) -> None:
    async def headrace(node: Node, *arguments: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *HEADRACE,
            *("topic", "reopen", *arguments, "--admin", str(node.http_admin_address)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=clean_environment(),
        )
        out, err = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode is not None
        return process.returncode, out.decode(), " ".join(err.decode().split())

    async def work(node: Node) -> None:
        await broken(node)
        code, out, _ = await headrace(node, "orders", "1", "--json")
        assert code == 0
        assert json.loads(out)["end_offset"] == 2
        code, out, err = await headrace(node, "orders", "1")
        assert (code, out) == (1, "")
        assert "not offline" in err

    with_node(tmp_path / "data", work)


def test_an_unexpected_error_is_told_by_health_and_counted(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await broken(node)
        reader, writer = await asyncio.open_connection(node.http_address.host, node.http_address.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        body = (await reader.read()).partition(b"\r\n\r\n")[2].decode()
        writer.close()
        samples = parse(body)
        assert samples["headrace_log_unexpected_errors_total"] == 1
        assert samples["headrace_log_partitions_offline"] == 1
        status, health = await get(node.http_address, "/health")
        assert status == 503
        assert "orders-1" in str(health)
        assert "planted" in str(health)
        assert "headrace topic reopen" in str(health)
        await post(node.http_admin_address, "/topics/orders/partitions/1/reopen")
        assert (await get(node.http_address, "/health"))[0] == 200

    async def get(address: Address, path: str) -> tuple[int, dict[str, object]]:
        reader, writer = await asyncio.open_connection(address.host, address.port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        return int(head.split()[1]), json.loads(body)

    with_node(tmp_path / "data", work)
