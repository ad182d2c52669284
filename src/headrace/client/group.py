"""Groups as an operator sees them: listed, described, their offsets read and set, deleted.

Every question goes to the group's coordinator. The three kinds are described by an API each, so a description begins
with the coordinator's list, which says the kind. Offsets are read and set as somebody outside of the group does it: a
group with members refuses to be told where it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.client.connection import Connection
from headrace.client.deadline import Deadline
from headrace.client.deletion import refused
from headrace.client.errors import NO_ERROR, wire_error
from headrace.client.group_member import GroupMember, classic_member, consumer_member, share_member
from headrace.client.router import Router
from headrace.client.values import TopicPartition
from headrace.model.errors import (
    GroupNotEmptyError,
    HeadraceError,
    InvalidGroupIdError,
    TimedOutError,
    UnknownGroupError,
    UnknownMemberError,
    UnsupportedError,
)
from headrace.wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from headrace.wire.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headrace.wire.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from headrace.wire.kafka.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from headrace.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from headrace.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headrace.wire.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from headrace.wire.kafka.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse

OFFSET_COMMIT, OFFSET_FETCH, DESCRIBE_GROUPS, LIST_GROUPS, DELETE_GROUPS = 8, 9, 15, 16, 42
CONSUMER_GROUP_DESCRIBE, SHARE_GROUP_DESCRIBE, DESCRIBE_SHARE_GROUP_OFFSETS = 69, 77, 90

CLASSIC, CONSUMER, SHARE = "classic", "consumer", "share"

_OFFSETS_BATCHED = 8  # version of OffsetFetch from which several groups are asked at once
_TOPIC_IDS = 10  # version of OffsetFetch and OffsetCommit from which topics go by id


class GroupListing(NamedTuple):
    name: str
    kind: str  # classic, consumer (KIP-848) or share (KIP-932)
    state: str
    protocol_type: str


class GroupDescription(NamedTuple):
    name: str
    kind: str
    state: str
    assignor: str  # of a classic group: the protocol that its members agreed on
    members: tuple[GroupMember, ...]


class Groups:
    """Each call is retried until the client's deadline."""

    def __init__(self, router: Router) -> None:
        self._router = router

    # Looking.

    async def list(self) -> list[GroupListing]:
        """Every group, by name. Each broker knows those that it coordinates."""
        deadline = self._router.deadline()

        async def attempt() -> list[GroupListing]:
            found: dict[str, GroupListing] = {}
            for connection in await self._router.brokers(deadline):
                found |= {group.name: group for group in await self._listed(connection, deadline)}
            return sorted(found.values())

        return await self._router.retrying((), attempt, deadline)

    async def _listed(self, connection: Connection, deadline: Deadline) -> Sequence[GroupListing]:
        response = await connection.call(
            LIST_GROUPS, ListGroupsRequest(), ListGroupsResponse, timeout_ms=deadline.left_ms
        )
        if response.error_code != NO_ERROR:
            raise wire_error(response.error_code, subject=str(connection.address))
        # A broker that tells no kinds has one.
        return [
            GroupListing(one.group_id, one.group_type.lower() or CLASSIC, one.group_state, one.protocol_type)
            for one in response.groups
        ]

    async def describe(self, name: str) -> GroupDescription:
        """A group's state and members."""
        deadline = self._router.deadline()

        async def attempt() -> GroupDescription:
            connection = await self._router.coordinator(name, deadline)
            kinds = {group.name: group.kind for group in await self._listed(connection, deadline)}
            match kinds.get(name):
                case None:
                    raise UnknownGroupError(f"there is no group {name}; `headrace group list` shows those that are")
                case "consumer":
                    return await _describe_consumer(connection, name, deadline)
                case "share":
                    return await _describe_share(connection, name, deadline)
                case _:
                    return await _describe_classic(connection, name, deadline)

        return await self._router.retrying((), attempt, deadline)

    # Offsets.

    async def offsets(self, name: str, *, stable: bool = False) -> dict[TopicPartition, int]:
        """What a group has committed: where it goes on in each partition. Nothing where nobody knows the group.

        With `stable`, offsets that an open transaction is about to change are waited for.
        """
        return {at: offset for at, (offset, _) in (await self.committed(name, stable=stable)).items()}

    async def committed(self, name: str, *, stable: bool = False) -> dict[TopicPartition, tuple[int, str]]:
        """The same, with the text that was committed beside each offset."""
        deadline = self._router.deadline()

        async def attempt() -> dict[TopicPartition, tuple[int, str]]:
            connection = await self._router.coordinator(name, deadline)
            version = connection.version(OFFSET_FETCH)
            if version >= _OFFSETS_BATCHED:
                group = OffsetFetchRequestGroup(group_id=name, topics=None)
                request = OffsetFetchRequest(groups=(group,), require_stable=stable)
            else:
                request = OffsetFetchRequest(group_id=name, topics=None, require_stable=stable)
            response = await connection.call(OFFSET_FETCH, request, OffsetFetchResponse, timeout_ms=deadline.left_ms)
            answer = response.groups[0] if version >= _OFFSETS_BATCHED else response
            if answer.error_code != NO_ERROR:
                raise wire_error(answer.error_code, subject=f"group {name}")
            found = {}
            names = await self._topic_names(deadline) if version >= _TOPIC_IDS and answer.topics else {}
            for topic in answer.topics:
                # A topic that was deleted since has an id and no name.
                topic_name = topic.name or names.get(getattr(topic, "topic_id", None))
                for one in topic.partitions:
                    if one.error_code != NO_ERROR:
                        raise wire_error(one.error_code, subject=f"group {name} in {topic_name}-{one.partition_index}")
                    if topic_name is not None and one.committed_offset >= 0:
                        at = TopicPartition(topic_name, one.partition_index)
                        found[at] = (one.committed_offset, one.metadata or "")
            return dict(sorted(found.items()))

        return await self._router.retrying((), attempt, deadline)

    async def _topic_names(self, deadline: Deadline) -> dict[UUID | None, str]:
        return {topic.id: topic.name for topic in await self._router.refresh(None, deadline)}

    async def share_lags(self, name: str) -> dict[TopicPartition, tuple[int, int]]:
        """Of a share group, the first offset of each partition that is not done, and how many are left or -1."""
        deadline = self._router.deadline()

        async def attempt() -> dict[TopicPartition, tuple[int, int]]:
            connection = await self._router.coordinator(name, deadline)
            group = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
            response = await connection.call(
                DESCRIBE_SHARE_GROUP_OFFSETS,
                DescribeShareGroupOffsetsRequest(groups=(group,)),
                DescribeShareGroupOffsetsResponse,
                timeout_ms=deadline.left_ms,
            )
            found = {}
            for answer in response.groups:
                if answer.error_code != NO_ERROR:
                    raise wire_error(answer.error_code, subject=f"group {name}", message=answer.error_message)
                for topic in answer.topics:
                    for one in topic.partitions:
                        if one.error_code == NO_ERROR:
                            at = TopicPartition(topic.topic_name, one.partition_index)
                            found[at] = (one.start_offset, one.lag)
            return dict(sorted(found.items()))

        try:
            return await self._router.retrying((), attempt, deadline)
        except UnsupportedError:
            return {}

    async def set_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Say where a group goes on. Raises GroupNotEmptyError while it has members: they know better."""
        deadline = self._router.deadline()

        async def attempt() -> None:
            connection = await self._router.coordinator(name, deadline)
            topics = []
            for topic in sorted({at.topic for at in offsets}):
                known = await self._router.topic(topic, deadline)
                partitions = tuple(
                    OffsetCommitRequestPartition(partition_index=at.partition, committed_offset=offset)
                    for at, offset in offsets.items()
                    if at.topic == topic
                )
                topics.append(OffsetCommitRequestTopic(name=topic, topic_id=known.id, partitions=partitions))
            request = OffsetCommitRequest(group_id=name, topics=tuple(topics))
            response = await connection.call(OFFSET_COMMIT, request, OffsetCommitResponse, timeout_ms=deadline.left_ms)
            codes = {one.error_code for topic in response.topics for one in topic.partitions} - {NO_ERROR}
            for code in sorted(codes):
                error = wire_error(code, subject=f"group {name}")
                if isinstance(error, UnknownMemberError):
                    raise GroupNotEmptyError(f"group {name} has members; stop them first, then set its offsets")
                raise error

        await self._router.retrying({at.topic for at in offsets}, attempt, deadline)

    # Deleting.

    async def delete(self, names: Iterable[str]) -> None:
        """Delete groups with their offsets. Each of them is tried; what is refused is raised, and says the rest."""
        deleted: list[str] = []
        refusals: list[HeadraceError] = []
        # A name that is given twice is one group.
        for name in dict.fromkeys(names):
            try:
                await self._delete(name)
            except (GroupNotEmptyError, InvalidGroupIdError, UnknownGroupError) as error:
                refusals.append(error)
            else:
                deleted.append(name)
        if refusals:
            raise refused(refusals, deleted)

    async def _delete(self, name: str) -> None:
        deadline = self._router.deadline()
        maybe_done = False

        async def attempt() -> None:
            nonlocal maybe_done
            connection = await self._router.coordinator(name, deadline)
            try:
                response = await connection.call(
                    DELETE_GROUPS,
                    DeleteGroupsRequest(groups_names=(name,)),
                    DeleteGroupsResponse,
                    timeout_ms=deadline.left_ms,
                )
            except TimedOutError:
                maybe_done = True
                raise
            for result in response.results:
                if result.error_code != NO_ERROR:
                    error = wire_error(result.error_code, subject=f"group {name}")
                    # After an attempt with an unclear end, it may well be gone by our own doing.
                    if maybe_done and isinstance(error, UnknownGroupError):
                        return
                    raise error

        await self._router.retrying((), attempt, deadline)


async def _describe_classic(connection: Connection, name: str, deadline: Deadline) -> GroupDescription:
    response = await connection.call(
        DESCRIBE_GROUPS, DescribeGroupsRequest(groups=(name,)), DescribeGroupsResponse, timeout_ms=deadline.left_ms
    )
    group = response.groups[0]
    if group.error_code != NO_ERROR:
        raise wire_error(group.error_code, subject=f"group {name}", message=group.error_message)
    members = tuple(classic_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(name, CLASSIC, group.group_state, group.protocol_data, members)


async def _describe_consumer(connection: Connection, name: str, deadline: Deadline) -> GroupDescription:
    response = await connection.call(
        CONSUMER_GROUP_DESCRIBE,
        ConsumerGroupDescribeRequest(group_ids=(name,)),
        ConsumerGroupDescribeResponse,
        timeout_ms=deadline.left_ms,
    )
    group = response.groups[0]
    if group.error_code != NO_ERROR:
        raise wire_error(group.error_code, subject=f"group {name}", message=group.error_message)
    return GroupDescription(
        name, CONSUMER, group.group_state, group.assignor_name, tuple(map(consumer_member, group.members))
    )


async def _describe_share(connection: Connection, name: str, deadline: Deadline) -> GroupDescription:
    response = await connection.call(
        SHARE_GROUP_DESCRIBE,
        ShareGroupDescribeRequest(group_ids=(name,)),
        ShareGroupDescribeResponse,
        timeout_ms=deadline.left_ms,
    )
    group = response.groups[0]
    if group.error_code != NO_ERROR:
        raise wire_error(group.error_code, subject=f"group {name}", message=group.error_message)
    return GroupDescription(
        name, SHARE, group.group_state, group.assignor_name, tuple(map(share_member, group.members))
    )
