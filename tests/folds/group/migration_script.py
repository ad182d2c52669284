"""A group that changes between the protocols, and clients of the classic one that behave as real ones do.

`Script` asks the group as the broker does (`broker/group`): the first member of the consumer protocol turns a stable
classic group into a consumer group, and when the last of these is gone it is a classic one again.
"""

from collections.abc import Sequence
from uuid import UUID

from tests.folds.group.consumer_script import REBALANCE_MS, SESSION_MS, Client

from headrace.folds.group.classic import ClassicGroup, ClassicLimits, ClassicState
from headrace.folds.group.consumer import ConsumerGroup, ConsumerLimits
from headrace.folds.group.consumer_classic import ClassicMembers, named_partitions, partitions_of
from headrace.folds.group.consumer_request import ConsumerAnswer, ConsumerHeartbeat, Partitions, check_heartbeat
from headrace.folds.group.consumer_topics import KnownTopic, TopicView
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import AnswerJoin, AnswerSync, Instruction, JoinedMember, Refuse, StoreGroup
from headrace.folds.group.migration import to_classic, to_consumer
from headrace.folds.group.protocol import read_assignment, read_subscription, write_assignment
from headrace.folds.group.request import JoinRequest, Leaving, SyncRequest
from headrace.model.errors import (
    GroupError,
    GroupUnsettledError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)
from headrace.model.ids import PartitionId
from headrace.wire.kafka.messages.consumer_protocol_subscription import (
    ConsumerProtocolSubscription,
    TopicPartition,
    write_data,
)
from headrace.wire.kafka.primitives import INT16, Writer

VIEW = TopicView(1, {"t": KnownTopic(UUID(int=1), 4), "u": KnownTopic(UUID(int=2), 3)})
CLASSIC = ClassicLimits(initial_rebalance_delay_ms=50, members_max=6)
CONSUMER = ConsumerLimits(session_timeout_ms=SESSION_MS, members_max=6)
NOTHING: Partitions = frozenset()


class ClassicClient:
    """What one process with the classic protocol has and believes."""

    def __init__(self, *, is_cooperative: bool, instance_id: str | None = None) -> None:
        self.is_cooperative = is_cooperative
        self.instance_id = instance_id
        self.names: tuple[str, ...] = ("t",)
        self.told: tuple[str, ...] = self.names  # what it joined with
        self.member_id = ""
        self.generation = -1
        self.owned = NOTHING
        self.wanted: Partitions | None = None  # what it is left with, until it has given up the rest
        self.members: tuple[JoinedMember, ...] = ()
        self.call: int | None = None
        self.must_join = True
        self.must_sync = False
        self.was_passed_over = False  # see `Script.pass_over`

    @property
    def assignor(self) -> str:
        return "cooperative-sticky" if self.is_cooperative else "range"

    def lose(self, why: type[GroupError], member_id: str = "") -> None:
        """It was refused, and stops reading unless it only has to join again."""
        self.must_join, self.must_sync = True, False
        self.was_passed_over = False
        if why is RebalanceInProgressError:
            return
        self.owned, self.wanted, self.generation = NOTHING, None, -1
        if why is UnknownMemberError:
            self.member_id = ""
        elif why is MemberIdRequiredError:
            self.member_id = member_id

    def give_up(self) -> None:
        if self.wanted is not None:
            self.owned, self.wanted, self.must_join = self.wanted, None, True

    def hear_join(self, answer: AnswerJoin) -> None:
        joined = answer.joined
        self.member_id, self.generation = joined.member_id, joined.generation
        is_leader = joined.leader == joined.member_id and not joined.skip_assignment
        self.members = joined.members if is_leader else ()
        self.was_passed_over = False
        self.must_join, self.must_sync = self.told != self.names, True

    def hear_sync(self, answer: AnswerSync) -> None:
        self.must_sync = False
        found = read_assignment(answer.synced.assignment, self.assignor)
        assert found is not None
        assigned = partitions_of(found, VIEW)
        if self.is_cooperative and self.owned - assigned:
            self.wanted = assigned
        else:
            self.owned = assigned

    def metadata(self) -> bytes:
        topics: dict[str, list[int]] = {}
        for name, index in sorted(named_partitions(self.owned, VIEW)):
            topics.setdefault(name, []).append(index)
        owned = tuple(TopicPartition(name, tuple(indexes)) for name, indexes in topics.items())
        writer = Writer()
        writer.put(INT16.pack(1))
        write_data(writer, ConsumerProtocolSubscription(self.names, None, owned), 1)
        return writer.getvalue()

    def shares(self) -> tuple[tuple[str, bytes], ...]:
        """What it gives the others as their leader. A cooperative one leaves out what somebody else still reads."""
        told = {one.member_id: read_subscription(one.metadata) for one in self.members}
        shares: dict[str, set[PartitionId]] = {member_id: set() for member_id in told}
        readers = {
            partition: member_id
            for member_id, one in told.items()
            for partition in partitions_of(one.owned if one is not None else (), VIEW)
        }
        at = 0
        for name, topic in VIEW.topics.items():
            interested = [member_id for member_id, one in told.items() if one is not None and name in one.topics]
            for index in range(topic.partition_count if interested else 0):
                partition = PartitionId(topic.topic_id, index)
                owner = interested[at % len(interested)]
                at += 1
                if readers.get(partition, owner) == owner:
                    shares[owner].add(partition)
        return tuple(
            (member_id, write_assignment(named_partitions(frozenset(share), VIEW)))
            for member_id, share in shares.items()
        )


