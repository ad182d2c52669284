"""The bare sink: a broker-shaped hole, which shows what the client alone can do.

It answers every Produce at once and looks at no more of it than the twelve bytes that hold length, API, version and
correlation id; the rest is received and forgotten. It answers every Fetch at once with one batch made beforehand, into
which only the correlation id and the offset are written. So a client's rate against the sink is the client's own
ceiling on this machine, with the kernel's loopback included: the same that it pays with any broker.

One blocking thread for each connection, and two calls of the kernel for a request that has arrived: there is no shorter
way between receiving and answering. The answers at the start of a connection (ApiVersions, Metadata, ListOffsets, ...)
are encoded with headrace's codec, once in a run.

The topic has one partition. Run as `python -m benchmarks.sink --size 1024`; the first line printed is the address.
"""

import argparse
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable
from functools import cache, partial
from typing import Any
from uuid import UUID

from headrace.wire.kafka import fetch, produce
from headrace.wire.kafka.frame import encode_response, read_request, read_request_header
from headrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from headrace.wire.kafka.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdResponse
from headrace.wire.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.wire.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.wire.kafka.records import Record, encode_batch

TOPIC = "bench"
TOPIC_ID = UUID(int=1)
NODE_ID = 1
# The stream of a Fetch never ends; the client stops when it has enough.
ENDLESS_OFFSET = 1 << 60
EARLIEST_TIMESTAMP = -2
COORDINATOR_NOT_AVAILABLE = 15
# What librdkafka itself puts into a batch at most, and so what a broker would hand out again.
BATCH_MESSAGES_MAX = 10_000
BATCH_BYTES_MAX = 1_000_000
RECORD_OVERHEAD_BYTES = 12

PRODUCE, FETCH, LIST_OFFSETS, METADATA, FIND_COORDINATOR, API_VERSIONS, INIT_PRODUCER_ID = 0, 1, 2, 3, 10, 18, 22
# The same versions as headrace serves, so that the client sends the same to both.
VERSIONS = {
    PRODUCE: (0, 13),
    FETCH: (4, 18),
    LIST_OFFSETS: (1, 10),
    METADATA: (0, 13),
    FIND_COORDINATOR: (0, 6),
    API_VERSIONS: (0, 4),
    INIT_PRODUCER_ID: (0, 5),
}

HEAD = struct.Struct(">ihhi")
CORRELATION = struct.Struct(">i")
CORRELATION_POSITION = 4
OFFSET = struct.Struct(">q")
RECEIVE_BYTES = 1 << 20


