"""How far a group is: what it has committed of each partition, against what the partition holds."""

from typing import Any, NamedTuple

from headrace.client.group import SHARE, GroupDescription
from headrace.client.group_member import GroupMember
from headrace.client.stream import StreamClient
from headrace.client.values import TopicPartition


class PartitionLag(NamedTuple):
    at: TopicPartition
    committed: int | None  # None: nothing yet
    end: int
    lag: int | None  # None: unknown, where nothing is committed
    member: GroupMember | None


class GroupView(NamedTuple):
    group: GroupDescription
    partitions: list[PartitionLag]

    @property
    def lag(self) -> int:
        return sum(one.lag for one in self.partitions if one.lag is not None)


async def look(client: StreamClient, name: str) -> GroupView:
    """One look at a group. Partitions are those that it has committed and those that its members have."""
    group = await client.groups.describe(name)
    owners = {at: member for member in group.members for at in member.partitions}
    lags: dict[TopicPartition, int] = {}
    if group.kind == SHARE:
        shared = await client.groups.share_lags(name)
        committed = {at: start for at, (start, _) in shared.items() if start >= 0}
        lags = {at: lag for at, (_, lag) in shared.items() if lag >= 0}
    else:
        committed = await client.groups.offsets(name)
    ats = sorted(committed.keys() | owners.keys())
    ends = await client.end_offsets(ats) if ats else {}
    partitions = []
    for at in ats:
        offset = committed.get(at)
        lag = None if offset is None else max(0, ends[at] - offset)
        # Members of a share group have their partitions in common: nobody is the owner.
        owner = None if group.kind == SHARE else owners.get(at)
        partitions.append(PartitionLag(at, offset, ends[at], lags.get(at, lag), owner))
    return GroupView(group, partitions)


def view_json(view: GroupView) -> dict[str, Any]:
    group = view.group
    return {
        "name": group.name,
        "type": group.kind,
        "state": group.state,
        "assignor": group.assignor,
        "lag": view.lag,
        "partitions": [
            {
                "topic": one.at.topic,
                "partition": one.at.partition,
                "committed": one.committed,
                "end_offset": one.end,
                "lag": one.lag,
                "member_id": None if one.member is None else one.member.member_id,
            }
            for one in view.partitions
        ],
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": [at._asdict() for at in member.partitions],
            }
            for member in group.members
        ],
    }
