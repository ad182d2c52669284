"""A group whose members change their protocol in any order, with answers that are lost and a node that crashes.

Clients of both protocols are as real ones: they read what they were told to read until they have given it up (the eager
ones before they join). Whatever happens, no partition is read by two of them (scar Q5), and once they are left in peace
everything is read by one.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.folds.group.consumer_script import REBALANCE_MS, SESSION_MS, Client
from tests.folds.group.migration_script import VIEW, Asking, ClassicClient, Script

from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_request import LEAVE_EPOCH, ConsumerAnswer, ConsumerHeartbeat, Partitions
from headrace.folds.group.kind import GroupKind
from headrace.model.errors import GroupUnsettledError
from headrace.model.ids import PartitionId

COUNT = 4
CLIENTS = st.integers(0, COUNT - 1)
FATES = st.sampled_from(["heard", "heard", "heard", "not heard", "crash before it is durable"])
SUBSCRIPTIONS = st.sampled_from([("t",), ("u",), ("t", "u")])


class MigrationMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.script = Script()
        self.serial = 0
        self.is_cooperative = False
        self.clients: list[Asking] = []
        self.is_alive = [False] * COUNT

    @initialize(is_cooperative=st.booleans())
    def begin(self, is_cooperative: bool) -> None:
        self.is_cooperative = is_cooperative
        self.clients = [self.process(at, "classic") for at in range(COUNT)]

    def process(self, at: int, protocol: str) -> Asking:
        """A new process in a client's place; the last is a static member."""
        self.serial += 1
        instance_id = f"i{at}" if at == COUNT - 1 else None
        if protocol == "classic":
            return ClassicClient(is_cooperative=self.is_cooperative, instance_id=instance_id)
        return Client(f"m{self.serial}", instance_id=instance_id)

    def go_on(self, at: int, fate: str) -> None:
        """One step of a client."""
        self.is_alive[at] = True
        client, script = self.clients[at], self.script
        before = script.stored
        if isinstance(client, ClassicClient):
            script.step(client, is_heard=fate == "heard")
        else:
            answer = script.ask(client.request())
            if isinstance(answer, ConsumerAnswer):
                if fate == "heard":
                    client.hear(answer)
                else:
                    client.must_say_all = True
            elif fate == "heard" and answer is not GroupUnsettledError:
                client.start_anew()
        if fate == "crash before it is durable":
            script.stored = before
            script.crash()

    @rule(at=CLIENTS, fate=FATES)
    def step(self, at: int, fate: str) -> None:
        self.go_on(at, fate)

    @rule(order=st.lists(CLIENTS, min_size=4, max_size=16), gives_up=st.booleans())
    def steps(self, order: list[int], gives_up: bool) -> None:
        """Several that go well: most do."""
        for at in order:
            self.go_on(at, "heard")
            if gives_up:
                self.clients[at].give_up()
        self.script.elapse(60)

    @rule(at=CLIENTS)
    def give_up(self, at: int) -> None:
        self.clients[at].give_up()

    @rule(at=CLIENTS, names=SUBSCRIPTIONS)
    def subscribe(self, at: int, names: tuple[str, ...]) -> None:
        client = self.clients[at]
        client.names = names
        if isinstance(client, ClassicClient):
            client.must_join = True
        else:
            client.must_say_all = True

    @rule(at=CLIENTS, protocol=st.sampled_from(["classic", "consumer"]), is_orderly=st.booleans())
    def restart_as(self, at: int, protocol: str, is_orderly: bool) -> None:
        """A process ends, and another takes its place: in good order it leaves, unless it is a static member."""
        client = self.clients[at]
        if is_orderly and client.instance_id is None and self.script.knows(client):
            if isinstance(client, ClassicClient):
                self.script.leave(client)
            else:
                self.script.ask(ConsumerHeartbeat(client.member_id, LEAVE_EPOCH))
        self.is_alive[at] = False
        names = client.names
        if isinstance(client, ClassicClient) and client.call is not None:
            client.call = None
        self.clients[at] = self.process(at, protocol)
        self.clients[at].names = names

    @rule()
    def crash_the_node(self) -> None:
        self.script.crash()

    @rule(ms=st.sampled_from([1, 60, REBALANCE_MS, SESSION_MS]))
    def elapse(self, ms: int) -> None:
        self.script.elapse(ms)

    @rule()
    def be_left_in_peace(self) -> None:
        """Those who live go on, the dead are dropped in time, and then everything has one reader."""
        alive = [at for at in range(COUNT) if self.is_alive[at]]
        for _ in range(60):
            for at in alive:
                self.go_on(at, "heard")
                self.clients[at].give_up()
            self.script.elapse(SESSION_MS // 8)
        machine = self.script.machine
        assert machine.state_name == ("Stable" if alive else "Empty")
        assert machine.member_count == len(alive)
        if alive:
            is_mixed = any(isinstance(self.clients[at], Client) for at in alive)
            assert machine.kind is (GroupKind.CONSUMER if is_mixed else GroupKind.CLASSIC)
        wanted = {name for at in alive for name in self.clients[at].names}
        topics = [VIEW.topics[name] for name in wanted]
        every = {PartitionId(one.topic_id, index) for one in topics for index in range(one.partition_count)}
        owned = [self.clients[at].owned for at in alive]
        assert frozenset[PartitionId]().union(*owned) == every

    def living(self) -> list[tuple[Asking, Partitions]]:
        """What those read whom the coordinator has not dropped: the others learn it with their next word."""
        self.script.pass_over(self.clients)
        known = [client for client in self.clients if self.script.knows(client)]
        passed_over = [client for client in known if isinstance(client, ClassicClient) and client.was_passed_over]
        return [(client, client.owned) for client in known if client not in passed_over]

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        counts = Counter(partition for _, owned in self.living() for partition in owned)
        assert all(count == 1 for count in counts.values()), counts

    @invariant()
    def what_a_client_reads_is_held_for_it(self) -> None:
        machine = self.script.machine
        if isinstance(machine, ConsumerGroup):
            for client, owned in self.living():
                assert owned <= machine.members[client.member_id].held

    @invariant()
    def what_is_stored_is_what_comes_back(self) -> None:
        machine = self.script.machine
        if isinstance(machine, ConsumerGroup):
            kind, image = self.script.stored
            assert kind is GroupKind.CONSUMER
            assert image == machine.image()


TestMigration = MigrationMachine.TestCase
TestMigration.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
