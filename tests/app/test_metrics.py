"""A real node in this process, asked over HTTP for its health and its metrics."""

import asyncio
import gc
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from headrace.app.config import load
from headrace.app.exposition import Exposition
from headrace.app.group_metrics import OTHER_GROUPS, write_groups
from headrace.app.health import LOOP_BLOCKED_MS, reasons
from headrace.app.loop_lag import LoopLag
from headrace.app.metrics import OTHER_TOPICS, TOPIC_SERIES_MAX, TopicSum, with_own_series
from headrace.app.node import Node
from headrace.app.queue_metrics import STATES
from headrace.broker.group.port import Caller, OffsetCommit
from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.log.commit import SyncTime
from headrace.log.damage import Damage
from headrace.model.errors import ConfigurationError, CorruptLogError
from headrace.model.ids import PartitionId
from headrace.model.message import Message

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(rf"({_NAME})(?:\{{({_LABEL}(?:,{_LABEL})*)\}})? (-?[0-9.e+-]+)")


def parse(text: str) -> dict[str, float]:
    """Samples by name and labels as written. Every line must be of the format, every family told before its samples."""
    samples: dict[str, float] = {}
    kinds: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# HELP "):
            assert len(line.split(" ", 3)) == 4
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds
            kinds[name] = kind
        else:
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            family = match[1] if match[1] in kinds else re.sub("_(bucket|sum|count)$", "", match[1])
            assert family in kinds, line
            assert (kinds[family] == "counter") == match[1].endswith("_total"), line
            key = line.rpartition(" ")[0]
            assert key not in samples
            samples[key] = float(match[3])
    return samples


async def fetch(node: Node, path: str) -> tuple[int, str]:
    def blocking() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://{node.http_address}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(blocking)


