"""Every API at every version in and around its range: answered, refused in an answer, or the connection is closed."""

import logging
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.broker.group.share_world import ShareNode
from tests.gateways.kafka.harness import connect, run, serving
from tests.gateways.kafka.test_every_api import error_codes

from headrace.broker.transaction.config import TransactionsConfig
from headrace.broker.transaction.coordinator import Coordinator
from headrace.gateways.kafka.context import AnyApi, PeerApi
from headrace.gateways.kafka.errors import ErrorCode
from headrace.gateways.kafka.gateway import GROUPS_SERVED, SERVED, SHARES_SERVED, TRANSACTIONS_SERVED
from headrace.gateways.kafka.listener import KafkaListener
from headrace.gateways.kafka.warning import LINES_MAX
from headrace.wire.kafka.frame import encode_request, read_correlation_id, read_response
from headrace.wire.kafka.messages.produce import ProduceRequest
from headrace.wire.kafka.registry import APIS

ALL_SERVED = SERVED + GROUPS_SERVED + TRANSACTIONS_SERVED + SHARES_SERVED
INT16_MIN, INT16_MAX = -(2**15), 2**15 - 1
PRODUCE, API_VERSIONS = 0, 18
ACKS_ALL = -1


def versions_around(api: AnyApi) -> list[int]:
    known = APIS[api.key]
    return [INT16_MIN, *range(-1, known.max_version + 3), INT16_MAX]


def is_answered(api: AnyApi, version: int) -> bool:
    """Whether the version's answer has a known form; the others can only close the connection."""
    known = APIS[api.key]
    if api.key == API_VERSIONS:
        return True
    lowest = 0 if api.key == PRODUCE else known.min_version
    return lowest <= version <= known.max_version


def frame_of(api: AnyApi, version: int) -> bytes:
    """A request of defaults. In a version without a table, the body is that of the nearest one."""
    known = APIS[api.key]
    if api.key == PRODUCE and 0 <= version < known.min_version:
        return struct.pack(">ihhihhii", 20, PRODUCE, version, 7, -1, ACKS_ALL, 1000, 0)
    nearest = min(max(version, known.min_version), known.max_version)
    request = ProduceRequest(acks=ACKS_ALL) if api.key == PRODUCE else known.codec.request()
    frame = bytearray(encode_request(api.key, nearest, 7, "test", request))
    struct.pack_into(">h", frame, 6, version)
    return bytes(frame)


@asynccontextmanager
async def whole_node() -> AsyncIterator[KafkaListener]:
    node = await ShareNode().start()
    coordinator = Coordinator(
        broker=node.broker,
        logs=node.logs,
        clock=node.clock,
        threads=node.sync_threads,
        config=TransactionsConfig(partitions=1),
        groups=node.groups,
    )
    await coordinator.start()
    async with serving(node.broker, groups=node.groups, shares=node.shares, transactions=coordinator) as gateway:
        yield gateway
    coordinator.abandon()
    node.abandon()


@pytest.mark.parametrize("api", ALL_SERVED, ids=lambda api: APIS[api.key].name)
def test_an_api_stands_every_version_in_and_around_its_range(api: AnyApi, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with whole_node() as gateway:
            for version in versions_around(api):
                client = await connect(gateway)
                client.send_bytes(frame_of(api, version))
                if not is_answered(api, version):
                    assert await client.closed() == b"", f"version {version}"
                    assert gateway.counters.connections_closed_for_cause["unsupported version"] > 0
                    continue
                frame = await client.frame()
                assert read_correlation_id(frame) == 7
                known = APIS[api.key]
                if api.key == API_VERSIONS and not known.min_version <= version <= known.max_version:
                    response = read_response(API_VERSIONS, 0, frame).value  # which every client can read
                elif version < known.min_version:
                    continue  # Produce 0 to 2, whose answers no table describes any more
                else:
                    response = read_response(api.key, version, frame).value
                if api.version_min <= version <= api.version_max:
                    assert ErrorCode.UNSUPPORTED_VERSION not in error_codes(response), f"version {version}"
                elif codes := error_codes(response):
                    assert set(codes) == {ErrorCode.UNSUPPORTED_VERSION}, f"version {version}"
                await client.close()

    with caplog.at_level(logging.WARNING):
        run(main())
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_what_no_rule_expected_closes_the_connection_and_its_log_lines_are_limited(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (api,) = (api for api in GROUPS_SERVED if api.key == 11)

    def break_down(*_: Any) -> Any:
        raise LookupError("neither serving nor refusing works")

    broken = PeerApi(key=11, version_min=0, version_max=9, serve=break_down, refuse=break_down)
    monkeypatch.setattr("headrace.gateways.kafka.gateway.GROUPS_SERVED", (broken,))

    async def main() -> None:
        async with whole_node() as gateway:
            for _ in range(5 * LINES_MAX):
                client = await connect(gateway)
                client.send_bytes(frame_of(api, 9))
                assert await client.closed() == b""
            assert gateway.counters.connections_closed_for_cause == {"internal error": 5 * LINES_MAX}

    with caplog.at_level(logging.WARNING):
        run(main())
    messages = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert messages.count("Kafka request failed") == LINES_MAX
    assert messages.count("Kafka request failed outside its handler") == LINES_MAX
    assert len(messages) == 2 * LINES_MAX
