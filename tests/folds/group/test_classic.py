"""A classic group's way through its states, as lists of instructions."""

from tests.folds.group.script import NO_DELAY, REBALANCE_MS, SESSION_MS, Script, assigned, joined, refused

from headrace.folds.group.classic import NEW_MEMBER_TIMEOUT_MS, ClassicLimits
from headrace.folds.group.machine import AnswerJoin, AnswerSync, Joined, JoinedMember, Refuse, StoreGroup, Synced
from headrace.folds.group.request import Leaving
from headrace.model.errors import (
    GroupFullError,
    IllegalGenerationError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberError,
)

MEMBER_A = JoinedMember("a", None, b"topics")
MEMBER_B = JoinedMember("b", None, b"topics")


def test_a_generation_is_stored_before_its_first_member_is_told() -> None:
    script = Script()
    assert script.enter("a") == [
        StoreGroup(),
        AnswerJoin(1, Joined("a", 1, "consumer", "range", "a", (MEMBER_A,))),
    ]
    assert script.group.state_name == "CompletingRebalance"


def test_the_leaders_assignment_is_stored_before_anybody_is_told() -> None:
    script = Script()
    script.enter("a")
    assert script.sync("a", {"a": b"all"}) == [StoreGroup(), AnswerSync(2, Synced("consumer", "range", b"all"))]
    assert script.group.state_name == "Stable"


def test_a_newcomer_waits_until_all_have_joined_again() -> None:
    script = Script()
    script.form("a")
    assert script.enter("b") == []
    assert script.heartbeat("a") is RebalanceInProgressError
    call = script.calls
    assert script.join("a") == [
        StoreGroup(),
        AnswerJoin(call + 1, Joined("a", 2, "consumer", "range", "a", (MEMBER_A, MEMBER_B))),
        AnswerJoin(call, Joined("b", 2, "consumer", "range", "a", ())),
    ]


def test_a_follower_that_syncs_first_waits_for_the_leader() -> None:
    script = Script()
    script.form("a")
    script.enter("b")
    script.join("a")
    assert script.sync("b") == []
    out = script.sync("a", {"a": b"1", "b": b"2"})
    assert assigned(out) == [b"1", b"2"]
    assert assigned(script.sync("b")) == [b"2"], "a client that did not hear the answer asks again"


def test_a_member_that_the_leader_forgot_gets_nothing() -> None:
    script = Script()
    script.form("a")
    script.enter("b")
    script.join("a")
    script.sync("b")
    assert assigned(script.sync("a", {"a": b"1", "stranger": b"3"})) == [b"1", b""]


def test_a_new_member_is_first_told_its_id() -> None:
    script = Script()
    assert script.join("a", is_new=True, is_id_required=True) == [Refuse(1, MemberIdRequiredError, "a")]
    assert not script.group.is_empty, "somebody is on the way in"
    assert joined(script.join("a", is_id_required=True))[0].member_id == "a"


def test_an_id_that_nobody_came_back_with_is_forgotten() -> None:
    script = Script()
    script.join("a", is_new=True, is_id_required=True)
    assert script.elapse(SESSION_MS) == []
    assert script.group.is_empty
    assert refused(script.join("a")) == [UnknownMemberError]


def test_an_id_that_was_given_out_holds_a_rebalance_back_until_it_is_used_or_late() -> None:
    script = Script()
    script.form("a")
    script.join("b", is_new=True, is_id_required=True)
    assert script.heartbeat("a") is None, "nothing has begun yet"
    assert script.join("a") == [], "the leader joins again, and the newcomer is waited for"
    out = script.elapse(SESSION_MS)
    assert [one.member_id for one in joined(out)] == ["a"]


def test_an_empty_group_waits_a_little_for_more_members() -> None:
    script = Script(ClassicLimits(initial_rebalance_delay_ms=100))
    assert script.enter("a") == []
    assert script.elapse(60) == []
    assert script.enter("b") == []
    assert script.elapse(60) == [], "the newcomer has made it wait once more"
    assert [one.member_id for one in joined(script.elapse(100))] == ["a", "b"]


def test_newcomers_make_an_empty_group_wait_no_longer_than_the_rebalance_time_out() -> None:
    script = Script(ClassicLimits(initial_rebalance_delay_ms=100))
    answers = 0
    for number in range(20):
        answers += len(joined(script.join(f"m{number}", is_new=True, rebalance_ms=500)))
        answers += len(joined(script.elapse(50)))
    assert answers > 0
    assert script.now_ms == 2000


