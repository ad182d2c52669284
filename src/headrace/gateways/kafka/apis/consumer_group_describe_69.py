"""ConsumerGroupDescribe (key 69), versions 0 and 1: epochs, members and assignments of consumer groups (KIP-848).

An unknown group, or one of another kind, is GROUP_ID_NOT_FOUND. Version 1 says which protocol each
member speaks. Topics that are gone meanwhile have no name.
"""

from headrace.broker.group.consumer_port import ConsumerGroupDescription, ConsumerMemberDescription
from headrace.folds.group.consumer_member import Shares
from headrace.gateways.kafka.authorized import GROUP_OPERATIONS, NOT_ASKED
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

_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


async def _handle(
    context: Context, request: ConsumerGroupDescribeRequest, version: int
) -> ConsumerGroupDescribeResponse:
    operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    return ConsumerGroupDescribeResponse(
        groups=tuple([await _describe(context, group_id, operations) for group_id in request.group_ids])
    )


async def _describe(context: Context, group_id: str, operations: int) -> DescribedGroup:
    try:
        group = await context.groups.consumers.describe(group_id)
    except Exception as error:  # noqa: BLE001 - becomes this group's error; the unexpected is logged
        return DescribedGroup(
            error_code=outcome_code(context, error), error_message=message_of(error), group_id=group_id
        )
    return _described(context, group, operations)


def _described(context: Context, group: ConsumerGroupDescription, operations: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=tuple(_member(context, member) for member in group.members),
        authorized_operations=operations,
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
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
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