def prebuilt_batch(size_bytes: int) -> bytes:
    """A batch of messages of one size, as full as librdkafka would make it."""
    count = max(1, min(BATCH_MESSAGES_MAX, BATCH_BYTES_MAX // (size_bytes + RECORD_OVERHEAD_BYTES)))
    return bytes(encode_batch([Record(1_700_000_000_000, None, b"x" * size_bytes)] * count))


@cache
def produce_answer(version: int) -> bytearray:
    topic = TOPIC_ID if version >= produce.TOPIC_IDS_FROM else TOPIC
    return bytearray(produce.write_response([produce.ProduceResult(topic, 0, 0, 0)], version, 0))


def fetch_answer(version: int, batch: bytes) -> tuple[bytearray, int]:
    """An answer with one batch, and where in it the batch begins. Each connection has its own, to write into."""
    topic = TOPIC_ID if version >= fetch.TOPIC_IDS_FROM else TOPIC
    fetched = fetch.FetchedPartition(topic, 0, 0, ENDLESS_OFFSET, ENDLESS_OFFSET, 0, [batch])
    answer = bytearray(b"".join(fetch.write_response([fetched], version, 0)))
    return answer, answer.index(batch)


class Connection:
    def __init__(self, peer: socket.socket, port: int, batch: bytes) -> None:
        self._socket = peer
        self._port = port
        self._batch = batch
        self._buffer = memoryview(bytearray(RECEIVE_BYTES))
        self._fetch_answers: dict[int, tuple[bytearray, int]] = {}

    def serve(self) -> None:
        try:
            with self._socket:
                while self._serve_one():
                    pass
        except ConnectionError:
            pass  # the client is done and has gone

    def _serve_one(self) -> bool:
        receive_into, buffer = self._socket.recv_into, self._buffer
        if receive_into(buffer, HEAD.size, socket.MSG_WAITALL) < HEAD.size:
            return False
        length, key, version, correlation_id = HEAD.unpack_from(buffer)
        left = length + CORRELATION.size - HEAD.size
        if key == PRODUCE:
            while left:
                received = receive_into(buffer, min(left, RECEIVE_BYTES))
                if not received:
                    return False
                left -= received
            answer = produce_answer(version)
            CORRELATION.pack_into(answer, CORRELATION_POSITION, correlation_id)
            self._socket.sendall(answer)
            return True
        frame = bytearray(HEAD.pack(length, key, version, correlation_id)[CORRELATION.size :])
        while left:
            received = receive_into(buffer, min(left, RECEIVE_BYTES))
            if not received:
                return False
            frame += buffer[:received]
            left -= received
        self._answer(frame)
        return True

    def _answer(self, frame: bytearray) -> None:
        header = read_request_header(frame)
        version, correlation_id = header.api_version, header.correlation_id
        if header.api_key != FETCH:
            response = _setup_answer(header.api_key, read_request(header, frame), self._port)
            self._socket.sendall(encode_response(header.api_key, version, correlation_id, response))
            return
        asked = fetch.read_request(frame, header.body_position, version).partitions
        if version not in self._fetch_answers:
            self._fetch_answers[version] = fetch_answer(version, self._batch)
        answer, position = self._fetch_answers[version]
        CORRELATION.pack_into(answer, CORRELATION_POSITION, correlation_id)
        OFFSET.pack_into(answer, position, asked[0].fetch_offset if asked else 0)
        self._socket.sendall(answer)


def _setup_answer(key: int, request: Any, port: int) -> Any:
    answers: dict[int, Callable[[], Any]] = {
        API_VERSIONS: lambda: ApiVersionsResponse(0, tuple(ApiVersion(k, *v) for k, v in VERSIONS.items())),
        METADATA: partial(_metadata, port),
        LIST_OFFSETS: partial(_offsets, request),
        FIND_COORDINATOR: partial(_no_coordinator, request),
        INIT_PRODUCER_ID: partial(InitProducerIdResponse, producer_id=1),
    }
    return answers[key]()


def _metadata(port: int) -> MetadataResponse:
    partition = MetadataResponsePartition(0, 0, NODE_ID, -1, (NODE_ID,), (NODE_ID,))
    topic = MetadataResponseTopic(0, TOPIC, TOPIC_ID, False, (partition,))
    broker = MetadataResponseBroker(NODE_ID, "127.0.0.1", port)
    return MetadataResponse(brokers=(broker,), cluster_id="sink", controller_id=NODE_ID, topics=(topic,))


def _offsets(request: Any) -> ListOffsetsResponse:
    asked = request.topics[0].partitions[0].timestamp
    offset = 0 if asked == EARLIEST_TIMESTAMP else ENDLESS_OFFSET
    return ListOffsetsResponse(0, (ListOffsetsTopicResponse(TOPIC, (ListOffsetsPartitionResponse(offset=offset),)),))


def _no_coordinator(request: Any) -> FindCoordinatorResponse:
    code = COORDINATOR_NOT_AVAILABLE
    keys = tuple(Coordinator(key, -1, "", -1, code, None) for key in request.coordinator_keys)
    return FindCoordinatorResponse(error_code=code, error_message=None, node_id=-1, port=-1, coordinators=keys)


def serve(listener: socket.socket, size_bytes: int) -> None:
    """Accept connections until the process is ended."""
    port = listener.getsockname()[1]
    batch = prebuilt_batch(size_bytes)
    while True:
        peer, _ = listener.accept()
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=Connection(peer, port, batch).serve, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="Answer Kafka producers and consumers at once, and keep nothing.")
    parser.add_argument("--size", type=int, default=1024, help="bytes of each message that a consumer gets")
    arguments = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(json.dumps({"kafka": f"127.0.0.1:{listener.getsockname()[1]}"}) + "\n")
    sys.stdout.flush()
    serve(listener, arguments.size)


if __name__ == "__main__":
    main()
