"""A group changes its protocol while its members go on: a classic group becomes a consumer group, and back (KIP-848).

It becomes a consumer group when the first member joins that speaks this protocol, and a classic one again when the last
of these is gone. Either way no member stops. The members keep their ids, what they read and their generation, and
hear with their next heartbeat that there is something to share out anew; the offsets do not belong to the members and
stay as they are. What the group is from here on is one entry of the log, like every other step of it.

From classic to consumer. What a member reads has to be known, so that no other member gets it. A leader's assignment
says it, and what the member said that it still read when it joined (cooperative members give up after a rebalance, not
before). Both are at hand in a stable group only; until it is stable, a newcomer is asked to come back.

From consumer to classic. The leader that will share the partitions out relies on what the members say when they join,
and all of them have to join before it does.
"""

from headrace.folds.group.classic import ClassicGroup, ClassicLimits
from headrace.folds.group.consumer import ConsumerGroup, ConsumerLimits
from headrace.folds.group.consumer_classic import named_partitions, partitions_of
from headrace.folds.group.consumer_member import NOTHING, ConsumerMember
from headrace.folds.group.consumer_topics import TopicView
from headrace.folds.group.member import Member, StoredMember
from headrace.folds.group.protocol import (
    CONSUMER_PROTOCOL_TYPE,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)


def to_consumer(classic: ClassicGroup, limits: ConsumerLimits, view: TopicView, *, now_ms: int) -> ConsumerGroup | None:
    """The consumer group that a stable classic group becomes, or one without members.

    None where the coordinator cannot share the partitions out in the members' place: they are not consumers, or what
    they say of themselves or are given cannot be read (an assignor of the users' own).
    """
    group = ConsumerGroup(classic.group_id, limits, epoch=classic.generation)
    if not classic.roster:
        return group
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    members: list[tuple[ConsumerMember, Subscription]] = []
    taken = NOTHING
    for one in classic.roster:
        subscription = read_subscription(one.metadata(classic.protocol_name))
        assignment = read_assignment(one.assignment, classic.protocol_name)
        if subscription is None or assignment is None:
            return None
        member = _consumer_member(one, subscription, classic.generation)
        # A leader that has given a partition to two members has made a mistake, which ends here.
        member.assigned = member.target = partitions_of(assignment, view) - taken
        taken |= member.assigned
        members.append((member, subscription))
    for member, subscription in members:
        member.revoking = partitions_of(subscription.owned, view) - taken
        taken |= member.revoking
        if member.revoking:
            member.revoke_until_ms = now_ms + member.rebalance_timeout_ms
        member.heard(now_ms, session_timeout_ms=limits.session_timeout_ms)
        group.resume(member)
    return group


def _consumer_member(one: Member, subscription: Subscription, generation: int) -> ConsumerMember:
    member = ConsumerMember(one.member_id, one.instance_id)
    member.client_id, member.client_host, member.rack_id = one.client_id, one.client_host, subscription.rack_id
    member.session_timeout_ms, member.rebalance_timeout_ms = one.session_timeout_ms, one.rebalance_timeout_ms
    member.protocols = one.protocols
    member.topic_names = tuple(sorted(set(subscription.topics)))
    member.epoch = generation
    return member


def to_classic(group: ConsumerGroup, limits: ClassicLimits, view: TopicView, *, now_ms: int) -> ClassicGroup:
    """The classic group that a consumer group becomes whose members all speak the classic protocol."""
    assert group.is_all_classic, f"group {group.group_id} has members that cannot be in a classic group"
    members = [
        StoredMember(
            member_id=one.member_id,
            instance_id=one.instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            session_timeout_ms=one.session_timeout_ms,
            rebalance_timeout_ms=one.rebalance_timeout_ms,
            protocols=one.protocols,
            assignment=write_assignment(named_partitions(one.assigned, view)),
            generation=one.epoch,
        )
        for one in group.members.values()
    ]
    return ClassicGroup.of_members(group.group_id, group.epoch, members, limits, now_ms=now_ms)
