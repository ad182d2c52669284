"""A node's clock: the machine's, with two times of day beside it that its jumps do not move.

    steady_ms    counts the time that passes, over restarts too. Nothing sets it: what was silent for a day by it was.
    trusted_ms   the time of day: steady, and by how much the wall clock was ahead of that when it was last believed

The wall clock is believed while it differs from `trusted_ms` by no more than `jump_ms_max`; trusted time then follows
it. A larger difference is a jump. It may be right or wrong, and what is dropped by age could not be brought back: so
trusted time goes on steadily until the difference has stayed the same for `settle_ms`, or an operator confirms it. If
the wall clock comes back, nothing has happened.

Both times are kept in the file `clock` of the data directory, with the boot clock that they were noted at. After a
restart in the same boot of the machine that clock says how long the node was down. After another boot only the wall
clock says it, and is believed up to `settle_ms`; where it says more, that is a jump. Without the file the wall clock is
believed, since nothing else is known.
"""

import logging
import zlib
from typing import Annotated, NamedTuple

import msgspec

from headrace.host.clock import Clock
from headrace.host.disk import Disk, read_file, write_atomically
from headrace.host.threads import Threads

NAME = "clock"

_LOOK_MS = 10_000
_SAVE_MS = 60_000

_logger = logging.getLogger(__name__)


class ClockConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    # A wall clock that differs from the steady one by more has jumped.
    jump_ms_max: Annotated[int, msgspec.Meta(ge=1000)] = 5 * 60 * 1000
    # A jump is believed after the clock has run on without another one for so long.
    settle_ms: Annotated[int, msgspec.Meta(ge=0)] = 24 * 60 * 60 * 1000


class Jump(msgspec.Struct, frozen=True):
    """By how much the wall clock is ahead of trusted time, and since when by steady time."""

    ahead_ms: int
    since_ms: int


class _Saved(msgspec.Struct, frozen=True, kw_only=True):
    boot_id: str
    boot_ms: int  # of the boot clock, which counts on while the machine sleeps
    steady_ms: int
    trusted_ms: int
    jump: Jump | None


class ClockState(NamedTuple):
    """What an operator is told of the clock."""

    wall_ms: int
    trusted_ms: int
    jump_ahead_ms: int | None  # None: the wall clock is believed
    believed_in_ms: int


class NodeClock:
    """A `headrace.host.clock.Clock`."""

    def __init__(self, clock: Clock, config: ClockConfig) -> None:
        self.config = config
        # As they are, since every request asks for them.
        self.monotonic_ms = clock.monotonic_ms
        self.monotonic_us = clock.monotonic_us
        self.wall_ms = clock.wall_ms
        self.call_later = clock.call_later
        self.sleep = clock.sleep
        self.jump: Jump | None = None
        self._steady_shift_ms = clock.wall_ms() - clock.monotonic_ms()
        self._trusted_shift_ms = self._steady_shift_ms
        self._has_gap = False  # how long the node was down is not known
        self._has_news = False  # something that was not noted down yet
        self._disk: Disk | None = None
        self._directory = ""
        self._boot_id = ""

    def steady_ms(self) -> int:
        return self.monotonic_ms() + self._steady_shift_ms

    def trusted_ms(self) -> int:
        return self.monotonic_ms() + self._trusted_shift_ms

    def open(self, disk: Disk, directory: str, *, boot_id: str) -> None:
        """Go on from what an earlier run has noted. Blocks."""
        self._disk, self._directory, self._boot_id = disk, directory, boot_id
        saved = self._load(f"{directory}/{NAME}")
        if saved is not None:
            is_same_boot = boot_id != "" and saved.boot_id == boot_id
            monotonic_ms = self.monotonic_ms()
            down_ms = max(monotonic_ms - saved.boot_ms, 0) if is_same_boot else 0
            self._steady_shift_ms = saved.steady_ms + down_ms - monotonic_ms
            self._trusted_shift_ms = saved.trusted_ms + down_ms - monotonic_ms
            self.jump = saved.jump
            self._has_gap = not is_same_boot
        self.look()
        self.save()

    def look(self) -> None:
        """Compare the clocks, and follow the wall clock as far as it is believed."""
        ahead_ms = self.wall_ms() - self.trusted_ms()
        config = self.config
        if self._has_gap and -config.jump_ms_max <= ahead_ms <= config.settle_ms:
            # The node was down meanwhile. That time has passed, for everything.
            self._steady_shift_ms += max(ahead_ms, 0)
            self._believe(ahead_ms)
        elif abs(ahead_ms) <= config.jump_ms_max:
            self._believe(ahead_ms)
        elif self.jump is None or abs(ahead_ms - self.jump.ahead_ms) > config.jump_ms_max:
            self.jump = Jump(ahead_ms, self.steady_ms())
            _logger.error(
                "the wall clock has jumped and is not believed; set it right, or confirm it (headrace clock confirm)",
                extra={"ahead_ms": ahead_ms, "believed_in_ms": config.settle_ms},
            )
            self._has_news = True
        elif self.steady_ms() - self.jump.since_ms >= config.settle_ms:
            _logger.warning("the wall clock is believed: it did not jump again", extra={"ahead_ms": ahead_ms})
            self._believe(ahead_ms)

    def _believe(self, ahead_ms: int) -> None:
        self._trusted_shift_ms += ahead_ms
        self._has_gap = False
        if self.jump is not None:
            self.jump = None
            _logger.info("the wall clock is believed again")
            self._has_news = True

    def confirm(self) -> ClockState:
        """Believe the wall clock as it is now, because an operator says so. The caller notes it down."""
        ahead_ms = self.wall_ms() - self.trusted_ms()
        _logger.warning("an operator has confirmed the wall clock", extra={"ahead_ms": ahead_ms})
        self._believe(ahead_ms)
        return self.state()

    def state(self) -> ClockState:
        self.look()
        jump = self.jump
        left_ms = 0 if jump is None else max(jump.since_ms + self.config.settle_ms - self.steady_ms(), 0)
        return ClockState(self.wall_ms(), self.trusted_ms(), None if jump is None else jump.ahead_ms, left_ms)

    async def watch(self, threads: Threads) -> None:
        """Look at the clocks again and again, and note them down."""
        saved_ms = self.monotonic_ms()
        while True:
            await self.sleep(_LOOK_MS)
            self.look()
            if self._has_news or self.monotonic_ms() - saved_ms >= _SAVE_MS:
                saved_ms = self.monotonic_ms()
                await threads.run(self.save)

    # The file.

    def save(self) -> None:
        """Note the clocks down. Blocks. What cannot be written costs what passed since it was written last."""
        if self._disk is None:
            return
        self._has_news = False
        saved = _Saved(
            boot_id=self._boot_id,
            boot_ms=self.monotonic_ms(),
            steady_ms=self.steady_ms(),
            trusted_ms=self.trusted_ms(),
            jump=self.jump,
        )
        body = msgspec.json.encode(saved)
        try:
            write_atomically(self._disk, self._directory, NAME, b"%08x\n" % zlib.crc32(body) + body)
        except OSError as error:
            _logger.warning("the node's clock could not be noted down", extra={"error": str(error)})

    def _load(self, path: str) -> _Saved | None:
        assert self._disk is not None
        if not self._disk.exists(path):
            return None
        head, _, body = read_file(self._disk, path).partition(b"\n")
        if head != b"%08x" % zlib.crc32(body):
            _logger.warning("what was noted of the clock is damaged; the wall clock is believed", extra={"file": path})
            return None
        return msgspec.json.decode(body, type=_Saved)
