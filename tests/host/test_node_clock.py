"""A wall clock that jumps, while the node runs and while it is down, and what the node believes."""

import errno
import random

import pytest

from headrace.host.clock import past_ms, stamp_ms
from headrace.host.node_clock import ClockConfig, NodeClock
from headrace.testing.clock import SimulatedClock
from headrace.testing.disk import SimulatedDisk

SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
CONFIG = ClockConfig()


class Machine:
    """A machine with a disk, whose node may be restarted."""

    def __init__(self) -> None:
        self.inner = SimulatedClock(monotonic_ms=7 * DAY_MS)
        self.disk = SimulatedDisk()
        self.disk.make_directory("/data")
        self.boot_id = "first"
        self.start()

    def start(self) -> None:
        self.clock = NodeClock(self.inner, CONFIG)
        self.clock.open(self.disk, "/data", boot_id=self.boot_id)

    def run(self, length_ms: int, step_ms: int = 10 * SECOND_MS) -> None:
        for _ in range(length_ms // step_ms):
            self.inner.advance(step_ms)
            self.clock.look()

    def restart(self, *, down_ms: int, saved: bool = True) -> None:
        if saved:
            self.clock.save()
        self.inner.advance(down_ms)
        self.start()

    def reboot(self, *, down_ms: int) -> None:
        """The boot clock begins anew, and the wall clock goes on."""
        self.clock.save()
        self.inner = SimulatedClock(monotonic_ms=30 * SECOND_MS, wall_ms=self.inner.wall_ms() + down_ms)
        self.boot_id += "+"
        self.start()


def test_without_jumps_all_times_are_the_wall_clocks_over_restarts_too() -> None:
    machine = Machine()
    for _ in range(3):
        machine.run(HOUR_MS)
        machine.inner.jump_wall(20 * SECOND_MS)  # a time daemon's correction
        machine.run(MINUTE_MS)
        machine.restart(down_ms=3 * DAY_MS)
        machine.reboot(down_ms=HOUR_MS)
        clock = machine.clock
        assert clock.jump is None
        assert clock.trusted_ms() == clock.wall_ms() == past_ms(clock) == stamp_ms(clock)
        assert abs(clock.steady_ms() - clock.wall_ms()) <= MINUTE_MS


@pytest.mark.parametrize("jump_ms", [2 * DAY_MS, -2 * DAY_MS, 6 * MINUTE_MS])
def test_a_jump_is_not_believed_until_the_clock_has_been_stable_for_long(jump_ms: int) -> None:
    machine = Machine()
    machine.run(HOUR_MS)
    clock, before_ms = machine.clock, machine.inner.wall_ms()
    machine.inner.jump_wall(jump_ms)
    assert past_ms(clock) == before_ms + min(jump_ms, 0), "also before anybody has looked"
    assert stamp_ms(clock) == before_ms + max(jump_ms, 0)
    machine.run(CONFIG.settle_ms)
    assert clock.jump is not None
    assert clock.state().jump_ahead_ms == jump_ms
    assert clock.trusted_ms() == before_ms + CONFIG.settle_ms
    machine.run(MINUTE_MS)
    assert clock.jump is None
    assert clock.trusted_ms() == clock.wall_ms() == past_ms(clock)
    assert clock.steady_ms() == clock.wall_ms() - jump_ms, "no jump moves it, believed or not"


def test_a_clock_that_jumps_again_is_not_stable() -> None:
    machine = Machine()
    machine.inner.jump_wall(8 * DAY_MS)
    machine.run(CONFIG.settle_ms - HOUR_MS)
    machine.inner.jump_wall(HOUR_MS)
    machine.run(CONFIG.settle_ms - HOUR_MS)
    assert machine.clock.jump is not None
    machine.inner.jump_wall(-8 * DAY_MS - HOUR_MS)
    machine.run(MINUTE_MS)
    assert machine.clock.jump is None, "it is back"
    assert machine.clock.trusted_ms() == machine.inner.wall_ms() == machine.clock.steady_ms()


def test_an_operator_confirms_and_the_next_start_knows() -> None:
    machine = Machine()
    machine.inner.jump_wall(8 * DAY_MS)
    machine.run(MINUTE_MS)
    state = machine.clock.confirm()
    assert (state.jump_ahead_ms, state.believed_in_ms) == (None, 0)
    assert machine.clock.trusted_ms() == machine.inner.wall_ms()
    machine.restart(down_ms=HOUR_MS)
    assert machine.clock.jump is None
    assert past_ms(machine.clock) == machine.inner.wall_ms()
    assert machine.clock.steady_ms() == machine.inner.wall_ms() - 8 * DAY_MS


def test_a_jump_while_the_node_is_down_is_found_by_the_boot_clock_and_settles_over_restarts() -> None:
    machine = Machine()
    machine.run(HOUR_MS)
    machine.inner.jump_wall(8 * DAY_MS)
    machine.restart(down_ms=5 * DAY_MS)
    assert machine.clock.state().jump_ahead_ms == 8 * DAY_MS
    assert past_ms(machine.clock) == machine.clock.steady_ms() == machine.inner.wall_ms() - 8 * DAY_MS
    for _ in range(4):
        machine.run(CONFIG.settle_ms // 4 + MINUTE_MS)
        machine.restart(down_ms=SECOND_MS)
    assert machine.clock.jump is None


def test_a_killed_node_goes_on_from_what_it_noted_last() -> None:
    machine = Machine()
    machine.run(30 * SECOND_MS)
    machine.inner.jump_wall(8 * DAY_MS)
    machine.restart(down_ms=DAY_MS, saved=False)
    assert machine.clock.state().jump_ahead_ms == 8 * DAY_MS


@pytest.mark.parametrize("down_ms", [MINUTE_MS, CONFIG.settle_ms - MINUTE_MS])
def test_after_another_boot_the_wall_clock_says_how_long_the_node_was_down(down_ms: int) -> None:
    machine = Machine()
    machine.reboot(down_ms=down_ms)
    assert machine.clock.jump is None
    assert machine.clock.trusted_ms() == machine.clock.steady_ms() == machine.inner.wall_ms()


def test_after_another_boot_more_than_that_is_a_jump() -> None:
    for down_ms in (8 * DAY_MS, -HOUR_MS):
        machine = Machine()
        before_ms = machine.inner.wall_ms()
        machine.reboot(down_ms=down_ms)
        assert machine.clock.state().jump_ahead_ms == down_ms
        assert machine.clock.trusted_ms() == before_ms
        assert past_ms(machine.clock) == before_ms + min(down_ms, 0)


def test_a_machine_that_boots_without_its_time_and_is_told_it_later_has_not_jumped() -> None:
    machine = Machine()
    wall_ms = machine.inner.wall_ms()
    machine.reboot(down_ms=-wall_ms)  # 1970
    assert machine.clock.jump is not None
    machine.run(MINUTE_MS)
    machine.inner.jump_wall(wall_ms + HOUR_MS)
    machine.run(MINUTE_MS)
    assert machine.clock.jump is None
    assert machine.clock.trusted_ms() == machine.clock.steady_ms() == machine.inner.wall_ms()


def test_what_was_noted_is_whole_after_a_crash_and_a_full_disk_costs_nothing_else() -> None:
    for seed in range(20):
        machine = Machine()
        machine.disk.sync_directory("/")
        machine.run(MINUTE_MS)
        if seed % 2:
            machine.disk.fail("pwritev", error=errno.ENOSPC)
        machine.clock.save()
        machine.disk.heal()
        machine.disk.crash(random.Random(seed))
        machine.inner.jump_wall(2 * DAY_MS)
        machine.start()
        assert machine.clock.state().jump_ahead_ms == 2 * DAY_MS


def test_without_the_file_or_with_a_damaged_one_the_wall_clock_is_believed() -> None:
    machine = Machine()
    path = "/data/clock"
    for bit in range(0, len(machine.disk.files()[path]) * 8, 7):
        machine.disk.flip_bit(path, bit)
        machine.start()
        assert machine.clock.jump is None
    machine.disk.remove(path)
    machine.inner.jump_wall(8 * DAY_MS)
    machine.start()
    assert machine.clock.jump is None
    assert past_ms(machine.clock) == machine.inner.wall_ms()
