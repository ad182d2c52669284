"""ShareGroupDescribe (key 77), version 1: share groups, their members, and what those work from."""

from headrace.broker.group.share_port import DescribedMember
from headrace.folds.group.share import ASSIGNOR
from headrace.gateways.kafka.authorized import GROUP_OPERATIONS, NOT_ASKED
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


async def _handle(context: Context, request: ShareGroupDescribeRequest, version: int) -> ShareGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return ShareGroupDescribeResponse(
        groups=tuple([await _describe(context, group_id, operations) for group_id in request.group_ids])
    )


async def _describe(context: Context, group_id: str, operations: int) -> DescribedGroup:
    try:
        group = await context.shares.describe(group_id)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        code = outcome_code(context, error)
        return DescribedGroup(error_code=code, error_message=message_of(error), group_id=group_id, group_state="Dead")
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.epoch,
        assignor_name=ASSIGNOR,
        members=tuple(_member(one) for one in group.members),
        authorized_operations=operations,
    )


def _member(described: DescribedMember) -> Member:
    member, topics = described
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topics,
        assignment=Assignment(
            tuple(TopicPartitions(topic.topic_id, name, tuple(range(topic.partition_count))) for name, topic in topics)
        ),
    )


def _refuse(request: ShareGroupDescribeRequest, version: int, code: int, message: str) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=tuple(
            DescribedGroup(error_code=code, error_message=message, group_id=group_id) for group_id in request.group_ids
        )
    )


API = Api(key=77, version_min=1, version_max=1, handle=_handle, refuse=_refuse)
