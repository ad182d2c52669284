"""Static members: a process that comes back under its instance id takes its old place."""

from tests.folds.group.script import REBALANCE_MS, SESSION_MS, Script, assigned, joined, refused

from headrace.folds.group.machine import AnswerJoin, Joined, JoinedMember, Refuse, StoreGroup
from headrace.folds.group.request import Leaving
from headrace.model.errors import FencedInstanceError, RebalanceInProgressError, UnknownMemberError


def stable(rebalance_ms: int = REBALANCE_MS) -> Script:
    """Two static members, instances `i` and `j`, led by the first."""
    script = Script()
    script.join("a", is_new=True, instance_id="i", rebalance_ms=rebalance_ms)
    script.join("b", is_new=True, instance_id="j", rebalance_ms=rebalance_ms)
    script.join("a", instance_id="i", rebalance_ms=rebalance_ms)
    script.sync("a", {"a": b"1", "b": b"2"}, instance_id="i")
    script.sync("b", instance_id="j")
    assert script.group.state_name == "Stable"
    return script


def test_a_static_member_is_not_asked_to_come_twice() -> None:
    script = Script()
    assert joined(script.join("a", is_new=True, instance_id="i", is_id_required=True))


def test_a_static_member_that_comes_back_gets_its_assignment_without_a_rebalance() -> None:
    script = stable()
    out = script.enter("b2", instance_id="j")
    assert out == [StoreGroup(), AnswerJoin(script.calls, Joined("b2", 2, "consumer", "range", "a", ()))]
    assert assigned(script.sync("b2", instance_id="j")) == [b"2"]
    assert script.heartbeat("a", instance_id="i") is None


def test_its_predecessor_is_fenced() -> None:
    script = stable()
    script.enter("b2", instance_id="j")
    assert script.heartbeat("b", instance_id="j") is FencedInstanceError
    assert script.commit("b", 2, "j") is FencedInstanceError
    assert refused(script.join("b", instance_id="j")) == [FencedInstanceError]
    assert refused(script.sync("b", instance_id="j")) == [FencedInstanceError]
    assert script.group.leave([Leaving("b", "j")], script.now_ms) == ([FencedInstanceError], [])


def test_a_predecessor_that_waits_is_fenced_at_once() -> None:
    script = stable()
    script.join("a", instance_id="i")
    call = script.calls
    assert Refuse(call, FencedInstanceError) in script.enter("a2", instance_id="i")


def test_a_static_leader_that_comes_back_does_not_share_out_anew() -> None:
    script = stable()
    (answer,) = joined(script.enter("a2", instance_id="i"))
    assert answer.leader == "a", "an older client takes itself for a follower"
    assert answer.members == ()
    assert assigned(script.sync("a2", instance_id="i")) == [b"1"]


def test_a_newer_static_leader_is_told_to_skip_the_assignment() -> None:
    script = stable()
    (answer,) = joined(script.join("a2", is_new=True, instance_id="i", can_skip_assignment=True))
    assert answer.skip_assignment
    assert answer.leader == "a2"
    assert answer.members == (JoinedMember("a2", "i", b"topics"), JoinedMember("b", "j", b"topics"))


def test_a_static_member_that_comes_back_during_a_rebalance_joins_it() -> None:
    script = stable()
    script.join("a", instance_id="i")
    out = script.enter("b2", instance_id="j")
    assert {one.member_id for one in joined(out)} == {"a", "b2"}


def test_a_static_member_keeps_its_place_over_a_rebalance_that_it_misses() -> None:
    script = stable(rebalance_ms=2000)
    script.join("a", instance_id="i", rebalance_ms=2000)
    (answer,) = joined(script.elapse(2000))
    assert [member.member_id for member in answer.members] == ["a", "b"]
    assert script.heartbeat("b", instance_id="j") is None


def test_static_members_that_are_all_away_keep_their_places_until_their_sessions_end() -> None:
    script = stable(rebalance_ms=2000)
    script.join("c", is_new=True, rebalance_ms=2000)
    script.group.leave([Leaving("c")], script.now_ms)
    assert script.elapse(SESSION_MS - 1) == []
    assert script.elapse(1) == [StoreGroup()]
    assert script.group.is_empty


def test_a_static_member_that_stays_away_loses_its_place_with_its_session() -> None:
    script = stable()
    script.elapse(SESSION_MS - 1)
    script.heartbeat("a", instance_id="i")
    script.elapse(1)
    assert script.heartbeat("b", instance_id="j") is UnknownMemberError
    assert script.heartbeat("a", instance_id="i") is RebalanceInProgressError


def test_an_operator_removes_a_static_member_by_its_instance_id_alone() -> None:
    script = stable()
    results, _ = script.group.leave([Leaving("", "j"), Leaving("", "unknown")], script.now_ms)
    assert results == [None, UnknownMemberError]
    assert script.heartbeat("a", instance_id="i") is RebalanceInProgressError


def test_static_members_survive_a_restart_of_the_node() -> None:
    script = stable()
    script.restart()
    assert script.heartbeat("b", instance_id="j") is None
    script.enter("b2", instance_id="j")
    assert script.heartbeat("b", instance_id="j") is FencedInstanceError
    assert script.heartbeat("b2", instance_id="j") is None