Asking = ClassicClient | Client


class Script:
    def __init__(self) -> None:
        self.machine: ClassicGroup | ConsumerGroup = ClassicGroup("g", CLASSIC)
        self.stored = self.machine.kind, self.machine.image()
        self.now_ms = 1000
        self.waiting: dict[int, ClassicClient] = {}
        self.changes = 0
        self._calls = 0
        self._ids = 0

    # The node.

    def store(self) -> None:
        self.stored = self.machine.kind, self.machine.image()

    def crash(self) -> None:
        """Go on from what was stored; every call that waited is lost with its connection."""
        kind, image = self.stored
        if kind is GroupKind.CLASSIC:
            self.machine = ClassicGroup.restore("g", image, CLASSIC, now_ms=self.now_ms)
        else:
            self.machine = ConsumerGroup.restore("g", image, CONSUMER, now_ms=self.now_ms)
        for client in self.waiting.values():
            client.call = None
            client.must_join, client.must_sync = True, False
        self.waiting.clear()

    def knows(self, client: Asking) -> bool:
        if isinstance(self.machine, ClassicGroup):
            return self.machine.roster.has(client.member_id)
        return client.member_id in self.machine.members

    def pass_over(self, clients: Sequence[Asking]) -> None:
        """Note the static members that a classic generation has begun without.

        Their places are kept, but what they still read the leader does not know: that is so with the classic protocol,
        which fences them with their next word.
        """
        if isinstance(self.machine, ClassicGroup):
            for client in clients:
                if isinstance(client, ClassicClient) and client.instance_id is not None and self.knows(client):
                    known = (self.machine.generation, self.machine.roster[client.member_id].generation)
                    client.was_passed_over |= client.generation not in known

    def elapse(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.machine.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._carry_out(self.machine.tick(self.now_ms))
        self.now_ms = end_ms

    def _carry_out(self, out: Sequence[Instruction], *, is_heard: bool = True) -> None:
        for one in out:
            match one:
                case StoreGroup():
                    self.store()
                case AnswerJoin() | AnswerSync() | Refuse():
                    client = self.waiting.pop(one.call, None)
                    if client is None or client.call != one.call:
                        continue  # its process is gone
                    client.call = None
                    if not is_heard:
                        client.must_join, client.must_sync = True, False
                    elif isinstance(one, AnswerJoin):
                        client.hear_join(one)
                    elif isinstance(one, AnswerSync):
                        client.hear_sync(one)
                    else:
                        client.lose(one.why, one.member_id)
        machine = self.machine
        if isinstance(machine, ConsumerGroup) and machine.is_all_classic:
            self.machine = to_classic(machine, CLASSIC, VIEW, now_ms=self.now_ms)
            self.changes += 1
            self.store()

    # Members of the classic protocol.

    def _side(self) -> ClassicGroup | ClassicMembers:
        if isinstance(self.machine, ConsumerGroup):
            if self.machine.members:
                return ClassicMembers(self.machine, VIEW)
            self.machine = ClassicGroup("g", CLASSIC, generation=self.machine.epoch)
        return self.machine

    def step(self, client: ClassicClient, *, is_heard: bool = True) -> None:
        """What the client does next: join, ask for its partitions, or say that it is alive."""
        if client.call is not None:
            return
        if client.wanted is None and client.must_join:
            self._join(client, is_heard=is_heard)
        elif client.wanted is None and client.must_sync:
            self._sync(client, is_heard=is_heard)
        else:
            why = self._side().heartbeat(client.member_id, client.generation, client.instance_id, self.now_ms)
            if why is not None and is_heard:
                client.lose(why)

    def _call(self, client: ClassicClient) -> int:
        self._calls += 1
        client.call = self._calls
        self.waiting[self._calls] = client
        return self._calls

    def _join(self, client: ClassicClient, *, is_heard: bool) -> None:
        if not client.is_cooperative:
            client.owned = NOTHING
        client.told = client.names
        self._ids += 1
        request = JoinRequest(
            call=self._call(client),
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="c",
            client_host="h",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type="consumer",
            protocols=((client.assignor, client.metadata()),),
            new_member_id=f"classic-{self._ids}",
        )
        self._carry_out(self._side().join(request, self.now_ms), is_heard=is_heard)

    def _sync(self, client: ClassicClient, *, is_heard: bool) -> None:
        request = SyncRequest(
            call=self._call(client),
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
            protocol_type="consumer",
            protocol_name=client.assignor,
            assignments=client.shares() if client.members else (),
        )
        self._carry_out(self._side().sync(request, self.now_ms), is_heard=is_heard)

    def leave(self, client: ClassicClient) -> None:
        _, out = self._side().leave([Leaving(client.member_id)], self.now_ms)
        self._carry_out(out)

    # Members of the consumer protocol.

    def ask(self, request: ConsumerHeartbeat) -> ConsumerAnswer | type[GroupError]:
        check_heartbeat(request)
        machine = self.machine
        if isinstance(machine, ClassicGroup):
            if request.member_epoch != 0:
                return UnknownMemberError
            if machine.roster and machine.state is not ClassicState.STABLE:
                return GroupUnsettledError
            group = to_consumer(machine, CONSUMER, VIEW, now_ms=self.now_ms)
            assert group is not None
        else:
            group = machine
        answer = group.heartbeat(request, VIEW, self.now_ms)
        if not isinstance(answer, ConsumerAnswer):
            return answer
        self.changes += group is not self.machine
        self.machine = group
        if answer.is_changed:
            self.store()
        self._carry_out([])
        return answer
