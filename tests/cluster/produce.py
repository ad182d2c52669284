"""Single sends and looks over a plain socket, so that a test sees the very answer and no client's retries of it."""

import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.node import NodeProcess
from tests.support.wire import Wire

from headrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.records import Record, encode_batch

PRODUCE = 0
METADATA = 3
NONE = 0
STORAGE_ERROR = 56


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    error_code: int
    error_message: str | None
    offset: int


def send(node: NodeProcess, topic: str, value: bytes, *, partition: int = 0, deadline_s: float = 10.0) -> Answer:
    """Send one message with acks=all and give the node's answer."""
    records = bytes(encode_batch([Record(time.time_ns() // 1_000_000, None, value)]))
    data = TopicProduceData(name=topic, partition_data=(PartitionProduceData(index=partition, records=records),))
    request = ProduceRequest(acks=-1, timeout_ms=int(deadline_s * 1000), topic_data=(data,))
    with Wire(node.server, deadline_s=deadline_s) as wire:
        answer = wire.ask(PRODUCE, 9, request).responses[0].partition_responses[0]
    return Answer(error_code=answer.error_code, error_message=answer.error_message, offset=answer.base_offset)


def must_send(node: NodeProcess, topic: str, value: bytes, *, partition: int = 0) -> int:
    answer = send(node, topic, value, partition=partition)
    assert answer.error_code == NONE, answer
    return answer.offset


def touch_metadata(wire: Wire, topic: str) -> None:
    """Ask for a topic's metadata, which also makes it where it is not there."""
    wire.ask(METADATA, 9, MetadataRequest(topics=(MetadataRequestTopic(name=topic),)))


def segments(node: NodeProcess) -> set[Path]:
    return set((node.data / "partitions").glob("*/*.log"))


def make_topic(node: NodeProcess, topic: str) -> Path:
    """A topic of one partition; returns its segment file."""
    before = segments(node)
    with Wire(node.server) as wire:
        touch_metadata(wire, topic)
    must_send(node, topic, b"first")
    (path,) = segments(node) - before
    return path


def journals(node: NodeProcess) -> list[Path]:
    return sorted((node.data / "journal").iterdir())
