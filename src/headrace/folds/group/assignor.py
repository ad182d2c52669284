"""What an assignor is given and gives back, and the simpler of the two: `range`.

An assignor is a pure function of who wants what and who had what. It says where a group is to end up; how members get
there without a partition ever having two owners is the group's affair (`consumer.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.model.ids import PartitionId


class Subscriber(NamedTuple):
    member_id: str
    instance_id: str | None
    topics: frozenset[UUID]
    previous: frozenset[PartitionId]  # what it was to have until now; no partition is in two of these


# From the subscribers and the partition counts of all topics that any of them wants, the partitions of each member.
Assignor = Callable[[Sequence[Subscriber], Mapping[UUID, int]], dict[str, set[PartitionId]]]


def share_by_range(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> dict[str, set[PartitionId]]:
    """Of each topic a run of partitions for each member, in the members' order: topics that are partitioned alike
    have the same owners. Static members go by their instance ids, so that a restart changes nothing."""
    shares: dict[str, set[PartitionId]] = {one.member_id: set() for one in subscribers}
    ordered = sorted(subscribers, key=lambda one: (one.instance_id or one.member_id, one.member_id))
    for topic_id, count in counts.items():
        interested = [one for one in ordered if topic_id in one.topics]
        start = 0
        for at, one in enumerate(interested):
            size = count // len(interested) + (1 if at < count % len(interested) else 0)
            shares[one.member_id].update(PartitionId(topic_id, index) for index in range(start, start + size))
            start += size
    return shares
