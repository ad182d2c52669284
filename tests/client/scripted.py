"""A broker that answers from a script, for faults that a healthy node does not show."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any

from headrace.model.address import Address
from headrace.wire.kafka.frame import encode_response, read_request, read_request_header
from headrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.registry import APIS


class Fault(Enum):
    CLOSE = "close the connection instead of answering"
    SILENCE = "never answer"


class Raw(bytes):
    """Bytes to send as they are."""


Answer = Any
Script = Callable[[Any], Answer]


class ScriptedBroker:
    """Answers ApiVersions, Metadata and InitProducerId for one topic, and what the script says for the rest."""

    def __init__(self, scripts: dict[int, Script], *, partition_count: int = 1) -> None:
        self.scripts = scripts
        self.partition_count = partition_count
        self.requests: list[tuple[int, Any]] = []
        self.connection_count = 0
        self.address = Address("127.0.0.1", 0)

    def of(self, api_key: int) -> list[Any]:
        return [request for key, request in self.requests if key == api_key]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = bytearray(await reader.readexactly(size))
                header = read_request_header(frame)
                request = read_request(header, frame)
                self.requests.append((header.api_key, request))
                answer = self._answer(header.api_key, request)
                if answer is Fault.CLOSE:
                    return
                if answer is Fault.SILENCE:
                    continue
                if not isinstance(answer, Raw):
                    answer = encode_response(header.api_key, header.api_version, header.correlation_id, answer)
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, api_key: int, request: Any) -> Answer:
        if api_key in self.scripts:
            return self.scripts[api_key](request)
        if api_key == 18:
            keys = (
                ApiVersion(api_key=a.key, min_version=a.min_version, max_version=a.stable_version)
                for a in APIS.values()
            )
            return ApiVersionsResponse(api_keys=tuple(keys))
        if api_key == 3:
            return self.metadata()
        if api_key == 22:
            return InitProducerIdResponse(producer_id=7, producer_epoch=0)
        raise AssertionError(f"no script for API {api_key}")

    def metadata(self) -> MetadataResponse:
        partitions = tuple(
            MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=(1,), isr_nodes=(1,))
            for index in range(self.partition_count)
        )
        return MetadataResponse(
            brokers=(MetadataResponseBroker(node_id=1, host=self.address.host, port=self.address.port),),
            cluster_id="scripted",
            controller_id=1,
            topics=(MetadataResponseTopic(name="orders", partitions=partitions),),
        )


@asynccontextmanager
async def scripted(scripts: dict[int, Script], *, partition_count: int = 1) -> AsyncIterator[ScriptedBroker]:
    broker = ScriptedBroker(scripts, partition_count=partition_count)
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    broker.address = Address(*server.sockets[0].getsockname()[:2])
    try:
        yield broker
    finally:
        server.close()
