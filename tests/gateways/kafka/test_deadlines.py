"""Time-outs of requests in flight, many under one timer."""

from headrace.gateways.kafka.deadlines import Deadlines
from headrace.testing.clock import SimulatedClock


class Request:
    """Something with a time-out, which is noted in a list."""

    def __init__(self, name: str, due: list[str]) -> None:
        self.done = False
        self._name = name
        self._due = due

    def time_out(self, timeout_ms: int) -> None:
        self.done = True
        self._due.append(f"{self._name} after {timeout_ms}")


def test_each_deadline_falls_due_in_its_own_time() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    deadlines.add(100, Request("first", due))
    clock.advance(60)
    deadlines.add(100, Request("second", due))
    deadlines.add(30, Request("short", due))
    clock.advance(29)
    assert due == []
    clock.advance(1)
    assert due == ["short after 30"]
    clock.advance(10)
    assert due == ["short after 30", "first after 100"]
    clock.advance(60)
    assert due == ["short after 30", "first after 100", "second after 100"]


def test_what_is_done_is_not_called_and_not_kept() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    for number in range(1000):
        request = Request(str(number), due)
        deadlines.add(100, request)
        request.done = True
    assert sum(map(len, deadlines._queues.values())) == 1
    clock.advance(1000)
    assert due == []
    assert clock.next_timer_ms() is None


def test_time_outs_go_on_after_a_quiet_time() -> None:
    clock = SimulatedClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    deadlines.add(10, Request("before", due))
    clock.advance(1000)
    deadlines.add(10, Request("after", due))
    clock.advance(10)
    assert due == ["before after 10", "after after 10"]


class LateClock(SimulatedClock):
    """A process that does not run while its timers fall due."""

    def stop_for(self, delta_ms: int) -> None:
        self._now_ms += delta_ms


def test_requests_of_a_process_that_was_stopped_get_a_moment_to_end_well() -> None:
    clock = LateClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    stored, lost = Request("stored", due), Request("lost", due)
    deadlines.add(100, stored)
    deadlines.add(100, lost)
    clock.stop_for(40_000)
    clock.advance(1)
    assert due == []
    stored.done = True
    clock.advance(2000)
    assert due == ["lost after 100"]


def test_a_process_that_is_stopped_again_and_again_answers_all_the_same() -> None:
    clock = LateClock()
    deadlines = Deadlines(clock)
    due: list[str] = []
    deadlines.add(100, Request("first", due))
    for _ in range(3):
        clock.stop_for(40_000)
        clock.advance(1)
    assert due == ["first after 100"]
    assert clock.next_timer_ms() is None
