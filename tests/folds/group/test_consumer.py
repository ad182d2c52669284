"""Consumer groups (KIP-848): who is given which partition when, and who is refused."""

import pytest
from tests.folds.group.consumer_script import LIMITS, NOTHING, REBALANCE_MS, SESSION_MS, Client, Script, indexes

from headrace.folds.group.consumer import ConsumerLimits
from headrace.folds.group.consumer_request import ConsumerAnswer, ConsumerHeartbeat, check_heartbeat
from headrace.model.errors import (
    FencedInstanceError,
    FencedMemberEpochError,
    GroupFullError,
    InvalidRegexError,
    InvalidRequestError,
    StaleMemberEpochError,
    UnknownMemberError,
    UnreleasedInstanceError,
    UnsupportedAssignorError,
)


def test_the_first_member_has_everything_with_its_first_heartbeat() -> None:
    script = Script()
    a = Client("a")
    assert script.beat(a) is None
    assert (a.epoch, a.owned) == (1, script.all_of("t"))
    assert script.group.state_name == "Stable"


def test_a_newcomer_waits_until_the_others_have_given_up_what_it_is_to_have() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.beat(a)
    script.beat(b)
    assert (b.epoch, b.owned) == (2, NOTHING)
    script.beat(a)
    assert a.epoch == 1, "it keeps its epoch until it has given up"
    assert len(a.wanted) == 3
    assert len(a.owned) == 6
    script.beat(a)
    script.beat(b)
    assert b.owned == NOTHING
    a.give_up()
    script.beat(a)
    assert a.epoch == 2
    script.beat(b)
    assert len(b.owned) == 3
    assert a.owned | b.owned == script.all_of("t")
    assert script.group.state_name == "Stable"


def test_whoever_keeps_partitions_is_not_told_to_stop_reading_them() -> None:
    script = Script(t=12)
    a, b, c = Client("a"), Client("b"), Client("c")
    script.settle(a, b)
    before = a.owned, b.owned
    script.settle(a, b, c)
    assert a.owned <= before[0]
    assert b.owned <= before[1]
    assert [len(one.owned) for one in (a, b, c)] == [4, 4, 4]


def test_a_member_that_leaves_leaves_its_partitions_to_the_others() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a, b)
    assert script.leave(b) is None
    assert script.beat(a) is None
    assert a.owned == script.all_of("t")
    script.leave(a)
    assert script.group.state_name == "Empty"
    assert script.group.is_empty


def test_what_only_a_member_that_left_wanted_is_not_given_to_the_others() -> None:
    script = Script(t=2, u=2)
    a, b = Client("a", names=("t",)), Client("b", names=("u",))
    script.settle(a, b)
    script.leave(b)
    script.settle(a)
    assert a.owned == script.all_of("t")
    assert not script.group.subscribes("u")


def test_a_silent_member_is_dropped_and_joins_again() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a, b)
    script.elapse(SESSION_MS - 1)
    script.beat(a)
    script.elapse(1)
    script.beat(a)
    assert a.owned == script.all_of("t")
    assert script.commit(b) is UnknownMemberError
    assert script.beat(b) is UnknownMemberError
    script.settle(a, b)


def test_a_member_that_does_not_give_up_in_time_is_dropped() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a)
    script.beat(b)
    script.beat(a)
    script.elapse(REBALANCE_MS - 1)
    script.beat(a)
    script.beat(b)
    assert b.owned == NOTHING
    script.elapse(1)
    script.beat(b)
    assert b.owned == script.all_of("t")
    assert script.beat(a) is UnknownMemberError


def test_an_answer_that_was_not_heard_is_told_again() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a, b)
    script.leave(b)
    assert isinstance(script.ask(a.request()), ConsumerAnswer)
    a.must_say_all = True
    assert script.beat(a) is None
    assert a.owned == script.all_of("t")


def test_other_epochs_are_fenced() -> None:
    script = Script()
    a = Client("a")
    script.settle(a)
    assert script.ask(ConsumerHeartbeat("a", a.epoch + 1)) is FencedMemberEpochError
    script.make("t", 7)
    script.settle(a)
    assert script.ask(ConsumerHeartbeat("a", a.epoch - 1)) is FencedMemberEpochError
    said_too_much = ConsumerHeartbeat("a", a.epoch - 1, owned=script.all_of("t") | Script(u=1, v=1).all_of("v"))
    assert script.ask(said_too_much) is FencedMemberEpochError
    assert script.ask(ConsumerHeartbeat("stranger", 1)) is UnknownMemberError


