"""A consumer group driven by hand: clients as real ones behave, topics as the test has them, time as it says."""

from uuid import UUID

from headrace.folds.group.consumer import ConsumerGroup, ConsumerLimits
from headrace.folds.group.consumer_request import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerAnswer,
    ConsumerHeartbeat,
    Partitions,
    check_heartbeat,
)
from headrace.folds.group.consumer_topics import KnownTopic, TopicView
from headrace.model.errors import GroupError
from headrace.model.ids import PartitionId

SESSION_MS = 10_000
REBALANCE_MS = 5_000
LIMITS = ConsumerLimits(session_timeout_ms=SESSION_MS, members_max=6)
NOTHING: Partitions = frozenset()


class Client:
    """What one client has and believes. It gives partitions up when the test lets it."""

    def __init__(
        self,
        member_id: str,
        *,
        names: tuple[str, ...] = ("t",),
        regex: str = "",
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.names = names
        self.regex = regex
        self.assignor = assignor
        self.epoch = JOIN_EPOCH
        self.owned = NOTHING
        self.wanted = NOTHING  # the last assignment that it was told
        self.must_say_all = True  # it joins, has subscribed anew, or has not heard the last answer
        self.must_say_owned = False

    def request(self) -> ConsumerHeartbeat:
        if not self.must_say_all:
            owned = self.owned if self.must_say_owned else None
            return ConsumerHeartbeat(self.member_id, self.epoch, owned=owned)
        return ConsumerHeartbeat(
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            topic_names=self.names,
            topic_regex=self.regex,
            assignor=self.assignor,
            owned=self.owned,
        )

    def hear(self, answer: ConsumerAnswer) -> None:
        assert answer.member_epoch >= self.epoch, "a member's epoch never goes back"
        self.epoch = answer.member_epoch
        self.must_say_all = self.must_say_owned = False
        if answer.assignment is not None:
            self.wanted = answer.assignment
        if not self.owned - self.wanted:
            self.take()

    def give_up(self) -> None:
        """Stop reading what it is not to have; the next heartbeat says so."""
        kept = self.owned & self.wanted
        self.must_say_owned |= self.owned != kept
        self.owned = kept
        self.take()

    def take(self) -> None:
        self.must_say_owned |= self.owned != self.wanted
        self.owned = self.wanted

    def start_anew(self) -> None:
        """Everything is lost: a fenced member, or a process that begins."""
        self.epoch = JOIN_EPOCH
        self.owned = self.wanted = NOTHING
        self.must_say_all = True


class Script:
    def __init__(self, limits: ConsumerLimits = LIMITS, **topics: int) -> None:
        self.limits = limits
        self.group = ConsumerGroup("g", limits)
        self.now_ms = 1000
        self.revision = 0
        self.topics: dict[str, KnownTopic] = {}
        self._ids = 0
        for name, count in (topics or {"t": 6}).items():
            self.make(name, count)

    def make(self, name: str, count: int) -> None:
        """A topic that is new, or has more partitions now."""
        known = self.topics.get(name)
        self._ids += 1
        self.topics[name] = KnownTopic(UUID(int=self._ids) if known is None else known.topic_id, count)
        self.revision += 1

    def delete(self, name: str) -> None:
        del self.topics[name]
        self.revision += 1

    def ask(self, request: ConsumerHeartbeat) -> ConsumerAnswer | type[GroupError]:
        check_heartbeat(request)
        return self.group.heartbeat(request, TopicView(self.revision, dict(self.topics)), self.now_ms)

    def beat(self, client: Client) -> type[GroupError] | None:
        """One heartbeat that is heard; a client that is refused begins anew."""
        answer = self.ask(client.request())
        if not isinstance(answer, ConsumerAnswer):
            client.start_anew()
            return answer
        client.hear(answer)
        return None

    def settle(self, *clients: Client) -> None:
        """Let everybody go on until nothing moves any more."""
        for _ in range(12):
            for client in clients:
                assert self.beat(client) is None
                client.give_up()
        assert self.group.state_name == "Stable"

    def leave(self, client: Client, *, for_a_while: bool = False) -> type[GroupError] | None:
        epoch = STATIC_LEAVE_EPOCH if for_a_while else LEAVE_EPOCH
        answer = self.ask(ConsumerHeartbeat(client.member_id, epoch, instance_id=client.instance_id))
        client.start_anew()
        return None if isinstance(answer, ConsumerAnswer) else answer

    def commit(self, client: Client, *, epoch: int | None = None) -> type[GroupError] | None:
        at = client.epoch if epoch is None else epoch
        return self.group.check_commit(client.member_id, at, None, is_transactional=False, now_ms=self.now_ms)

    def elapse(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.group.tick(self.now_ms)
        self.now_ms = end_ms

    def restart(self) -> None:
        """Go on from what was stored."""
        self.group = ConsumerGroup.restore("g", self.group.image(), self.limits, now_ms=self.now_ms)

    def all_of(self, *names: str) -> Partitions:
        topics = [self.topics[name] for name in names]
        return frozenset(PartitionId(one.topic_id, index) for one in topics for index in range(one.partition_count))


def indexes(partitions: Partitions) -> list[int]:
    return sorted(partition.partition for partition in partitions)