def test_who_does_not_join_again_in_time_is_dropped() -> None:
    script = Script()
    script.form("a", "b")
    call = script.calls
    assert script.join("a") == []
    for _ in range(6):
        script.now_ms += REBALANCE_MS // 6 - 1
        script.heartbeat("b")
    out = script.elapse(6)
    assert out == [StoreGroup(), AnswerJoin(call + 1, Joined("a", 3, "consumer", "range", "a", (MEMBER_A,)))]
    assert script.heartbeat("b") is UnknownMemberError


def test_a_silent_member_is_dropped_and_the_others_share_anew() -> None:
    script = Script()
    script.form("a", "b")
    script.elapse(SESSION_MS - 1)
    script.heartbeat("a")
    script.elapse(1)
    assert script.heartbeat("a") is RebalanceInProgressError
    assert [one.member_id for one in joined(script.join("a"))] == ["a"]


def test_whoever_waits_for_an_answer_is_not_silent() -> None:
    script = Script()
    script.form("a", "b")
    script.join("a", session_ms=1000)
    assert refused(script.elapse(5000)) == []


def test_a_newcomer_whose_generation_never_begins_is_dropped_at_last() -> None:
    script = Script()
    script.form("a", "b")
    script.join("c", is_new=True, rebalance_ms=NEW_MEMBER_TIMEOUT_MS * 2)
    for _ in range(NEW_MEMBER_TIMEOUT_MS // 5000 - 1):
        script.elapse(5000)
        script.heartbeat("a")
        script.heartbeat("b")
    assert refused(script.elapse(5000)) == [UnknownMemberError]


def test_who_joins_and_never_syncs_is_dropped() -> None:
    script = Script()
    script.form("a")
    script.enter("b")
    script.join("a")
    script.sync("a", {"a": b"1", "b": b"2"})
    for _ in range(6):
        script.heartbeat("a")
        script.heartbeat("b")
        script.elapse(REBALANCE_MS // 6)
    assert script.heartbeat("b") is UnknownMemberError
    assert script.heartbeat("a") is RebalanceInProgressError


def test_a_leader_that_dies_before_it_shares_out_is_replaced() -> None:
    script = Script()
    script.form("a")
    script.enter("b")
    script.join("a")
    call = script.calls
    assert script.sync("b") == []
    assert script.elapse(SESSION_MS) == [Refuse(call + 1, RebalanceInProgressError)]
    assert joined(script.join("b")) == [Joined("b", 3, "consumer", "range", "b", (MEMBER_B,))]


def test_leaving_frees_the_others_at_once() -> None:
    script = Script()
    script.form("a", "b")
    script.join("a")
    results, out = script.group.leave([Leaving("b")], script.now_ms)
    assert results == [None]
    assert [one.member_id for one in joined(out)] == ["a"]


def test_the_last_one_to_leave_empties_the_group_for_good() -> None:
    script = Script()
    script.form("a")
    assert script.group.leave([Leaving("a"), Leaving("b")], script.now_ms) == (
        [None, UnknownMemberError],
        [StoreGroup()],
    )
    assert script.group.state_name == "Empty"
    assert script.group.generation == 2
    assert script.group.next_deadline() is None


def test_a_member_that_leaves_while_it_waits_is_told() -> None:
    script = Script()
    script.form("a", "b")
    script.join("a")
    call = script.calls
    _, out = script.group.leave([Leaving("a")], script.now_ms)
    assert out[0] == Refuse(call, UnknownMemberError)


def test_a_follower_that_joins_again_for_nothing_disturbs_nobody() -> None:
    script = Script()
    script.form("a", "b")
    assert joined(script.join("b")) == [Joined("b", 2, "consumer", "range", "a", ())]
    assert script.group.state_name == "Stable"


def test_a_follower_with_another_subscription_makes_a_rebalance() -> None:
    script = Script()
    script.form("a", "b")
    assert script.join("b", protocols=(("range", b"other topics"),)) == []
    assert script.group.state_name == "PreparingRebalance"


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    script = Script()
    script.form("a", "b")
    assert script.join("a") == []
    assert script.heartbeat("b") is RebalanceInProgressError


def test_a_join_that_is_repeated_takes_the_place_of_the_first() -> None:
    script = Script()
    script.form("a", "b")
    script.join("a")
    call = script.calls
    assert script.join("a") == [Refuse(call, RebalanceInProgressError)]


def test_the_protocol_that_most_members_want_of_those_all_know_is_chosen() -> None:
    script = Script(ClassicLimits(initial_rebalance_delay_ms=100))
    script.join("a", is_new=True, protocols=(("sticky", b"a"), ("range", b"a"), ("only-a", b"a")))
    script.join("b", is_new=True, protocols=(("range", b"b"), ("sticky", b"b")))
    script.join("c", is_new=True, protocols=(("range", b"c"), ("sticky", b"c")))
    answers = joined(script.elapse(300))
    assert {one.protocol_name for one in answers} == {"range"}
    assert [one.metadata for one in answers[0].members] == [b"a", b"b", b"c"]


def test_members_that_have_no_protocol_in_common_are_refused() -> None:
    script = Script()
    assert refused(script.join("a", is_new=True, protocols=())) == [InconsistentProtocolError]
    assert refused(script.join("a", is_new=True, protocol_type="")) == [InconsistentProtocolError]
    script.form("a")
    assert refused(script.join("b", is_new=True, protocols=(("sticky", b""),))) == [InconsistentProtocolError]
    assert refused(script.join("b", is_new=True, protocol_type="connect")) == [InconsistentProtocolError]
    script.enter("b")
    script.join("a")
    assert refused(script.sync("a", {}, protocol_name="sticky")) == [InconsistentProtocolError]


def test_a_group_takes_no_more_members_than_it_may_have() -> None:
    script = Script(NO_DELAY._replace(members_max=1))
    script.form("a")
    assert refused(script.enter("b")) == [GroupFullError]
    assert joined(script.join("a")), "those inside may join again"


def test_a_group_takes_no_more_metadata_than_can_be_written_in_one_piece() -> None:
    script = Script(NO_DELAY._replace(metadata_bytes_max=25))
    script.form("a")
    assert refused(script.join("b", is_new=True, protocols=(("range", b"x" * 10),))) == [GroupFullError]
    assert refused(script.enter("b")) == []


def test_an_old_generation_is_refused_everywhere() -> None:
    script = Script()
    script.form("a")
    assert script.heartbeat("a", generation=0) is IllegalGenerationError
    assert refused(script.sync("a", generation=0)) == [IllegalGenerationError]
    assert script.commit("a", 0) is IllegalGenerationError


def test_a_stranger_is_refused_everywhere() -> None:
    script = Script()
    script.form("a")
    assert script.heartbeat("x") is UnknownMemberError
    assert refused(script.sync("x")) == [UnknownMemberError]
    assert refused(script.join("x")) == [UnknownMemberError]
    assert script.commit("x", 1) is UnknownMemberError


def test_commits_are_taken_from_members_of_the_generation_and_from_outside_only_while_the_group_is_empty() -> None:
    script = Script()
    assert script.commit() is None, "a consumer that assigns partitions to itself"
    assert script.commit("x", -1) is None, "and carries a member id, as librdkafka does with group.protocol=consumer"
    assert script.commit("x", -1, in_txn=True) is None
    assert script.commit("x", 0) is UnknownMemberError
    script.form("a")
    assert script.commit("x", -1) is UnknownMemberError
    assert script.commit("a", -1) is IllegalGenerationError
    assert script.commit("a", 1) is None
    assert script.commit() is UnknownMemberError
    assert script.commit(in_txn=True) is None, "transactions of older clients do not say who they are"
    assert script.commit("a", 0, in_txn=True) is IllegalGenerationError
    script.enter("b")
    assert script.commit("a", 1) is None, "before it joins again, it commits what it has read"
    script.join("a")
    assert script.commit("a", 2) is RebalanceInProgressError


def test_a_commit_is_a_sign_of_life() -> None:
    script = Script()
    script.form("a")
    script.elapse(SESSION_MS - 1)
    script.commit("a", 1)
    script.elapse(SESSION_MS - 1)
    assert script.heartbeat("a") is None


def test_a_node_that_comes_back_knows_members_generation_and_assignment() -> None:
    script = Script()
    script.form("a", "b")
    script.restart()
    assert script.heartbeat("a") is None
    assert script.commit("b", 2) is None
    assert assigned(script.sync("b")) == [b"b"]


def test_a_node_that_comes_back_in_the_middle_of_a_rebalance_goes_on_with_it() -> None:
    script = Script()
    script.form("a")
    script.enter("b")
    script.join("a")
    script.restart()
    assert script.sync("b") == []
    assert assigned(script.sync("a", {"a": b"1", "b": b"2"})) == [b"1", b"2"]


def test_a_node_that_comes_back_gives_every_member_a_whole_session() -> None:
    script = Script()
    script.form("a", "b")
    script.now_ms += SESSION_MS * 5
    script.restart()
    assert script.elapse(SESSION_MS - 1) == []
    script.heartbeat("a")
    script.elapse(1)
    assert script.heartbeat("b") is UnknownMemberError
