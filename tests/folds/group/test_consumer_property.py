"""A consumer group under clients that do anything in any order, answers that are lost, and a node that crashes.

The clients are as real ones: they read what they were told to read until they have given it up, and say so. Whatever
happens, no partition is read by two of them, and once they are left in peace everything is read by one.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.folds.group.consumer_script import LIMITS, REBALANCE_MS, SESSION_MS, Client, Script

from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_request import ConsumerAnswer, Partitions

COUNT = 4
CLIENTS = st.integers(0, COUNT - 1)
NAMES = ("t", "u", "v")
SUBSCRIPTIONS = st.sampled_from([(("t",), ""), (("t", "u"), ""), (("v",), "t"), ((), "[tu]"), ((), "")])


class ConsumerGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.script = Script(t=4, u=3)
        self.serial = 0
        self.is_alive = [False] * COUNT
        self.clients = [self.client(at) for at in range(COUNT)]
        self.stored = self.script.group.image()
        self.epoch_seen = 0

    def client(self, at: int) -> Client:
        """A new process in a client's place; the last is a static member."""
        self.serial += 1
        return Client(f"m{self.serial}", instance_id=f"i{at}" if at == COUNT - 1 else None)

    def crash(self) -> None:
        self.script.group = ConsumerGroup.restore("g", self.stored, LIMITS, now_ms=self.script.now_ms)

    def beat(self, at: int, fate: str = "heard") -> None:
        client, script = self.clients[at], self.script
        before = script.group.image()
        answer = script.ask(client.request())
        if not isinstance(answer, ConsumerAnswer):
            assert script.group.image() == before, "a refusal changes nothing"
            client.start_anew()
            return
        assert answer.is_changed or script.group.image() == before, "what has changed is stored"
        if fate == "crash before it is durable":
            self.crash()
            client.must_say_all = True
            return
        self.stored = script.group.image()
        if fate == "not heard":
            client.must_say_all = True
        else:
            client.hear(answer)
            self.epoch_seen = max(self.epoch_seen, answer.member_epoch)

    @rule(at=CLIENTS, fate=st.sampled_from(["heard", "heard", "not heard", "crash before it is durable"]))
    def heartbeat(self, at: int, fate: str) -> None:
        self.is_alive[at] = True
        self.beat(at, fate)

    @rule(order=st.lists(CLIENTS, min_size=2, max_size=8))
    def heartbeats(self, order: list[int]) -> None:
        """Several that go well: most do."""
        for at in order:
            self.heartbeat(at, "heard")

    @rule(at=CLIENTS)
    def give_up(self, at: int) -> None:
        self.clients[at].give_up()

    @rule(at=CLIENTS, subscription=SUBSCRIPTIONS, assignor=st.sampled_from([None, "uniform", "range"]))
    def subscribe(self, at: int, subscription: tuple[tuple[str, ...], str], assignor: str | None) -> None:
        client = self.clients[at]
        client.names, client.regex = subscription
        client.assignor = assignor
        client.must_say_all = True

    @rule(at=CLIENTS, for_a_while=st.booleans())
    def leave(self, at: int, for_a_while: bool) -> None:
        client = self.clients[at]
        if client.epoch > 0:
            self.script.leave(client, for_a_while=for_a_while and client.instance_id is not None)
            self.stored = self.script.group.image()
        self.is_alive[at] = False
        self.clients[at] = self.client(at)

    @rule(at=CLIENTS)
    def die(self, at: int) -> None:
        """Without a word; another process takes its place."""
        self.is_alive[at] = False
        self.clients[at] = self.client(at)

    @rule(at=CLIENTS)
    def lose_everything(self, at: int) -> None:
        """A client that was fenced, or thinks so."""
        self.clients[at].start_anew()

    @rule()
    def crash_the_node(self) -> None:
        self.crash()

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6))
    def make_topic(self, name: str, count: int) -> None:
        known = self.script.topics.get(name)
        if known is None or known.partition_count < count:
            self.script.make(name, count)

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        if name in self.script.topics:
            self.script.delete(name)

    @rule(ms=st.sampled_from([1, REBALANCE_MS, SESSION_MS]))
    def elapse(self, ms: int) -> None:
        self.script.elapse(ms)
        self.stored = self.script.group.image()

    @rule()
    def be_left_in_peace(self) -> None:
        """Those who live go on, the dead are dropped in time, and then everything has one owner."""
        alive = [at for at in range(COUNT) if self.is_alive[at]]
        for _ in range(30):
            for at in alive:
                self.beat(at)
                self.clients[at].give_up()
            self.script.elapse(SESSION_MS // 8)
            self.stored = self.script.group.image()
        group = self.script.group
        assert group.state_name == ("Stable" if alive else "Empty")
        assert group.member_count == len(alive)
        wanted = self.script.all_of(*(name for name in self.script.topics if group.subscribes(name)))
        owned = [self.clients[at].owned for at in alive]
        if any(self.clients[at].names or self.clients[at].regex for at in alive):
            assert frozenset[object]().union(*owned) == wanted
        if group.assignor == "uniform" and len({(self.clients[at].names, self.clients[at].regex) for at in alive}) == 1:
            sizes = [len(partitions) for partitions in owned]
            assert max(sizes) - min(sizes) <= 1

    def living(self) -> list[Partitions]:
        """What those read whom the coordinator has not dropped: the others learn it with their next heartbeat."""
        known = self.script.group.members
        return [client.owned for client in self.clients if client.member_id in known]

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        counts = Counter(partition for owned in self.living() for partition in owned)
        assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def what_a_client_reads_is_held_for_it(self) -> None:
        known = self.script.group.members
        for client in self.clients:
            member = known.get(client.member_id)
            if member is not None:
                assert client.owned <= member.held

    @invariant()
    def no_epoch_is_ahead_of_the_groups(self) -> None:
        group = self.script.group
        assert group.epoch >= group.assignment_epoch >= self.epoch_seen
        assert all(member.epoch <= group.assignment_epoch for member in group.members.values())


TestConsumerGroup = ConsumerGroupMachine.TestCase
TestConsumerGroup.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
