"""Dead letters: messages whose attempts are used up, that were rejected, or (where asked for) whose time is over."""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from headrace.broker.promise import Promise
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader, Wanted
from headrace.broker.queue.moved import dead_letter
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.folds.queue.fold import Dying
from headrace.folds.queue.view import OVERDUE_REASON
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import HeadraceError
from headrace.model.message import Message, Sent
from headrace.model.queue import Queue, default_dead_letter

_logger = logging.getLogger(__name__)

_BATCH_COUNT = 100
_RETRY_MS_MIN = 100
_RETRY_MS_MAX = 30_000
# How long an answer waits for dead letters that are on their way.
_WAIT_MS_MAX = 1_000

T = TypeVar("T")
Outcomes = Awaitable[list[Sent | HeadraceError]]
SendMoved = Callable[[str, Sequence[Message]], Outcomes]
# From which queue, and to the one of which name.
SendDead = Callable[[Queue, str, Sequence[Message]], Outcomes]


class _Waiting(NamedTuple):
    """An answer that waits for dead letters. They are moved in the order in which they died, so the last one tells."""

    last: dict[PartitionQueue, int]  # offsets
    told: Callable[[], None]


class Mover:
    def __init__(
        self,
        *,
        loader: Loader,
        clock: Clock,
        rand: Rand,
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        send: SendDead,
    ) -> None:
        self._loader = loader
        self._clock = clock
        self._rand = rand
        self._spawn = spawn
        self._send = send
        self._running: set[LiveQueue] = set()
        self._failing: set[LiveQueue] = set()  # whose dead letters could not be moved, or not in time
        self._waiting: dict[LiveQueue, list[_Waiting]] = {}

    def notice(self, live: LiveQueue) -> None:
        """A queue has something to move."""
        if live not in self._running and not live.is_closed:
            self._running.add(live)
            self._spawn(self._run(live))

    def after(self, live: LiveQueue, promise: Promise[T]) -> Promise[T]:
        """The same outcome, kept once the messages that are dying then are in the dead-letter queue.

        It waits a second at the most, and not at all while dead letters cannot be moved: a dead-letter queue that does
        not answer must not slow down the receives of this one.
        """
        if promise.done() and not self._is_moving(live):
            return promise
        later: Promise[T] = Promise()

        def copy() -> None:
            error = promise.exception()
            if error is None:
                later.keep(promise.result())
            else:
                later.fail(error)

        def late() -> None:
            self._failing.add(live)
            self._tell_all(live)

        def ended(_: Promise[T]) -> None:
            if not self._is_moving(live):
                copy()
                return
            timer = self._clock.call_later(_WAIT_MS_MAX, late)

            def moved() -> None:
                timer.cancel()
                copy()

            last = {
                one: next(reversed(one.fold.dying_reasons)) for one in live.partitions.opened if one.fold.dying_reasons
            }
            self._waiting.setdefault(live, []).append(_Waiting(last, moved))
            self.notice(live)

        promise.then(ended)
        return later

    def _is_moving(self, live: LiveQueue) -> bool:
        return live.has_dying and live not in self._failing and not live.is_closed

    def _tell_all(self, live: LiveQueue) -> None:
        for waiting in self._waiting.pop(live, ()):
            waiting.told()

    def _tell_moved(self, live: LiveQueue) -> None:
        """Tell those whose dead letters have all been moved, though others have come since."""
        for waiting in self._waiting.pop(live, ()):
            if any(offset in partition.fold.dying_reasons for partition, offset in waiting.last.items()):
                self._waiting.setdefault(live, []).append(waiting)
            else:
                waiting.told()

    async def _run(self, live: LiveQueue) -> None:
        """Move until nothing is left. What fails is tried again, later and later, for as long as the queue is there."""
        retry_ms = _RETRY_MS_MIN
        try:
            while not live.is_closed and (work := self._work(live)):
                partition, dying = work
                try:
                    failed = await self._move(live, partition, dying)
                except HeadraceError as error:
                    failed = error
                if failed is None:
                    retry_ms = _RETRY_MS_MIN
                    self._failing.discard(live)
                    self._tell_moved(live)
                    continue
                self._failing.add(live)
                self._tell_all(live)
                _logger.warning(
                    "dead letters could not be moved and are tried again",
                    extra={"queue": live.queue.name, "error": str(failed)},
                )
                await self._clock.sleep(self._rand.uniform(retry_ms / 2, retry_ms))
                retry_ms = min(retry_ms * 2, _RETRY_MS_MAX)
        finally:
            self._running.discard(live)
            self._failing.discard(live)
            self._tell_all(live)

    def _work(self, live: LiveQueue) -> tuple[PartitionQueue, list[Dying]] | None:
        for partition in live.partitions:
            fold = partition.advanced_fold()
            dying = fold.dying(_BATCH_COUNT)
            if fold.config.dead_letter_expired:
                overdue = fold.expired(_BATCH_COUNT - len(dying))
                dying += [Dying(offset, OVERDUE_REASON, fold.history(offset)) for offset in overdue]
            if dying:
                return partition, dying
        return None

    async def _move(self, live: LiveQueue, partition: PartitionQueue, dying: list[Dying]) -> HeadraceError | None:
        """Copy, then end at the source. Returns why some could not be copied."""
        # The limit may have been taken away after these had reached it; a dead letter goes somewhere all the same.
        target = live.queue.dead_letter_name or default_dead_letter(live.queue.name)
        found = await self._loader.read([Wanted(partition, one.offset) for one in dying])
        readable = [one for one in dying if (partition.index, one.offset) in found]
        if lost := [one.offset for one in dying if (partition.index, one.offset) not in found]:
            partition.give_up(lost)
        if not readable:
            return None
        messages = [dead_letter(live, partition, one, found[partition.index, one.offset]) for one in readable]
        outcomes = await self._send(live.queue, target, messages)
        error: HeadraceError | None = None
        moved: dict[str, list[int]] = {}
        for one, outcome in zip(readable, outcomes, strict=True):
            if isinstance(outcome, HeadraceError):
                error = outcome
            elif partition.fold.is_live(one.offset):
                moved.setdefault(one.reason, []).append(one.offset)
        for reason, offsets in moved.items():
            partition.end_moved(offsets, reason)
        return error