def with_node(data: Path, work: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        flags = {
            "data": ("--data", str(data)),
            "kafka.listen": ("--kafka", "127.0.0.1:0"),
            "http.listen": ("--http", "127.0.0.1:0"),
        }
        node = Node(load(flags=flags).config)
        await node.start()
        try:
            await work(node)
        finally:
            await node.stop()

    threshold = gc.get_threshold()
    try:
        asyncio.run(run())
    finally:
        # A node keeps the collector out of its way; the tests that follow want it back.
        gc.unfreeze()
        gc.set_threshold(*threshold)


async def send(node: Node, topic: str, count: int) -> None:
    await node.broker.ensure_topic(topic)
    async with StreamClient(str(node.kafka_address)) as client:
        for number in range(count):
            await client.produce(topic, [Outgoing(f"message {number}".encode())])


def test_a_nodes_metrics_are_in_the_format_and_follow_what_it_does(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        _, text = await fetch(node, "/metrics")
        before = parse(text)
        assert before["headrace_topics"] == 0
        await send(node, "orders", 5)
        await fetch(node, "/nowhere")
        status, text = await fetch(node, "/metrics")
        assert status == 200
        after = parse(text)
        assert after['headrace_topic_end_offset{topic="orders"}'] == 5
        assert after['headrace_topic_partitions{topic="orders"}'] == 1
        assert after['headrace_topic_size_bytes{topic="orders"}'] == after["headrace_log_size_bytes"] > 5 * 61
        assert after['headrace_kafka_requests_total{api="Produce"}'] >= 1
        assert after["headrace_kafka_received_bytes_total"] > before["headrace_kafka_received_bytes_total"]
        assert after["headrace_log_journal_syncs_total"] >= 1
        syncs = after["headrace_log_journal_syncs_total"]
        assert after['headrace_log_sync_seconds_count{lane="journal"}'] == syncs
        assert after['headrace_log_sync_seconds_bucket{lane="journal",le="+Inf"}'] == syncs
        assert after['headrace_http_requests_total{route="none",status="404"}'] == 1
        assert after['headrace_http_requests_total{route="/metrics",status="200"}'] == 1
        assert after["headrace_log_disk_free_bytes"] > 0
        assert after["process_resident_memory_bytes"] > 1024 * 1024
        assert after["process_cpu_seconds_total"] > 0
        assert after["headrace_uptime_seconds"] >= 0

    with_node(tmp_path / "data", work)


def test_a_queues_series_follow_its_messages(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await node.queues.send("orders", [Message(b"a"), Message(b"b"), Message(b"c", delay_ms=60_000)])
        (message,) = await node.queues.receive("orders", count_max=1).promise
        samples = parse((await fetch(node, "/metrics"))[1])
        assert [samples[f'headrace_queue_messages{{queue="orders",state="{state}"}}'] for state in STATES] == [1, 1, 1]
        assert samples['headrace_queue_messages_total{queue="orders",event="sent"}'] == 3
        await node.queues.acknowledge("orders", [message.receipt])
        samples = parse((await fetch(node, "/metrics"))[1])
        assert samples['headrace_queue_messages_total{queue="orders",event="acknowledged"}'] == 1
        assert samples['headrace_queue_messages{queue="orders",state="leased"}'] == 0
        assert samples["headrace_queues"] == 1

    with_node(tmp_path / "data", work)


def test_a_groups_series_follow_its_offsets_and_those_above_the_limit_share_one(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        await send(node, "t", 5)
        for group, offset in (("a", 2), ("b", 5), ("c", 0), ("d", 1)):
            assert await node.groups.commit(Caller(group_id=group), [OffsetCommit("t", 0, offset)]) == [None]
        out = Exposition()
        await write_groups(out, node.groups, names_max=2)
        samples = parse(out.encode().decode())
        assert samples['headrace_groups{kind="classic",state="Empty"}'] == 4
        lags = [samples[f'headrace_group_lag_messages{{group="{name}"}}'] for name in ("a", "b", OTHER_GROUPS)]
        assert lags == [3, 0, 9]
        assert samples['headrace_group_members{group="a"}'] == 0

    with_node(tmp_path, work)


def test_every_series_is_documented(tmp_path: Path) -> None:
    documentation = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")

    async def work(node: Node) -> None:
        _, text = await fetch(node, "/metrics")
        names = re.findall(r"# TYPE (\S+)", text)
        assert names
        assert [name for name in names if f"`{name}`" not in documentation] == []
        assert [
            name for name in re.findall(r"`((?:headrace|process|python)_\w+)", documentation) if name not in names
        ] == []

    with_node(tmp_path / "data", work)


def test_a_node_is_unhealthy_for_each_of_its_reasons_and_healthy_again(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        assert await codes(node) == []
        await send(node, "orders", 1)
        topic = node.broker.topic("orders")

        node.logs.space.is_full = True
        assert await codes(node) == ["disk_full"]
        node.logs.space.is_full = False

        log = node.logs.logs[PartitionId(topic.id, 0)]
        log.broken = OSError("a disk that failed")
        assert await codes(node) == ["partition_offline"]
        assert "orders-0" in (await fetch(node, "/health"))[1]
        samples = parse((await fetch(node, "/metrics"))[1])
        assert samples["headrace_log_partitions_offline"] == 1
        log.broken = None

        refused = PartitionId(topic.id, 1)
        node.logs.refused[refused] = CorruptLogError(file="f", position=0, expected=1, found=2, what="checksum")
        assert await codes(node) == ["partition_offline"]
        del node.logs.refused[refused]

        damage = CorruptLogError(file=log.active.path, position=0, expected=1, found=2, what="checksum")
        node.logs.damage.note(damage)
        assert await codes(node) == ["partition_damaged"]
        assert "orders-0" in (await fetch(node, "/health"))[1]
        assert parse((await fetch(node, "/metrics"))[1])["headrace_log_partitions_damaged"] == 1
        log.broken = damage
        assert await codes(node) == ["partition_offline"], "one that is offline is not named twice"
        log.broken = None
        node.logs.damage = Damage()

        assert await codes(node) == []

    async def codes(node: Node) -> list[str]:
        """The reasons of an answer that was not touched by a machine that stood still, which is a reason as well."""
        while True:
            status, text = await fetch(node, "/health")
            found = re.findall(r'"code":"(\w+)"', text)
            assert (status, found[:1]) in [(200, []), (503, ["unhealthy"])]
            if "loop_blocked" not in found:
                return found[1:]

    with_node(tmp_path / "data", work)


def test_a_blocked_loop_is_a_reason(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        lag = LoopLag(node.clock)
        assert reasons(broker=node.broker, logs=node.logs, lag=lag) == []
        lag.last_ms = LOOP_BLOCKED_MS
        assert [found.code for found in reasons(broker=node.broker, logs=node.logs, lag=lag)] == ["loop_blocked"]

    with_node(tmp_path / "data", work)


def test_an_http_address_that_is_taken_is_said_with_its_flag(tmp_path: Path) -> None:
    async def work(node: Node) -> None:
        flags = {
            "data": ("--data", str(tmp_path / "second")),
            "kafka.listen": ("--kafka", "127.0.0.1:0"),
            "http.listen": ("--http", str(node.http_address)),
        }
        with pytest.raises(ConfigurationError, match=rf"{node.http_address} .*--http"):
            await Node(load(flags=flags).config).start()

    with_node(tmp_path / "data", work)


def _sum(count: int) -> TopicSum:
    made = TopicSum()
    made.partitions, made.end_offset, made.size_bytes = 1, count, count * 10
    return made


def test_topics_above_the_limit_share_one_series_that_no_topic_can_have() -> None:
    shown = with_own_series({f"topic-{number:05}": _sum(number) for number in range(TOPIC_SERIES_MAX + 3)})
    assert len(shown) == TOPIC_SERIES_MAX + 1
    rest = shown[OTHER_TOPICS]
    assert rest.partitions == 3
    assert rest.end_offset == sum(range(TOPIC_SERIES_MAX, TOPIC_SERIES_MAX + 3))
    assert rest.size_bytes == rest.end_offset * 10
    assert set(with_own_series({"a": _sum(1)})) == {"a"}


def test_labels_are_escaped() -> None:
    out = Exposition()
    out.family("a", "gauge", "Help.", [({"b": 'x"y\\z\n'}, 1)])
    assert out.encode().endswith(b'a{b="x\\"y\\\\z\\n"} 1\n')


def test_a_sync_is_counted_in_the_bucket_whose_bound_it_does_not_pass() -> None:
    time = SyncTime()
    for elapsed_us in (0, 100, 101, 1_000, 99_000_000):
        time.add(elapsed_us)
    out = Exposition()
    out.histogram("sync_seconds", "Help.", [({}, time)])
    samples = parse(out.encode().decode())
    assert samples['sync_seconds_bucket{le="0.0001"}'] == 2
    assert samples['sync_seconds_bucket{le="0.00025"}'] == 3
    assert samples['sync_seconds_bucket{le="0.001"}'] == 4
    assert samples['sync_seconds_bucket{le="10"}'] == 4
    assert samples['sync_seconds_bucket{le="+Inf"}'] == samples["sync_seconds_count"] == 5
    assert samples["sync_seconds_sum"] == pytest.approx(99.001201)
