"""Members of a share group: what each is told, and what is stored before it is told."""

from uuid import UUID

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.folds.group.machine import Instruction, StoreGroup
from headrace.folds.group.share import Shared, SharedTopic, ShareGroup, ShareHeartbeat, ShareLimits
from headrace.model.errors import FencedMemberEpochError, GroupError, GroupFullError, UnknownMemberError

LIMITS = ShareLimits(session_timeout_ms=1000, members_max=3)
ORDERS = SharedTopic(UUID(int=1), 3)
MAILS = SharedTopic(UUID(int=2), 1)


class Script:
    """A group, the queues there are, and the time."""

    def __init__(self) -> None:
        self.group = ShareGroup("g", LIMITS)
        self.queues = {"orders": ORDERS, "mails": MAILS}
        self.now_ms = 0
        self.instructions: list[Instruction] = []

    def beat(self, member_id: str, epoch: int, *topics: str) -> Shared | type[GroupError]:
        request = ShareHeartbeat(member_id, epoch, topics or None)
        answer, self.instructions = self.group.heartbeat(request, self.queues.get, self.now_ms)
        return answer

    def join(self, member_id: str, *topics: str) -> Shared:
        answer = self.beat(member_id, 0, *(topics or ("orders",)))
        assert isinstance(answer, Shared)
        return answer

    def restart(self) -> None:
        self.group = ShareGroup.restore("g", self.group.image(), LIMITS, now_ms=self.now_ms)


def test_every_member_gets_all_partitions_of_its_queues() -> None:
    script = Script()
    assert script.join("a", "orders").assignment == [ORDERS]
    assert script.instructions == [StoreGroup()], "the epoch is stored before the member is told"
    assert script.join("b", "mails", "orders").assignment == [MAILS, ORDERS]
    assert script.group.state_name == "Stable"


def test_a_member_that_has_the_latest_epoch_is_told_nothing_new() -> None:
    script = Script()
    epoch = script.join("a").member_epoch
    assert script.beat("a", epoch) == Shared(epoch)
    assert script.instructions == []


def test_a_member_that_is_behind_is_given_its_assignment_again_until_it_has_heard_of_it() -> None:
    script = Script()
    before = script.join("a").member_epoch
    script.join("b")
    for _ in range(2):
        answer = script.beat("a", before)
        assert isinstance(answer, Shared)
        assert (answer.member_epoch > before, answer.assignment) == (True, [ORDERS])


def test_a_queue_that_appears_grows_or_goes_reaches_its_subscribers() -> None:
    script = Script()
    epoch = script.join("a", "orders", "later").member_epoch
    for queues, assignment in [
        ({"orders": ORDERS, "later": MAILS}, [MAILS, ORDERS]),
        ({"orders": SharedTopic(ORDERS.topic_id, 5), "later": MAILS}, [MAILS, SharedTopic(ORDERS.topic_id, 5)]),
        ({"later": MAILS}, [MAILS]),
    ]:
        script.queues = queues
        answer = script.beat("a", epoch)
        assert isinstance(answer, Shared)
        assert (answer.assignment, script.instructions) == (assignment, [StoreGroup()])
        epoch = answer.member_epoch


def test_a_member_may_subscribe_anew() -> None:
    script = Script()
    epoch = script.join("a", "orders").member_epoch
    answer = script.beat("a", epoch, "mails")
    assert isinstance(answer, Shared)
    assert answer.assignment == [MAILS]
    assert not script.group.subscribes("orders")
    assert script.group.subscribes("mails")


def test_strangers_and_epochs_from_the_future_are_refused() -> None:
    script = Script()
    assert script.beat("a", 1) is UnknownMemberError
    assert script.beat("a", -1) is UnknownMemberError
    epoch = script.join("a").member_epoch
    assert script.beat("a", epoch + 1) is FencedMemberEpochError


