"""A classic group under members that do anything in any order, and a node that crashes at any time."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headrace.folds.group.classic import ClassicGroup, ClassicLimits, ClassicState
from headrace.folds.group.machine import AnswerJoin, AnswerSync, Instruction, Refuse, StoreGroup
from headrace.folds.group.request import JoinRequest, Leaving, SyncRequest

LIMITS = ClassicLimits(initial_rebalance_delay_ms=50, members_max=5)
CLIENTS = st.integers(0, 4)


class Client:
    """What one client believes."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.is_leader = False
        self.members: tuple[str, ...] = ()
        self.call: int | None = None
        self.must_sync = False


class ClassicGroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.group = ClassicGroup("g", LIMITS)
        self.stored = self.group.image()
        self.now_ms = 0
        self.calls: dict[int, Client] = {}
        self.call = 0
        self.serial = 0
        self.clients = [Client(f"i{at}" if at > 2 else None) for at in range(5)]
        self.leaders: dict[int, str] = {}
        self.owners: dict[tuple[int, bytes], str] = {}
        self.generation_seen = 0

    def carry_out(self, out: list[Instruction]) -> None:
        for one in out:
            match one:
                case StoreGroup():
                    self.stored = self.group.image()
                case AnswerJoin(call, joined):
                    client = self.calls.pop(call)
                    client.call = None
                    client.member_id, client.generation = joined.member_id, joined.generation
                    client.members = tuple(member.member_id for member in joined.members)
                    client.must_sync = True
                    client.is_leader = joined.member_id == joined.leader and not joined.skip_assignment
                    assert joined.generation >= self.generation_seen, "a generation is not handed out again"
                    self.generation_seen = joined.generation
                    if client.is_leader:
                        known = self.leaders.setdefault(joined.generation, joined.member_id)
                        assert known == joined.member_id, "one leader shares a generation out"
                case AnswerSync(call, synced):
                    client = self.calls.pop(call)
                    client.call = None
                    client.must_sync = False
                    if synced.assignment:
                        owner = self.owners.setdefault((client.generation, synced.assignment), client.member_id)
                        has_taken_over = client.instance_id is not None
                        assert owner == client.member_id or has_taken_over, "a partition has one owner in a generation"
                case Refuse(call, _, member_id):
                    client = self.calls.pop(call)
                    client.call = None
                    client.member_id = member_id
                    client.generation = -1

    @rule(at=CLIENTS, is_id_required=st.booleans(), flavour=st.sampled_from([b"x", b"y"]))
    def join(self, at: int, is_id_required: bool, flavour: bytes) -> None:
        client = self.clients[at]
        if client.call is not None:
            return
        self.call += 1
        self.serial += 1
        client.call = self.call
        self.calls[self.call] = client
        request = JoinRequest(
            call=self.call,
            member_id=client.member_id,
            instance_id=client.instance_id,
            client_id="c",
            client_host="h",
            session_timeout_ms=100 + 10 * at,
            rebalance_timeout_ms=200 + 50 * at,
            protocol_type="consumer",
            protocols=(("range", flavour), ("sticky", flavour)),
            new_member_id=f"m{self.serial}",
            is_id_required=is_id_required,
        )
        self.carry_out(self.group.join(request, self.now_ms))

    @rule(at=CLIENTS)
    def sync(self, at: int) -> None:
        client = self.clients[at]
        if client.call is not None:
            return
        self.call += 1
        client.call = self.call
        self.calls[self.call] = client
        shares = tuple((member, b"p%d" % index) for index, member in enumerate(client.members))
        request = SyncRequest(
            call=self.call,
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
            protocol_type=None,
            protocol_name=None,
            assignments=shares if client.is_leader else (),
        )
        self.carry_out(self.group.sync(request, self.now_ms))

    @rule(at=CLIENTS)
    def heartbeat(self, at: int) -> None:
        client = self.clients[at]
        self.group.heartbeat(client.member_id, client.generation, client.instance_id, self.now_ms)

    @rule(at=CLIENTS)
    def restart_client(self, at: int) -> None:
        """Its process is killed and started again: it remembers nothing, and hears no answer."""
        client = self.clients[at]
        client.member_id, client.generation, client.is_leader, client.members = "", -1, False, ()
        if client.call is not None:
            self.calls[client.call] = Client(client.instance_id)
            client.call = None

    @rule(at=CLIENTS)
    def leave(self, at: int) -> None:
        client = self.clients[at]
        _, out = self.group.leave([Leaving(client.member_id, client.instance_id)], self.now_ms)
        self.carry_out(out)

    @rule(ms=st.integers(1, 150))
    def elapse(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while (due_ms := self.group.next_deadline()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.carry_out(self.group.tick(self.now_ms))
            after_ms = self.group.next_deadline()
            assert after_ms is None or after_ms > self.now_ms, "what is due is done"
        self.now_ms = end_ms

    @rule()
    def crash(self) -> None:
        """The node comes back with what was stored; every open call is lost with its connection."""
        self.group = ClassicGroup.restore("g", self.stored, LIMITS, now_ms=self.now_ms)
        for client in self.calls.values():
            client.call = None
        self.calls.clear()

    @precondition(lambda self: not self.calls)
    @rule()
    def settle(self) -> None:
        """Clients that behave: the group becomes stable, and stays so."""
        for _ in range(12):
            for client in self.clients:
                self._behave(client)
            self.elapse(30)
        if self.group.member_count:
            assert self.group.state is ClassicState.STABLE

    def _behave(self, client: Client) -> None:
        at = self.clients.index(client)
        if client.call is not None:
            return
        if client.generation < 0:
            self.join(at, False, b"x")
        elif self.group.heartbeat(client.member_id, client.generation, client.instance_id, self.now_ms) is not None:
            if not self.group.roster.has(client.member_id) or client.instance_id is not None:
                client.member_id = ""
            self.join(at, False, b"x")
        elif client.must_sync:
            self.sync(at)

    @invariant()
    def whoever_waits_is_waited_for(self) -> None:
        waiting = {
            call for member in self.group.roster for call in (member.join_call, member.sync_call) if call is not None
        }
        assert waiting == set(self.calls), "no call is forgotten, none is answered twice"

    @invariant()
    def the_group_holds_together(self) -> None:
        group = self.group
        assert (group.state is ClassicState.EMPTY) <= (group.member_count == 0)
        assert (group.roster.leader != "") == (group.member_count > 0)
        assert group.member_count <= LIMITS.members_max
        if self.calls:
            assert group.next_deadline() is not None, "nobody waits for ever"


ClassicGroupMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40)
TestClassicGroup = ClassicGroupMachine.TestCase
