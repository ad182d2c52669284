"""Time-outs of requests in flight, many under one timer."""

from headrace.gateways.kafka.deadlines import Deadlines
from headrace.testing.clock import SimulatedClock


def test_each_deadline_falls_due_in_its_own_time() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    deadlines.add(100, lambda: due.append("first"))
    clock.advance(60)
    deadlines.add(100, lambda: due.append("second"))
    deadlines.add(30, lambda: due.append("short"))
    clock.advance(29)
    assert due == []
    clock.advance(1)
    assert due == ["short"]
    clock.advance(10)
    assert due == ["short", "first"]
    clock.advance(60)
    assert due == ["short", "first", "second"]


def test_a_cancelled_deadline_is_not_called_and_not_kept() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[int] = []
    for number in range(1000):
        deadlines.add(100, lambda number=number: due.append(number)).cancel()  # type: ignore[misc]
    assert sum(map(len, deadlines._queues.values())) == 1
    clock.advance(1000)
    assert due == []
    assert clock.next_timer_ms() is None


def test_time_outs_go_on_after_a_quiet_time() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    deadlines.add(10, lambda: due.append("before"))
    clock.advance(1000)
    deadlines.add(10, lambda: due.append("after"))
    clock.advance(10)
    assert due == ["before", "after"]
