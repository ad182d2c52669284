"""ConsumerGroupDescribe (key 69), versions 0 and 1: epochs, members and assignments of consumer groups (KIP-848).

A group that nobody knows, or that is of another kind, is GROUP_ID_NOT_FOUND. Version 1 says that every member speaks
the protocol of consumer groups. Topics that are gone meanwhile have no name.
"""

from headrace.broker.group.consumer_port import ConsumerGroupDescription, ConsumerMemberDescription
from headrace.folds.group.consumer_member import Shares
from headrace.gateways.kafka.context import Api, Context
from headrace.gateways.kafka.errors import message_of
from headrace.gateways.kafka.outcome import outcome_code
from headrace.wire.kafka.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

_CONSUMER_MEMBER = 1


async def _handle(
    context: Context, request: ConsumerGroupDescribeRequest, version: int
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=tuple([await _describe(context, group_id) for group_id in request.group_ids])
    )


async def _describe(context: Context, group_id: str) -> DescribedGroup:
    try:
        group = await context.groups.consumers.describe(group_id)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return DescribedGroup(
            error_code=outcome_code(context, error), error_message=message_of(error), group_id=group_id
        )
    return _described(context, group)


def _described(context: Context, group: ConsumerGroupDescription) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(context, member) for member in group.members),
    )


def _member(context: Context, member: ConsumerMemberDescription) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex or None,
        assignment=_assignment(context, member.assignment),
        target_assignment=_assignment(context, member.target),
        member_type=_CONSUMER_MEMBER,
    )


def _assignment(context: Context, shares: Shares) -> Assignment:
    topics = context.broker.catalog.topics_by_id
    return Assignment(
        tuple(
            TopicPartitions(topic_id, topics[topic_id].name if topic_id in topics else "", indexes)
            for topic_id, indexes in shares
        )
    )


def _refuse(
    request: ConsumerGroupDescribeRequest, version: int, code: int, message: str
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=tuple(DescribedGroup(error_code=code, error_message=message, group_id=one) for one in request.group_ids)
    )


API = Api(key=69, version_min=0, version_max=1, handle=_handle, refuse=_refuse)
