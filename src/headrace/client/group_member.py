"""A member of a group and what it was given, from each kind's own description."""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.client.values import TopicPartition
from headrace.wire.kafka.messages import consumer_group_describe, consumer_protocol_assignment, share_group_describe
from headrace.wire.kafka.messages.describe_groups import DescribedGroupMember
from headrace.wire.kafka.primitives import MalformedError, Reader

CONSUMERS = "consumer"  # the protocol type whose assignments are a consumer's; others have their own


class GroupMember(NamedTuple):
    member_id: str
    instance_id: str | None  # of a static member
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


def classic_member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    assigned = _decode_assignment(member.member_assignment) if protocol_type == CONSUMERS else ()
    return GroupMember(
        member.member_id, member.group_instance_id, member.client_id, member.client_host.lstrip("/"), assigned
    )


def consumer_member(member: consumer_group_describe.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host.lstrip("/"),
        _flat((topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions),
    )


def share_member(member: share_group_describe.Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        None,
        member.client_id,
        member.client_host.lstrip("/"),
        _flat((topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions),
    )


def _decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """What a client's leader wrote; nothing where it is empty, which it is between generations, or not readable."""
    try:
        reader = Reader(data)
        assignment = consumer_protocol_assignment.read_data(reader, reader.int16())
    except MalformedError:
        return ()
    return _flat((topic.topic, topic.partitions) for topic in assignment.assigned_partitions)


def _flat(topics: Iterable[tuple[str, Iterable[int]]]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(name, index) for name, indexes in topics for index in indexes))