def test_a_group_has_so_many_members_and_no_more() -> None:
    script = Script()
    for member in ("a", "b", "c"):
        script.join(member)
    assert script.beat("d", 0, "orders") is GroupFullError
    assert isinstance(script.beat("a", 0, "orders"), Shared), "who is in may join again"


def test_a_member_leaves_by_its_own_word_or_by_silence() -> None:
    script = Script()
    script.join("a")
    script.now_ms = 600
    script.join("b")
    assert script.beat("b", -1) == Shared(-1)
    assert script.instructions == [StoreGroup()]
    assert script.group.next_deadline() == 1000
    assert script.group.tick(999) == []
    assert script.group.tick(1000) == [StoreGroup()]
    assert (script.group.state_name, script.group.is_empty, script.group.next_deadline()) == ("Empty", True, None)


def test_whoever_was_heard_of_stays() -> None:
    script = Script()
    epoch = script.join("a").member_epoch
    script.join("b")
    script.now_ms = 900
    script.beat("a", epoch)
    script.group.tick(1000)
    assert list(script.group.members) == ["a"]
    assert script.group.next_deadline() == 1900


def test_members_come_back_with_the_node_and_have_a_whole_session() -> None:
    script = Script()
    epoch = script.join("a").member_epoch
    script.now_ms = 900
    script.restart()
    assert script.group.tick(1000) == []
    assert script.beat("a", epoch) == Shared(epoch)
    assert script.beat("a", epoch + 1) is FencedMemberEpochError


def test_members_of_share_groups_commit_no_offsets() -> None:
    script = Script()
    assert script.group.check_commit("", -1, None, is_transactional=False, now_ms=0) is None
    epoch = script.join("a").member_epoch
    assert script.group.check_commit("a", epoch, None, is_transactional=False, now_ms=0) is UnknownMemberError
    assert script.group.check_commit("", -1, None, is_transactional=False, now_ms=0) is UnknownMemberError


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("join"), st.sampled_from("abcd"), st.sets(st.sampled_from(["orders", "mails"]), min_size=1)),
        st.tuples(st.just("beat"), st.sampled_from("abcd"), st.none()),
        st.tuples(st.just("leave"), st.sampled_from("abcd"), st.none()),
        st.tuples(st.just("pass"), st.integers(0, 700), st.none()),
        st.tuples(st.just("queue"), st.sampled_from(["orders", "mails"]), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.none(), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=300)
@given(STEPS)
def test_whatever_happens_a_member_that_has_heard_all_has_all_of_its_queues(
    steps: list[tuple[str, object, object]],
) -> None:
    script = Script()
    told: dict[str, tuple[int, list[SharedTopic]]] = {}
    epoch = 0
    for what, who, how in steps:
        match what:
            case "join" if isinstance(how, set):
                answer = script.beat(str(who), 0, *how)
            case "beat":
                answer = script.beat(str(who), told.get(str(who), (1, []))[0])
            case "leave":
                answer = script.beat(str(who), -1)
                told.pop(str(who), None)
            case "pass" if isinstance(who, int):
                script.now_ms += who
                script.group.tick(script.now_ms)
                epoch = script.group.epoch
                continue
            case "queue" if isinstance(how, int):
                script.queues.pop(str(who), None)
                if how:
                    script.queues[str(who)] = SharedTopic(UUID(int=len(str(who))), how)
                continue
            case _:
                script.restart()
                continue
        assert script.group.epoch >= epoch, "an epoch never goes back"
        assert (script.group.epoch == epoch) == (not script.instructions), "each epoch is stored"
        epoch = script.group.epoch
        if isinstance(answer, Shared) and what != "leave":
            known = told.get(str(who), (0, []))[1] if answer.assignment is None else list(answer.assignment)
            told[str(who)] = answer.member_epoch, known
            topics = script.group.members[str(who)].topics
            assert known == [script.queues[name] for name in topics if name in script.queues]
