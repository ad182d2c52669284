"""OffsetCommit (key 8), versions 2 to 10: how far a group has read.

Checked against the group's members and generation in the step that writes it, and answered when it is durable. How long
offsets are kept is the node's policy, so the retention of versions 2 to 4 is not obeyed. From 10 topics go by id.
"""

from uuid import UUID

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_ID_FROM = 10


async def _handle(context: Context, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    caller = Caller(
        group_id=request.group_id,
        member_id=request.member_id,
        generation=request.generation_id_or_member_epoch,
        instance_id=request.group_instance_id,
    )
    offsets = [
        OffsetCommit(
            _topic(topic, version),
            one.partition_index,
            one.committed_offset,
            one.committed_leader_epoch,
            one.committed_metadata or "",
        )
        for topic in request.topics
        for one in topic.partitions
    ]
    outcomes = iter(await context.groups.commit(caller, offsets))
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(
                    OffsetCommitResponsePartition(one.partition_index, outcome_code(context, next(outcomes)))
                    for one in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _topic(topic: OffsetCommitRequestTopic, version: int) -> str | UUID:
    return topic.topic_id if version >= _TOPIC_ID_FROM else topic.name


def _refuse(request: OffsetCommitRequest, version: int, code: int, message: str) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                topic.name,
                topic.topic_id,
                tuple(OffsetCommitResponsePartition(one.partition_index, code) for one in topic.partitions),
            )
            for topic in request.topics
        )
    )


API = Api(key=8, version_min=2, version_max=10, handle=_handle, refuse=_refuse)
