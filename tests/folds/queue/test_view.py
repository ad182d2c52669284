"""What people ask of a queue: where a message is, and what is there."""

from time import process_time

from tests.folds.queue.script import Script

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.view import State, blocker, facts, iterate
from headrace.model.queue import QueueConfig


def mixed() -> Script:
    """0 and 4 visible, 1 leased, 2 dying, 3 delayed, 5 and 6 done."""
    script = Script()
    script.send(
        Properties(), Properties(priority=9), Properties(priority=9), Properties(due_ms=1_500_000), Properties()
    )
    script.send(count=2)
    assert script.receive(2) == [1, 2]
    script.fold.reject(2, "no good", now=script.now)
    script.fold.move([5, 6], now=script.now)
    return script


def test_messages_can_be_looked_through_by_state_and_page_by_page() -> None:
    fold = mixed().fold

    def found(state: State | None, after: int = -1, count_max: int = 10) -> list[int]:
        return iterate(fold, after=after, state=state, count_max=count_max)

    assert found(None) == [0, 1, 2, 3, 4]
    assert found(None, count_max=2) == [0, 1]
    assert found(None, after=1, count_max=2) == [2, 3]
    assert found(State.VISIBLE) == [0, 4]
    assert found(State.VISIBLE, after=0) == [4]
    assert found(State.LEASED) == [1]
    assert found(State.LEASED, after=1) == []
    assert found(State.DYING) == [2]
    assert found(State.DELAYED) == [3]
    assert found(State.BLOCKED) == []


def test_looking_takes_nothing() -> None:
    script = mixed()
    iterate(script.fold, after=-1, state=None, count_max=10)
    assert script.receive() == [0, 4]


def test_the_facts_of_a_message_say_since_when_until_when_and_why() -> None:
    script = mixed()
    leased = facts(script.fold, 1)
    assert leased is not None
    assert (leased.state, leased.attempts, leased.priority) == (State.LEASED, 1, 9)
    assert (leased.first_ms, leased.since_ms, leased.until_ms) == (1_000_000, 1_000_000, 1_030_000)
    dying = facts(script.fold, 2)
    assert dying is not None
    assert (dying.state, dying.attempts, dying.reason) == (State.DYING, 1, "no good")
    delayed = facts(script.fold, 3)
    assert delayed is not None
    assert (delayed.state, delayed.attempts, delayed.until_ms) == (State.DELAYED, 0, 1_500_000)
    assert facts(script.fold, 5) is None
    assert facts(script.fold, 99) is None


def test_a_blocked_message_says_behind_which_one_it_waits() -> None:
    script = Script(QueueConfig(ordered=True))
    script.send_keys("abab")
    script.receive(1)
    assert script.states(range(4)) == ["leased", "visible", "blocked", "blocked"]
    assert iterate(script.fold, after=-1, state=State.BLOCKED, count_max=10) == [2, 3]
    assert [blocker(script.fold, offset) for offset in range(4)] == [None, None, 0, 1]


def test_a_page_of_an_ordered_queue_costs_what_is_on_it_and_not_what_is_in_the_queue() -> None:
    script = Script(QueueConfig(ordered=True))
    count = 100_000
    script.send(*(Properties(key=b"%d" % (number % 50)) for number in range(count)))
    began_s = process_time()
    for state in (None, State.BLOCKED):
        page = iterate(script.fold, after=count // 2, state=state, count_max=1000)
        assert [facts(script.fold, offset) is not None for offset in page] == [True] * 1000
    assert process_time() - began_s < 0.5, "a search through all of the queue for each message takes seconds"


def test_the_counts_add_up_in_every_state() -> None:
    fold = mixed().fold
    assert (fold.visible_count, fold.leased_count, fold.delayed_count) == (3, 1, 1)
    assert fold.counts.sent == 7
    assert fold.counts.dead_lettered == 2
