"""A worker's life: take messages, have them handled, keep their leases, stop well.

Theory of operation. One task asks for messages whenever there is room (`held`). Each message gets a task for its
handler; when the handler is done its place is free for the next, while the outcome (acknowledge, release, reject) is
told to the node in a batch with others. One task extends the leases of everything that is held when half of a lease
is over, whether its handler runs or waits.

A stop is asked for once or twice. Once: no more messages are asked for, those without a handler are released at once,
those with one have a grace to finish and to be told of. Twice, or when the grace is over: handlers that are tasks are
cancelled, those in threads are left behind, and their messages are released. That is a courtesy, which leases do as
well: a node that does not answer, or a handler that does not heed its end, is not waited for long.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from headrace.client.http.caller import Pauses
from headrace.client.queue.message import AsyncMessage, Reject, Retry
from headrace.client.queue.queue import AsyncQueue
from headrace.client.settings import QueueClientConfig
from headrace.client.worker.config import WorkerConfig
from headrace.client.worker.failure import failure_of
from headrace.client.worker.held import Held, Holdings
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import (
    HeadraceError,
    InvalidReceiptError,
    NotAQueueError,
    StaleReceiptError,
    UnknownQueueError,
)

_LOGGER = logging.getLogger(__name__)

Handler = Callable[[AsyncMessage], Awaitable[object]]
RECEIVE_MAX = 100
# Leases are looked at so often while one is held, and at least so often.
_LOOKS_A_LEASE = 8
_LOOK_MS_MAX = 1_000
_LOOK_MS_MIN = 10
# How long a stop waits for what others would see in the end all the same.
COURTESY_S = 2.0
_PAUSES = QueueClientConfig(retry_pause_ms=200, retry_pause_ms_max=5_000)


class Stop:
    """Asked for once: stop well. Twice: stop now."""

    def __init__(self) -> None:
        self.well = asyncio.Event()
        self.now = asyncio.Event()

    def ask(self) -> None:
        (self.now if self.well.is_set() else self.well).set()


class Runner:
    def __init__(self, queue: AsyncQueue, handler: Handler, config: WorkerConfig, *, clock: Clock, rand: Rand) -> None:
        self._queue = queue
        self._handler = handler
        self._config = config
        self._clock = clock
        self._rand = rand
        self._held = Holdings(concurrency=config.concurrency, ahead_max=config.ahead_max)
        self._handling: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._taken = asyncio.Event()
        self._is_stopping = False
        self._queue_backs_off = False
        self.was_cut = False  # some handler had to be interrupted

    async def run(self, stop: Stop) -> None:
        """Work until a stop is asked for. Raises what no retry can help."""
        _LOGGER.info("worker started", extra={"queue": self._queue.name, "concurrency": self._config.concurrency})
        taking = asyncio.create_task(self._take())
        keeping = asyncio.create_task(self._keep_leases())
        asked = asyncio.create_task(stop.well.wait())
        try:
            await asyncio.wait((taking, asked, keeping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asked.cancel()
            await self._stop(taking, stop)
            keeping.cancel()
            await asyncio.gather(keeping, asked, return_exceptions=True)
        if not taking.cancelled():
            taking.result()
        if not keeping.cancelled():
            keeping.result()

    # Taking.

    async def _take(self) -> None:
        pauses = Pauses(_PAUSES, self._rand)
        knows_queue = False
        while True:
            while (room := self._held.room()) == 0:
                self._changed.clear()
                await self._changed.wait()
            try:
                if not knows_queue:
                    await self._learn()
                    knows_queue = True
                    continue
                found = await self._queue.receive(min(room, RECEIVE_MAX), self._config.wait_s, self._config.lease_s)
            except HeadraceError as error:
                # A queue is made by its first send, which may come later than its workers.
                # A topic of its name stays one until an operator converts it, so a worker ends and says so.
                is_missing = isinstance(error, UnknownQueueError) and not isinstance(error, NotAQueueError)
                if not error.retriable and not is_missing:
                    raise
                # Made again, it may have other settings.
                knows_queue = knows_queue and not is_missing
                pause_ms = pauses.next_ms()
                _LOGGER.warning(
                    "no messages can be received; trying again",
                    extra={"queue": self._queue.name, "reason": str(error), "pause_ms": round(pause_ms)},
                )
                await self._clock.sleep(pause_ms)
                continue
            pauses = Pauses(_PAUSES, self._rand)
            self._held.add(found, now_ms=self._clock.monotonic_ms())
            self._taken.set()
            self._start_handlers()

    async def _learn(self) -> None:
        """What of the queue's settings concerns a worker."""
        settings = (await self._queue.describe()).config
        self._held.is_ordered = settings.get("ordered", False)
        self._queue_backs_off = settings.get("backoff") is not None
        if settings.get("guarantee") == "at_most_once":
            # What is received is gone from the queue: nothing may be taken that cannot be handled at once.
            self._held.take_no_more_than_handled()

    # Handling.

    def _start_handlers(self) -> None:
        while not self._is_stopping and (held := self._held.start_next()) is not None:
            task = asyncio.create_task(self._handle(held))
            self._handling.add(task)
            task.add_done_callback(self._handling.discard)

    async def _handle(self, held: Held) -> None:
        message = held.message
        error: BaseException | None = None
        try:
            await self._handler(message)
        except asyncio.CancelledError as cancelled:
            error = cancelled if _is_cancelled_here() else failure_of(cancelled)
            if isinstance(error, Exception):
                self._report(message, error)
        except KeyboardInterrupt:
            # The program's, which ends; its lease tells the others.
            raise
        except BaseException as raised:  # noqa: BLE001 - whatever a handler raises is its message's outcome
            error = failure_of(raised)
            self._report(message, error)
        self._held.handled(held)
        self._start_handlers()
        try:
            await message.settle(error, back_off=self._back_off_s(message))
        except HeadraceError as failed:
            _LOGGER.warning(
                "outcome not told; the message may come again",
                extra={"queue": self._queue.name, "message_id": message.id, "reason": str(failed)},
            )
        # Not where the handler gave it back itself, nor where the node said no, or nothing: then it may come again.
        behind = self._held.settled(held, acknowledged=message.is_acknowledged)
        await self._queue.release_all(other.message for other in behind)
        self._changed.set()
        self._start_handlers()

    def _back_off_s(self, message: AsyncMessage) -> float | None:
        if self._queue_backs_off:
            return None
        return self._config.backoff.delay_ms(message.attempt) / 1000

    def _report(self, message: AsyncMessage, error: Exception) -> None:
        fields = {"queue": self._queue.name, "message_id": message.id, "attempt": message.attempt}
        if isinstance(error, Retry | Reject):
            _LOGGER.info("message not done", extra={**fields, "reason": str(error)})
        else:
            _LOGGER.error("handler failed", exc_info=error, extra=fields)

    # Leases.

    async def _keep_leases(self) -> None:
        while True:
            if not self._held.has_leases:
                self._taken.clear()
                await self._taken.wait()
            shortest_ms = min((held.message.lease * 1000 for held in self._held), default=_LOOK_MS_MAX)
            await self._clock.sleep(max(_LOOK_MS_MIN, min(shortest_ms / _LOOKS_A_LEASE, _LOOK_MS_MAX)))
            now_ms = self._clock.monotonic_ms()
            due = [held for held in self._held if held.extend_at_ms <= now_ms and not held.message.is_lost]
            await asyncio.gather(*(self._extend(held) for held in due if held.message.receipt))

    async def _extend(self, held: Held) -> None:
        message, now_ms = held.message, self._clock.monotonic_ms()
        fields = {"queue": self._queue.name, "message_id": message.id}
        try:
            await message.extend(message.lease)
        except (StaleReceiptError, InvalidReceiptError) as error:
            if message.is_settled:
                return
            self._held.lost(held)
            _LOGGER.warning("lease lost; somebody else may get the message", extra={**fields, "reason": str(error)})
        except HeadraceError as error:
            _LOGGER.warning("lease not extended; trying again", extra={**fields, "reason": str(error)})
        else:
            held.leased_again(now_ms)

    # Stopping.

    async def _stop(self, taking: "asyncio.Task[None]", stop: Stop) -> None:
        self._is_stopping = True
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)
        waiting = self._held.take_waiting()
        if self._handling or waiting:
            _LOGGER.info(
                "worker stops",
                extra={"queue": self._queue.name, "running": len(self._handling), "given_back": len(waiting)},
            )
        giving_back = asyncio.create_task(self._give_back(waiting))
        hurry = asyncio.create_task(stop.now.wait())
        finished = asyncio.gather(giving_back, *self._handling, return_exceptions=True)
        await asyncio.wait((finished, hurry), timeout=self._config.grace_s, return_when=asyncio.FIRST_COMPLETED)
        if self._handling:
            await self._cut_off()
        await asyncio.wait((giving_back,))
        hurry.cancel()
        await asyncio.gather(hurry, return_exceptions=True)

    async def _give_back(self, waiting: "list[Held]") -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(COURTESY_S):
                await self._queue.release_all(held.message for held in waiting)

    async def _cut_off(self) -> None:
        self.was_cut = True
        fields: dict[str, object] = {"queue": self._queue.name, "count": len(self._handling)}
        _LOGGER.warning("handlers cut off", extra=fields)
        left = set(self._handling)
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=COURTESY_S)
        if left:
            fields["count"] = len(left)
            _LOGGER.warning("left behind; their messages come again when leases end", extra=fields)


def _is_cancelled_here() -> bool:
    """Whether this task itself was told to end: the worker stops, or its loop does."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