def test_a_member_that_joins_though_it_is_known_has_lost_everything() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a, b)
    before = a.epoch
    a.start_anew()
    assert script.beat(a) is None
    assert a.epoch > before
    assert script.ask(ConsumerHeartbeat("a", before)) is FencedMemberEpochError
    script.settle(a, b)


def test_commits_are_fenced_by_the_epoch() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a)
    assert script.commit(a) is None
    script.beat(b)
    script.beat(a)
    assert script.commit(a) is None, "before it has given anything up, what it has read may be committed"
    a.give_up()
    script.beat(a)
    assert script.commit(a, epoch=1) is StaleMemberEpochError
    assert script.commit(Client("stranger"), epoch=1) is UnknownMemberError
    assert script.group.check_commit("", -1, None, is_transactional=False, now_ms=0) is UnknownMemberError
    assert script.group.check_commit("", -1, None, is_transactional=True, now_ms=0) is None


def test_an_administrator_commits_for_a_group_without_members() -> None:
    script = Script()
    assert script.group.check_commit("", -1, None, is_transactional=False, now_ms=0) is None


def test_topics_that_appear_grow_and_vanish_move_the_group_on() -> None:
    script = Script(t=2)
    a = Client("a", names=("t", "u"))
    script.settle(a)
    script.make("u", 3)
    script.settle(a)
    assert a.owned == script.all_of("t", "u")
    script.make("t", 5)
    script.settle(a)
    assert a.owned == script.all_of("t", "u")
    script.delete("u")
    script.settle(a)
    assert a.owned == script.all_of("t")
    epoch = a.epoch
    script.make("other", 3)
    script.settle(a)
    assert a.epoch == epoch, "topics that nobody reads are nobody's concern"


def test_a_topic_that_was_deleted_and_made_again_is_another() -> None:
    script = Script(t=2)
    a = Client("a")
    script.settle(a)
    before = a.owned
    script.delete("t")
    script.make("t", 2)
    script.settle(a)
    assert a.owned == script.all_of("t")
    assert not a.owned & before


def test_a_subscription_by_expression_follows_the_topics() -> None:
    script = Script(other=3)
    script.make("orders.eu", 1)
    script.make("orders.us", 2)
    a = Client("a", names=(), regex="^orders\\..*")
    script.settle(a)
    assert a.owned == script.all_of("orders.eu", "orders.us")
    script.make("orders.jp", 1)
    script.settle(a)
    assert a.owned == script.all_of("orders.eu", "orders.us", "orders.jp")
    a.names, a.regex, a.must_say_all = ("other",), "", True
    script.settle(a)
    assert a.owned == script.all_of("other")


def test_an_expression_that_cannot_be_read_changes_nothing() -> None:
    script = Script()
    with pytest.raises(InvalidRegexError):
        script.beat(Client("a", regex="(unclosed"))
    assert script.group.is_empty


def test_members_of_different_subscriptions_get_what_they_asked_for() -> None:
    script = Script(t=4, u=2)
    a, b = Client("a", names=("t", "u")), Client("b", names=("t",))
    script.settle(a, b)
    assert a.owned | b.owned == script.all_of("t", "u")
    assert b.owned <= script.all_of("t")
    assert len(a.owned) == len(b.owned) == 3


def test_the_range_assignor_gives_runs_of_each_topic() -> None:
    script = Script(t=5)
    a, b = Client("a", assignor="range"), Client("b", assignor="range")
    script.settle(a, b)
    assert (indexes(a.owned), indexes(b.owned)) == ([0, 1, 2], [3, 4])
    assert script.group.protocol_name == "range"
    assert script.beat(Client("c", assignor="cleverest")) is UnsupportedAssignorError
    assert script.group.member_count == 2


def test_a_group_that_is_full_takes_nobody_else_in() -> None:
    script = Script(ConsumerLimits(session_timeout_ms=SESSION_MS, members_max=1))
    a = Client("a")
    script.settle(a)
    assert script.beat(Client("b")) is GroupFullError
    script.settle(a)


def test_a_static_member_that_leaves_for_a_while_comes_back_to_its_partitions() -> None:
    script = Script()
    a, b = Client("a"), Client("b", instance_id="i")
    script.settle(a, b)
    before, epoch = b.owned, script.group.epoch
    assert script.leave(b, for_a_while=True) is None
    script.beat(a)
    assert script.group.state_name == "Stable"
    heir = Client("c", instance_id="i")
    assert script.beat(heir) is None
    assert (heir.owned, heir.epoch, script.group.epoch) == (before, epoch, epoch)
    assert script.ask(ConsumerHeartbeat("b", epoch, instance_id="i")) is FencedInstanceError
    script.settle(a, heir)


