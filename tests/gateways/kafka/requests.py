"""Requests that several tests send."""

from headrace.wire.kafka.frame import encode_request
from headrace.wire.kafka.messages.api_versions import ApiVersionsRequest
from headrace.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.kafka.messages.metadata import MetadataRequest
from headrace.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

API_VERSIONS = (18, 3, ApiVersionsRequest("test", "1"))
ALL_TOPICS = (3, 9, MetadataRequest(None))


def produce(
    records: bytes, *, topic: str = "t", acks: int = -1, timeout_ms: int = 5000
) -> tuple[int, int, ProduceRequest]:
    data = (TopicProduceData(name=topic, partition_data=(PartitionProduceData(0, records),)),)
    return 0, 9, ProduceRequest(None, acks, timeout_ms, data)


def fetch(offset: int = 0, *, topic: str = "t", wait_ms: int = 0, bytes_min: int = 1) -> tuple[int, int, FetchRequest]:
    wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 24)
    topics = (FetchTopic(topic=topic, partitions=(wanted,)),)
    return (
        1,
        12,
        FetchRequest(max_wait_ms=wait_ms, min_bytes=bytes_min, max_bytes=1 << 24, session_epoch=-1, topics=topics),
    )


def api_versions_frame(correlation_id: int = 7) -> bytes:
    return encode_request(18, 3, correlation_id, "test", ApiVersionsRequest("test", "1"))
