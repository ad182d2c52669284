"""One member of a consumer group, and its form in the group's image."""

from collections.abc import Iterable
from uuid import UUID

import msgspec

from headrace.folds.group.consumer_request import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeat, Partitions
from headrace.folds.group.request import Protocols
from headrace.model.ids import PartitionId

NOTHING: Partitions = frozenset()

_ENCODER = msgspec.msgpack.Encoder(uuid_format="bytes")

Shares = tuple[tuple[UUID, tuple[int, ...]], ...]  # partitions by topic, sorted


class StoredConsumerMember(msgspec.Struct, frozen=True, array_like=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    topic_regex: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    assigned: Shares
    revoking: Shares
    target: Shares
    # Of a member that speaks the classic protocol.
    session_timeout_ms: int = 0
    protocols: Protocols = ()


class ConsumerMember:
    """A member in memory. What it may read is `assigned`, and until it says otherwise also `revoking`."""

    __slots__ = (
        "_image",
        "_imaged",
        "assigned",
        "assignor",
        "client_host",
        "client_id",
        "epoch",
        "instance_id",
        "member_id",
        "previous_epoch",
        "protocols",
        "rack_id",
        "rebalance_timeout_ms",
        "revoke_until_ms",
        "revoking",
        "session_timeout_ms",
        "session_until_ms",
        "target",
        "topic_names",
        "topic_regex",
        "topics",
    )

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.rack_id: str | None = None
        self.client_id = ""
        self.client_host = ""
        self.rebalance_timeout_ms = 0
        self.topic_names: tuple[str, ...] = ()
        self.topic_regex = ""
        self.assignor: str | None = None
        self.epoch = 0  # the assignment that it was last brought up to
        self.previous_epoch = -1  # the one before: whoever did not hear the last answer comes with it
        self.assigned = NOTHING
        self.revoking = NOTHING
        self.target = NOTHING  # what it is to have in the end
        # What it joined with, if it speaks the classic protocol; its metadata is kept for a group that changes back.
        self.session_timeout_ms = 0
        self.protocols: Protocols = ()
        # Volatile.
        self._image = msgspec.Raw(b"")
        self._imaged: tuple[object, ...] = ()  # what the image shows
        self.topics: frozenset[str] | None = None  # what the subscription stands for; None: not looked at yet
        self.session_until_ms = 0
        self.revoke_until_ms: int | None = None  # by when it has to give up, or of the classic protocol to join again

    @property
    def is_classic(self) -> bool:
        return bool(self.protocols)

    @property
    def has_left(self) -> bool:
        """A static member whose process is away for a while."""
        return self.epoch == STATIC_LEAVE_EPOCH

    @property
    def held(self) -> Partitions:
        """What nobody else may have."""
        return self.assigned | self.revoking

    @property
    def until_ms(self) -> int:
        """When it is taken for gone."""
        return (
            self.session_until_ms if self.revoke_until_ms is None else min(self.session_until_ms, self.revoke_until_ms)
        )

    def heard(self, now_ms: int, *, session_timeout_ms: int) -> None:
        """It is alive. A member of the classic protocol has said itself for how long it may be silent."""
        self.session_until_ms = now_ms + (self.session_timeout_ms or session_timeout_ms)

    def is_settled(self, assignment_epoch: int) -> bool:
        return self.epoch == assignment_epoch and not self.revoking and self.assigned == self.target

    def move_to(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch

    def start_anew(self) -> None:
        """Another process stands in its place: what it was to give up is read no more."""
        self.epoch, self.previous_epoch = JOIN_EPOCH, -1
        self.revoking, self.revoke_until_ms = NOTHING, None
        self.session_timeout_ms, self.protocols = 0, ()

    def update(self, request: ConsumerHeartbeat) -> bool:
        """Take over what a heartbeat says. Returns whether anything but the subscription is new."""
        before = (self.rack_id, self.client_id, self.client_host, self.rebalance_timeout_ms)
        self.client_id, self.client_host = request.client_id, request.client_host
        if request.rack_id is not None:
            self.rack_id = request.rack_id
        if request.rebalance_timeout_ms >= 0:
            self.rebalance_timeout_ms = request.rebalance_timeout_ms
        return before != (self.rack_id, self.client_id, self.client_host, self.rebalance_timeout_ms)

    def subscribe(self, request: ConsumerHeartbeat) -> bool:
        """Take over what it wants to read and how it is to be shared out. Returns whether that is new."""
        before = (self.topic_names, self.topic_regex, self.assignor)
        if request.topic_names is not None:
            self.topic_names = tuple(sorted(set(request.topic_names)))
        if request.topic_regex is not None:
            self.topic_regex = request.topic_regex
        if request.assignor is not None:
            self.assignor = request.assignor
        return before != (self.topic_names, self.topic_regex, self.assignor)

    def image(self) -> msgspec.Raw:
        """Its part of the group's image, made anew only when it has changed: groups are large, and steps small."""
        shown = (
            (self.member_id, self.instance_id, self.rack_id, self.client_id, self.client_host),
            (self.rebalance_timeout_ms, self.topic_names, self.topic_regex, self.assignor),
            (self.session_timeout_ms, self.protocols),
            (self.epoch, self.previous_epoch, self.assigned, self.revoking, self.target),
        )
        if shown != self._imaged:
            self._image, self._imaged = msgspec.Raw(_ENCODER.encode(self._stored())), shown
        return self._image

    def _stored(self) -> StoredConsumerMember:
        return StoredConsumerMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            topic_names=self.topic_names,
            topic_regex=self.topic_regex,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            assigned=by_topic(self.assigned),
            revoking=by_topic(self.revoking),
            target=by_topic(self.target),
            session_timeout_ms=self.session_timeout_ms,
            protocols=self.protocols,
        )


def restored(stored: StoredConsumerMember, *, session_timeout_ms: int, now_ms: int) -> ConsumerMember:
    """The member as it was, with a whole session to be heard of again."""
    member = ConsumerMember(stored.member_id, stored.instance_id)
    member.rack_id = stored.rack_id
    member.client_id, member.client_host = stored.client_id, stored.client_host
    member.rebalance_timeout_ms = stored.rebalance_timeout_ms
    member.topic_names, member.topic_regex = stored.topic_names, stored.topic_regex
    member.assignor = stored.assignor
    member.epoch, member.previous_epoch = stored.epoch, stored.previous_epoch
    member.assigned = of_topics(stored.assigned)
    member.revoking = of_topics(stored.revoking)
    member.target = of_topics(stored.target)
    member.session_timeout_ms, member.protocols = stored.session_timeout_ms, stored.protocols
    member.heard(now_ms, session_timeout_ms=session_timeout_ms)
    if member.revoking:
        member.revoke_until_ms = now_ms + member.rebalance_timeout_ms
    return member


def by_topic(partitions: Iterable[PartitionId]) -> Shares:
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        found.setdefault(topic_id, []).append(index)
    return tuple((topic_id, tuple(indexes)) for topic_id, indexes in found.items())


def of_topics(shares: Iterable[tuple[UUID, Iterable[int]]]) -> Partitions:
    return frozenset(PartitionId(topic_id, index) for topic_id, indexes in shares for index in indexes)
