"""Single calls that go out together.

Theory of operation. What is submitted in one turn of the event loop leaves in one request. While requests are in
flight, more gathers until a request is full, the linger is over, or the last answer is there, whichever comes first:
a lone caller never waits for company, and a busy one gets batches without asking for them. The number of requests in
flight is bounded, and so are the bytes that wait; whoever comes above that bound waits before its item is taken. When
the node does not answer, what waits fails with what was tried (`Patience`).

Each item has its own outcome. A batcher knows nothing of what an item is: `transmit` carries a list of them and gives
one outcome for each, in order. A request that is refused as a whole is cut in two until it is known which item was
the bad one: callers that know nothing of each other must not pay for each other's mistakes.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from headrace.client.deadline import Deadline, Patience
from headrace.client.errors import ClosedError, UnreachableError
from headrace.client.settings import QueueClientConfig
from headrace.host.clock import Clock, Timer
from headrace.model.errors import HeadraceError, InvalidRequestError, OverloadedError, TimedOutError

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Transmit = Callable[[list[Item], Deadline], Awaitable[Sequence[Outcome | HeadraceError]]]
# The node gave no answer, or none that gets anybody on.
_NO_ANSWER = (TimedOutError, UnreachableError, OverloadedError)


async def carry_apart(
    transmit: "Transmit[Item, Outcome]", items: list[Item], patience: Patience, *, begun_ms: int
) -> list[Outcome | HeadraceError]:
    """An outcome for each item, where a request may be refused for one of them, before anything of it is done."""
    try:
        outcomes = list(await transmit(items, patience.deadline(begun_ms)))
    except HeadraceError as error:
        if not isinstance(error, _NO_ANSWER):
            patience.answered()
        # An error of a kind of its own is about more than an item: the queue, the node, the way there.
        if len(items) == 1 or type(error) is not InvalidRequestError:
            return [error] * len(items)
    else:
        if not all(isinstance(outcome, _NO_ANSWER) for outcome in outcomes):
            patience.answered()
        return outcomes
    middle = len(items) // 2
    # One after the other: what was submitted first is carried first.
    return [
        *await carry_apart(transmit, items[:middle], patience, begun_ms=begun_ms),
        *await carry_apart(transmit, items[middle:], patience, begun_ms=begun_ms),
    ]


class Batcher(Generic[Item, Outcome]):
    def __init__(self, transmit: "Transmit[Item, Outcome]", config: QueueClientConfig, *, clock: Clock) -> None:
        self._transmit = transmit
        self._config = config
        self._clock = clock
        self._patience = Patience(clock, config.deadline_ms)
        self._pending: deque[tuple[Item, int, int, asyncio.Future[Outcome]]] = deque()
        self._pending_bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._requests: set[asyncio.Task[None]] = set()
        self._timer: Timer | None = None
        self._flush_is_due = False
        self._is_closed = False

    async def submit(self, item: Item, size_bytes: int) -> Outcome:
        """Have an item carried with others, and wait for its own outcome."""
        if self._is_closed:
            raise ClosedError("the client is closed; make another one")
        begun_ms = self._clock.monotonic_ms()
        while self._pending_bytes > self._config.pending_bytes_max:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                # It may have been this one's turn, which is somebody else's now.
                self._wake_waiting()
                raise
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._pending.append((item, size_bytes, begun_ms, outcome))
        self._pending_bytes += size_bytes
        self._schedule()
        return await outcome

    async def close(self) -> None:
        """Take no more, send what was submitted before and wait for the answers."""
        self._is_closed = True
        while self._pending or self._requests or self._waiting:
            self._flush_pending()
            if self._requests:
                await asyncio.wait(self._requests)
            else:
                # Whoever waited for room has its turn now.
                self._wake_waiting()
                await asyncio.sleep(0)

    def _schedule(self) -> None:
        if not self._requests:
            if not self._flush_is_due:
                # At the end of this turn: whoever runs in it as well still gets on.
                self._flush_is_due = True
                asyncio.get_running_loop().call_soon(self._flush_due)
        elif self._is_full():
            self._flush_full()
        elif self._timer is None:
            self._timer = self._clock.call_later(self._config.linger_ms, self._linger_over)

    def _is_full(self) -> bool:
        config = self._config
        return len(self._pending) >= config.batch_count_max or self._pending_bytes >= config.batch_bytes_max

    def _has_place(self) -> bool:
        return len(self._requests) < self._config.batches_in_flight_max

    def _flush_due(self) -> None:
        self._flush_is_due = False
        self._flush_pending()

    def _linger_over(self) -> None:
        self._timer = None
        self._flush_pending()

    def _flush_full(self) -> None:
        while self._is_full() and self._has_place():
            self._start_request()

    def _flush_pending(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._pending and self._has_place():
            self._start_request()

    def _start_request(self) -> None:
        config, pending = self._config, self._pending
        items: list[Item] = []
        outcomes: list[asyncio.Future[Outcome]] = []
        size = oldest_ms = 0
        while pending and len(items) < config.batch_count_max:
            item, size_bytes, begun_ms, outcome = pending[0]
            if items and size + size_bytes > config.batch_bytes_max:
                break
            pending.popleft()
            self._pending_bytes -= size_bytes
            # A caller that gave up before its item left has not sent it.
            if outcome.cancelled():
                continue
            if not items:
                oldest_ms = begun_ms
            size += size_bytes
            items.append(item)
            outcomes.append(outcome)
        self._wake_waiting()
        if items:
            request = asyncio.get_running_loop().create_task(self._carry(items, outcomes, oldest_ms))
            self._requests.add(request)
            request.add_done_callback(self._finished)

    def _wake_waiting(self) -> None:
        """A batch of those who wait for room. They look again, and the next are woken when these have left."""
        woken = 0
        while self._waiting and self._pending_bytes <= self._config.pending_bytes_max:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                woken += 1
                if woken >= self._config.batch_count_max:
                    break

    async def _carry(self, items: list[Item], outcomes: "list[asyncio.Future[Outcome]]", begun_ms: int) -> None:
        results: Sequence[Outcome | Exception]
        try:
            results = await carry_apart(self._transmit, items, self._patience, begun_ms=begun_ms)
        except asyncio.CancelledError:
            for outcome in outcomes:
                outcome.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - each caller gets it
            results = [error] * len(items)
        for outcome, result in zip(outcomes, results, strict=True):
            if outcome.done():
                continue
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)

    def _finished(self, request: "asyncio.Task[None]") -> None:
        self._requests.discard(request)
        self._flush_pending()
