"""OffsetFetch (key 9), versions 1 to 10: how far a group has read.

A group that nobody knows, and a partition without an offset, have offset -1 and no error: clients take it that way. No
topics at all (2+) asks for everything. From 7 offsets that an open transaction holds may be refused with
UNSTABLE_OFFSET_COMMIT; from 8 several groups are asked at once; from 10 topics go by id.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import NamedTuple
from uuid import UUID

from headrace.broker.group.port import Caller, Committed, TopicPartition
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from headrace.wire.kafka.primitives import ZERO_UUID

_TOP_LEVEL_ERROR_FROM = 2
_BATCHED_FROM = 8
_TOPIC_ID_FROM = 10


class _Topic(NamedTuple):
    name: str
    topic_id: UUID
    partitions: list[Committed]


async def _handle(context: Context, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    if version >= _BATCHED_FROM:
        groups = [await _answer_group(context, group, version, request.require_stable) for group in request.groups]
        return OffsetFetchResponse(groups=tuple(groups))
    asked: list[TopicPartition] | None = None
    if request.topics is not None:
        asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    caller = Caller(group_id=request.group_id)
    found = await context.groups.committed(caller, asked, require_stable=request.require_stable)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                topic.name,
                tuple(
                    OffsetFetchResponsePartition(
                        one.partition, one.offset, one.leader_epoch, one.metadata, outcome_code(context, one.error)
                    )
                    for one in topic.partitions
                ),
            )
            for topic in _by_topic(context, found)
        )
    )


async def _answer_group(
    context: Context, group: OffsetFetchRequestGroup, version: int, require_stable: bool
) -> OffsetFetchResponseGroup:
    asked: list[TopicPartition] | None = None
    if group.topics is not None:
        asked = [
            (topic.topic_id if version >= _TOPIC_ID_FROM else topic.name, index)
            for topic in group.topics
            for index in topic.partition_indexes
        ]
    caller = Caller(group_id=group.group_id, member_id=group.member_id or "", generation=group.member_epoch)
    try:
        found = await context.groups.committed(caller, asked, require_stable=require_stable)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return OffsetFetchResponseGroup(group.group_id, (), outcome_code(context, error))
    topics = tuple(
        OffsetFetchResponseTopics(
            topic.name,
            topic.topic_id,
            tuple(
                OffsetFetchResponsePartitions(
                    one.partition, one.offset, one.leader_epoch, one.metadata, outcome_code(context, one.error)
                )
                for one in topic.partitions
            ),
        )
        for topic in _by_topic(context, found)
    )
    return OffsetFetchResponseGroup(group.group_id, topics, 0)


def _by_topic(context: Context, found: Iterable[Committed]) -> Iterator[_Topic]:
    for topic, partitions in groupby(found, key=lambda one: one.topic):
        if isinstance(topic, UUID):
            yield _Topic("", topic, list(partitions))
        else:
            known = context.broker.catalog.topics.get(topic)
            yield _Topic(topic, ZERO_UUID if known is None else known.id, list(partitions))


def _refuse(request: OffsetFetchRequest, version: int, code: int, message: str) -> OffsetFetchResponse:
    if version >= _BATCHED_FROM:
        return OffsetFetchResponse(
            groups=tuple(OffsetFetchResponseGroup(group.group_id, (), code) for group in request.groups)
        )
    if version >= _TOP_LEVEL_ERROR_FROM:
        return OffsetFetchResponse(error_code=code)
    return OffsetFetchResponse(
        topics=tuple(
            OffsetFetchResponseTopic(
                topic.name,
                tuple(OffsetFetchResponsePartition(index, -1, -1, "", code) for index in topic.partition_indexes),
            )
            for topic in request.topics or ()
        )
    )


API = Api(key=9, version_min=1, version_max=10, handle=_handle, refuse=_refuse)