def test_what_a_static_member_was_not_to_keep_is_free_when_it_comes_back() -> None:
    script = Script(t=2, u=2)
    a, b = Client("a", names=("t", "u")), Client("b", names=("t", "u"), instance_id="i")
    script.settle(a, b)
    script.leave(b, for_a_while=True)
    script.delete("t")
    script.beat(a)
    heir = Client("c", names=("t", "u"), instance_id="i")
    assert script.beat(heir) is None
    assert heir.epoch == script.group.epoch
    assert heir.owned <= script.all_of("u")
    script.settle(a, heir)


def test_a_static_member_that_does_not_come_back_loses_its_place() -> None:
    script = Script()
    a, b = Client("a"), Client("b", instance_id="i")
    script.settle(a, b)
    script.leave(b, for_a_while=True)
    assert script.commit(b, epoch=-2) is UnknownMemberError
    script.elapse(SESSION_MS - 1)
    script.beat(a)
    script.elapse(1)
    script.settle(a)
    assert a.owned == script.all_of("t")


def test_an_instance_id_that_somebody_holds_is_not_given_away() -> None:
    script = Script()
    a = Client("a", instance_id="i")
    script.settle(a)
    assert script.beat(Client("b", instance_id="i")) is UnreleasedInstanceError
    assert script.ask(ConsumerHeartbeat("b", 1, instance_id="i")) is FencedInstanceError
    assert script.ask(ConsumerHeartbeat("b", 1, instance_id="j")) is UnknownMemberError
    assert script.leave(Client("b", instance_id="i")) is FencedInstanceError
    assert script.leave(Client("b", instance_id="j")) is UnknownMemberError
    assert script.leave(Client("b")) is UnknownMemberError
    c = Client("c")
    script.settle(a, c)
    script.leave(a, for_a_while=True)
    assert script.beat(Client("c", instance_id="i")) is FencedInstanceError, "one member is not two"


def test_a_restart_in_the_middle_of_a_rebalance_goes_on_with_it() -> None:
    script = Script()
    a, b = Client("a"), Client("b")
    script.settle(a)
    script.beat(b)
    script.beat(a)
    script.restart()
    script.beat(b)
    assert b.owned == NOTHING
    a.give_up()
    script.settle(a, b)
    assert len(a.owned) == len(b.owned) == 3


def test_topics_that_changed_while_the_node_was_down_are_noticed() -> None:
    script = Script(t=2)
    a = Client("a")
    script.settle(a)
    epoch = a.epoch
    script.restart()
    script.settle(a)
    assert a.epoch == epoch
    script.restart()
    script.make("t", 4)
    script.settle(a)
    assert a.owned == script.all_of("t")


def test_the_same_group_has_the_same_image_after_a_restart() -> None:
    script = Script()
    a, b = Client("a"), Client("b", instance_id="i", regex="t.*")
    script.settle(a, b)
    image = script.group.image()
    script.restart()
    assert script.group.image() == image


@pytest.mark.parametrize(
    "request_",
    [
        ConsumerHeartbeat("", 1),
        ConsumerHeartbeat("a", -3),
        ConsumerHeartbeat("a", -2),
        ConsumerHeartbeat("a", 1, instance_id=""),
        ConsumerHeartbeat("a", 0, topic_names=("t",), owned=NOTHING),
        ConsumerHeartbeat("a", 0, topic_names=("t",), rebalance_timeout_ms=1),
        ConsumerHeartbeat("a", 0, rebalance_timeout_ms=1, owned=NOTHING),
        ConsumerHeartbeat("a", 0, topic_names=("t",), rebalance_timeout_ms=1, owned=Script().all_of("t")),
    ],
)
def test_heartbeats_that_no_client_sends_are_refused(request_: ConsumerHeartbeat) -> None:
    with pytest.raises(InvalidRequestError):
        check_heartbeat(request_)


def test_what_the_group_tells_tools() -> None:
    script = Script()
    a, b = Client("a"), Client("b", names=("later",), regex="t")
    script.settle(a, b)
    assert script.group.subscribes("t")
    assert script.group.subscribes("later")
    assert not script.group.subscribes("u")
    assert [member.member_id for member in script.group.describe_members()] == ["a", "b"]
    script.leave(a)
    assert script.group.state_name == "Assigning"
    assert LIMITS.members_max > script.group.member_count == 1
