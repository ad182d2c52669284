"""What a member of a consumer group says with its heartbeat, what it is told, and which heartbeats make no sense."""

from typing import NamedTuple

from headrace.model.errors import InvalidRequestError
from headrace.model.ids import PartitionId

Partitions = frozenset[PartitionId]

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2  # a static member that goes for a while: its partitions wait for it
UNCHANGED_MS = -1


class ConsumerHeartbeat(NamedTuple):
    """None stands for *as before*, so that most heartbeats have next to nothing in them."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = UNCHANGED_MS
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None  # an empty one takes the subscription by expression back
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Everything is said anew: a client that joins, or is not certain that it heard the last answer."""
        has_subscription = self.topic_names is not None or self.topic_regex is not None
        return has_subscription and self.rebalance_timeout_ms != UNCHANGED_MS and self.owned is not None


class ConsumerAnswer(NamedTuple):
    member_id: str
    member_epoch: int
    assignment: Partitions | None  # None: as before
    is_waiting: bool  # for partitions that others have not given up yet
    is_changed: bool  # the group is to be stored before this is told


def check_heartbeat(request: ConsumerHeartbeat) -> None:
    """Refuse what no client of this protocol says."""
    if not request.member_id:
        raise InvalidRequestError("a member must have an id")
    if request.member_epoch < STATIC_LEAVE_EPOCH:
        raise InvalidRequestError(f"no member has the epoch {request.member_epoch}")
    if request.instance_id == "":
        raise InvalidRequestError("a group instance id must not be empty; leave it out for a dynamic member")
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        raise InvalidRequestError("only a member with a group instance id may leave for a while")
    if request.member_epoch != JOIN_EPOCH:
        return
    if request.rebalance_timeout_ms < 0:
        raise InvalidRequestError("the first heartbeat of a member has its rebalance time-out")
    if request.owned is None or request.owned:
        raise InvalidRequestError("a member that joins owns no partitions, and says so")
    if request.topic_names is None and request.topic_regex is None:
        raise InvalidRequestError("the first heartbeat of a member has its subscription")
