"""The checker finds each violation in a history that was sound before one thing in it was changed."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.faults.checker import check
from tests.faults.history import Call, Delivered, History, Queue, Read, Topic

QUEUE = Queue(name="queue", exactly_once=True, by_key=True, deduplicated=True)
TOPIC = Topic(name="topic", idempotent=True)
COUNT = 4


def sound() -> History:
    """A queue and a topic that took some messages each, a committed transaction, an aborted one, and one left open."""
    history = History(queues=[QUEUE], topics=[TOPIC])
    for number in range(COUNT):
        sent = history.send("queue", f"m{number}", sender="s", number=number)
        history.answer(sent, "yes")
    for number in range(COUNT):
        receive(history, number, attempt=1)
        again = receive(history, number, attempt=2)
        history.answer(history.acknowledge(again), "yes")
    for number in range(COUNT):
        record = history.send("topic", f"r{number}", sender="s", number=number, partition=0)
        record.offset = number
        history.answer(record, "yes")
        read(history, number, f"r{number}")
        history.along.append(history.final[-1])
    for at, outcome in enumerate(("yes", "no", "maybe")):
        transaction = history.begin(outcome)
        for number in range(2):
            history.send("topic", f"{outcome}{number}", sender=outcome, number=number, partition=0, transaction=outcome)
            if outcome == "yes":
                read(history, 10 * (at + 1) + number, f"{outcome}{number}")
        if outcome in ("yes", "no"):
            history.answer(transaction, outcome)  # type: ignore[arg-type]  # one of these two
    return history


def receive(history: History, number: int, *, attempt: int) -> Delivered:
    return history.deliver(
        "queue", f"m{number}", message_id=str(number), attempt=attempt, asked=history.now(), asked_s=0.0
    )


def read(history: History, offset: int, body: str) -> None:
    history.final.append(Read(topic="topic", partition=0, offset=offset, body=body))


def forget_message(history: History) -> None:
    history.delivered = [one for one in history.delivered if one.body != "m3"]


def deliver_again_after_acknowledgement(history: History) -> None:
    receive(history, 1, attempt=3)


def deliver_what_was_never_sent(history: History) -> None:
    receive(history, 77, attempt=1)


def deliver_what_was_refused(history: History) -> None:
    history.sent[3].outcome = "no"


def store_message_twice(history: History) -> None:
    history.delivered[-2].message_id = "other"


def repeat_attempt(history: History) -> None:
    history.delivered[-1].attempt = 1


def acknowledge_twice(history: History) -> None:
    first = history.delivered[-2]
    first.acknowledgement = Call(asked=first.answered, answered=history.now(), outcome="yes")


def overtake_in_key(history: History) -> None:
    history.delivered[1].acknowledgement = replace(history.delivered[1].acknowledgement, asked=history.now())  # type: ignore[type-var]


def lose_record(history: History) -> None:
    history.final = [one for one in history.final if one.body != "r2"]
    history.along = [one for one in history.along if one.body != "r2"]


def move_record(history: History) -> None:
    history.sent[COUNT + 1].offset = 99


def double_record(history: History) -> None:
    read(history, 50, "r1")


def swap_records(history: History) -> None:
    history.along.clear()
    for call, read_there in ((history.sent[COUNT], 1), (history.sent[COUNT + 1], 0)):
        call.offset = read_there
    history.final[0], history.final[1] = (
        replace(history.final[1], offset=0),
        replace(history.final[0], offset=1),
    )


def change_record(history: History) -> None:
    history.along[0] = replace(history.along[0], body="r9")


def read_what_was_never_sent(history: History) -> None:
    read(history, 51, "unknown")


def lose_half_a_committed_transaction(history: History) -> None:
    history.final = [one for one in history.final if one.body != "yes1"]


def show_an_aborted_transaction(history: History) -> None:
    read(history, 52, "no0")
    read(history, 53, "no1")


def show_half_an_open_transaction(history: History) -> None:
    read(history, 54, "maybe0")


def fail_a_client(history: History) -> None:
    history.fail("a client saw what it must not see")


PLANTED: dict[Callable[[History], None], str] = {
    forget_message: "lost",
    deliver_again_after_acknowledgement: "redelivered",
    deliver_what_was_never_sent: "phantom",
    deliver_what_was_refused: "phantom",
    store_message_twice: "doubled",
    repeat_attempt: "exactly once",
    acknowledge_twice: "exactly once",
    overtake_in_key: "order by key",
    lose_record: "lost",
    move_record: "moved",
    double_record: "doubled",
    swap_records: "order",
    change_record: "changed",
    read_what_was_never_sent: "phantom",
    lose_half_a_committed_transaction: "transaction",
    show_an_aborted_transaction: "transaction",
    show_half_an_open_transaction: "transaction",
    fail_a_client: "trouble",
}


def test_a_sound_history_has_no_violation() -> None:
    verdict = check(sound())
    assert not verdict.violations, str(verdict)
    assert verdict.counts["deliveries"] == 2 * COUNT
    assert verdict.counts["transactions"] == 3


@pytest.mark.parametrize(("plant", "kind"), PLANTED.items(), ids=[plant.__name__ for plant in PLANTED])
def test_each_violation_is_found(plant: Callable[[History], None], kind: str) -> None:
    history = sound()
    plant(history)
    assert check(history).has(kind), str(check(history))


def test_an_acknowledgement_after_the_lease_counts_only_where_it_would_be_refused() -> None:
    history = sound()
    acknowledgement = history.delivered[1].acknowledgement
    assert acknowledgement is not None
    history.delivered[1].asked_s = acknowledgement.answered_s - 5.0
    receive(history, 0, attempt=3)
    assert check(history).has("redelivered")
    history.queues = [replace(QUEUE, quiet_after_s=4.0)]
    assert not check(history).has("redelivered")
    history.queues = [replace(QUEUE, quiet_after_s=6.0)]
    assert check(history).has("redelivered")


def test_a_report_without_an_offset_needs_its_record_all_the_same() -> None:
    history = sound()
    history.sent[COUNT].offset = None
    assert not check(history).violations
    history.final = history.final[1:]
    history.along = history.along[1:]
    assert check(history).has("lost")


def test_messages_of_one_key_may_come_in_one_receive() -> None:
    history = sound()
    history.delivered.clear()
    asked = history.now()
    together = [
        history.deliver("queue", f"m{number}", message_id=str(number), attempt=1, asked=asked, asked_s=0.0)
        for number in range(COUNT)
    ]
    for delivery in together:
        history.answer(history.acknowledge(delivery), "yes")
    assert not check(history).violations, str(check(history))
