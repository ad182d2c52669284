"""The assignor `uniform`: everybody gets as many partitions as the others, and keeps what it has where it can.

Where all members subscribe to the same topics, shares differ by one at most and no more partitions move than that
takes. Where they do not, each partition goes to the member with the fewest among those who want it, and then partitions
move from members with more to members with at least two fewer, until no such move is left.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from headrace.folds.group.assignor import Subscriber
from headrace.folds.group.consumer_member import by_topic
from headrace.model.ids import PartitionId

_Shares = dict[str, set[PartitionId]]


def share_uniformly(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> _Shares:
    if not subscribers:
        return {}
    wanted = [PartitionId(topic_id, index) for topic_id, count in sorted(counts.items()) for index in range(count)]
    kept = _keep(subscribers, counts)
    taken = {partition for share in kept.values() for partition in share}
    free = [partition for partition in wanted if partition not in taken]
    if all(one.topics == subscribers[0].topics for one in subscribers):
        return _even(kept, free, len(taken) + len(free))
    return _balanced(subscribers, kept, free)


def _keep(subscribers: Sequence[Subscriber], counts: Mapping[UUID, int]) -> _Shares:
    """What each still may have of what it had."""
    return {
        one.member_id: {
            partition
            for partition in one.previous
            if partition.topic_id in one.topics and partition.partition < counts.get(partition.topic_id, 0)
        }
        for one in subscribers
    }


def _even(shares: _Shares, free: list[PartitionId], total: int) -> _Shares:
    least, more = divmod(total, len(shares))
    # Whoever has the most gives away the least: one partition more than the others is for them.
    by_size = sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id))
    quotas = {member_id: least + (1 if at < more else 0) for at, member_id in enumerate(by_size)}
    for member_id, share in shares.items():
        for partition in sorted(share)[quotas[member_id] :]:
            share.remove(partition)
            free.append(partition)
    # In turns, so that the partitions of one topic are spread over the members.
    short = deque(member_id for member_id in sorted(shares) if len(shares[member_id]) < quotas[member_id])
    for partition in sorted(free):
        member_id = short.popleft()
        shares[member_id].add(partition)
        if len(shares[member_id]) < quotas[member_id]:
            short.append(member_id)
    return shares


def _balanced(subscribers: Sequence[Subscriber], shares: _Shares, free: list[PartitionId]) -> _Shares:
    interested: dict[UUID, list[str]] = {}
    for one in sorted(subscribers, key=lambda one: one.member_id):
        for topic_id in one.topics:
            interested.setdefault(topic_id, []).append(one.member_id)

    def least(topic_id: UUID) -> str | None:
        return min(interested.get(topic_id, ()), key=lambda member_id: len(shares[member_id]), default=None)

    def move(member_id: str, topic_id: UUID, indexes: Iterable[int]) -> bool:
        has_moved = False
        for index in indexes:
            other = least(topic_id)
            if other is None or len(shares[member_id]) - len(shares[other]) < 2:
                break
            shares[member_id].remove(PartitionId(topic_id, index))
            shares[other].add(PartitionId(topic_id, index))
            has_moved = True
        return has_moved

    # Topics that few want first: theirs have the least choice.
    for partition in sorted(free, key=lambda one: (len(interested.get(one.topic_id, ())), one)):
        member_id = least(partition.topic_id)
        if member_id is not None:
            shares[member_id].add(partition)
    # Every move lowers the sum of the squares of the shares, so this ends.
    has_moved = True
    while has_moved:
        has_moved = False
        for member_id in sorted(shares, key=lambda member_id: (-len(shares[member_id]), member_id)):
            for topic_id, indexes in by_topic(shares[member_id]):
                has_moved |= move(member_id, topic_id, indexes)
    return shares
