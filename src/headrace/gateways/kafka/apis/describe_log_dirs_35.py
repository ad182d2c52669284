"""DescribeLogDirs (key 35), versions 1 to 4: how many bytes each partition has on this node's disk.

There is one directory, and a log lags behind nothing. Its file system's whole size is not told (-1), what is free is.
"""

from headrace.gateways.kafka.context import Api, Context
from headrace.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


def _handle(context: Context, request: DescribeLogDirsRequest, version: int) -> DescribeLogDirsResponse:
    broker = context.broker
    wanted = None if request.topics is None else {topic.topic: set(topic.partitions) for topic in request.topics}
    sizes: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in broker.partitions():
        topic = broker.catalog.topics_by_id.get(partition.id.topic_id)
        if topic is None:
            continue
        index = partition.id.partition
        if wanted is None or index in wanted.get(topic.name, ()):
            sizes.setdefault(topic.name, []).append(DescribeLogDirsPartition(index, partition.size_bytes, 0, False))
    result = DescribeLogDirsResult(
        error_code=0,
        log_dir=broker.data_directory,
        topics=tuple(
            DescribeLogDirsTopic(name, tuple(sorted(partitions, key=lambda p: p.partition_index)))
            for name, partitions in sorted(sizes.items())
        ),
        usable_bytes=broker.disk_free_bytes(),
    )
    return DescribeLogDirsResponse(results=(result,))


def _refuse(request: DescribeLogDirsRequest, version: int, code: int, message: str) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=code, results=(DescribeLogDirsResult(error_code=code),))


API = Api(key=35, version_min=1, version_max=4, handle=_handle, refuse=_refuse)
