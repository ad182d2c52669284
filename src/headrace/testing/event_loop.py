"""An event loop in virtual time: when nothing is ready, time jumps to the next timer.

Theory of operation. Everything that runs belongs to an *actor*: one run of a node, one client, the world that plans
faults. A callback that is scheduled while an actor runs belongs to that actor. A task that another actor wakes stays
with its own, because the actor is a context variable; only the network schedules for another actor. The callbacks of
one actor run first in, first out, as in asyncio. Which actor runs next, when several can, is the seed's choice. Time
stands still while callbacks run.

A paused actor runs nothing, and what falls due meanwhile waits, in order. A killed actor never runs again: its
callbacks and timers are dropped, and its coroutines are ended after the actor is marked dead, when nothing that a
`finally` block does can reach the outside any more.
"""

import asyncio
import heapq
import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from headrace.testing.rand import Chooser

T = TypeVar("T")

# A coroutine that awaits in each of its `finally` blocks is thrown at once for each of them.
_THROWS_MAX = 1000


_ACTOR: ContextVar["Actor"] = ContextVar("actor")


class KilledError(BaseException):
    """Ends the coroutines of a killed actor. It is no Exception, so that no handler of the product's takes it."""


class StuckError(Exception):
    """Nothing is ready and no timer is set: what is waited for will never happen."""


class Actor:
    """Something that runs on the loop, and can be paused or killed as a whole."""

    __slots__ = ("context", "index", "is_dead", "is_paused", "name", "ready", "tasks")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.is_paused = False
        self.is_dead = False
        self.ready: deque[asyncio.Handle] = deque()
        self.tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.context = copy_context()
        self.context.run(_ACTOR.set, self)


class VirtualLoop(asyncio.BaseEventLoop):
    """An `asyncio` event loop without sockets, signals, executors or a real clock."""

    def __init__(self, choose: Chooser) -> None:
        super().__init__()
        self._choose = choose
        self._now = 0.0
        self._timers: list[tuple[float, int, Actor, asyncio.TimerHandle]] = []
        self._timer_count = 0
        self._actors: dict[int, Actor] = {}  # those that can run now, by index
        self._actor_count = 0
        self._task_count = 0
        self._buried: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self.turns = 0
        self.world = self.make_actor("world")
        self.current = self.world

    # Actors.

    def make_actor(self, name: str) -> Actor:
        self._actor_count += 1
        return Actor(name, self._actor_count)

    @contextmanager
    def acting(self, actor: Actor) -> Iterator[None]:
        """What is scheduled in this block belongs to the actor."""
        before, self.current = self.current, actor
        try:
            yield
        finally:
            self.current = before

    def spawn(self, actor: Actor, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        with self.acting(actor):
            return self.create_task(work, context=actor.context.copy())

    def pause(self, actor: Actor) -> None:
        actor.is_paused = True
        self._actors.pop(actor.index, None)

    def resume(self, actor: Actor) -> None:
        actor.is_paused = False
        self._note_ready(actor)

    def kill(self, actor: Actor) -> None:
        """Stop an actor as a crash does: nothing of it runs on."""
        actor.is_dead = True
        self._actors.pop(actor.index, None)
        tasks = sorted(actor.tasks, key=lambda task: task.get_name())
        self._buried.update(tasks)
        actor.ready.clear()
        with self.acting(actor):
            for task in tasks:
                if not task.done():
                    _bury(task)
        actor.ready.clear()

    def is_buried(self, task: "asyncio.Task[Any]") -> bool:
        """Whether a task belonged to an actor when that was killed."""
        return task in self._buried

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]  # typeshed binds the arguments to the callback's
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        actor = self.current if context is None else context.get(_ACTOR, self.current)
        handle = asyncio.Handle(callback, args, self, context)
        if not actor.is_dead:
            actor.ready.append(handle)
            self._note_ready(actor)
        return handle

    def call_soon_for(self, actor: Actor, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        with self.acting(actor):
            return self.call_soon(callback, *args, context=actor.context.copy())

    call_soon_threadsafe = call_soon  # type: ignore[assignment]  # there is one thread

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(delay, 0.0), callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        actor = self.current
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not actor.is_dead:
            self._timer_count += 1
            heapq.heappush(self._timers, (when, self._timer_count, actor, timer))
        return timer

    def call_at_for(
        self, actor: Actor, when: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        with self.acting(actor):
            return self.call_at(when, callback, *args, context=actor.context.copy())

    def create_task(  # type: ignore[override]
        self, coro: Any, *, name: str | None = None, **kwargs: Any
    ) -> "asyncio.Task[Any]":
        self._task_count += 1
        task = super().create_task(coro, name=name or f"{self.current.name}/{self._task_count}", **kwargs)
        self.current.tasks.add(task)
        return task

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers stay in the heap until they are due."""

    def _note_ready(self, actor: Actor) -> None:
        if actor.ready and not actor.is_paused:
            self._actors[actor.index] = actor

    def _run_once(self) -> None:
        if not self._actors:
            self._jump()
        actors = self._actors
        if not actors:
            return
        if len(actors) == 1:
            actor = next(iter(actors.values()))
        else:
            indexes = sorted(actors)
            actor = actors[indexes[self._choose.randint(0, len(indexes) - 1)]]
        ready = actor.ready
        self.current = actor
        self.turns += 1
        # What these callbacks schedule runs in a later turn, after another actor may have had one.
        for _ in range(len(ready)):
            if actor.is_paused or not ready:
                break
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()
        if not ready:
            actors.pop(actor.index, None)
        self.current = self.world
        if self._timers and self._timers[0][0] <= self._now:
            self._take_due()

    def _jump(self) -> None:
        timers = self._timers
        while timers and (timers[0][3].cancelled() or timers[0][2].is_dead):
            heapq.heappop(timers)
        if not timers:
            raise StuckError(f"nothing is ready and no timer is set at {self._now:.3f} s")
        self._now = max(self._now, timers[0][0])
        self._take_due()

    def _take_due(self) -> None:
        timers = self._timers
        while timers and timers[0][0] <= self._now:
            _, _, actor, timer = heapq.heappop(timers)
            if not timer.cancelled() and not actor.is_dead:
                actor.ready.append(timer)
                self._note_ready(actor)

    # An asynchronous generator that is dropped is closed at once: nothing is scheduled at the collector's whim.

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        pass

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        raise AssertionError("there is no selector")

    def _write_to_self(self) -> None:
        pass


def _bury(task: "asyncio.Task[Any]") -> None:
    """End the coroutines of a task that will never run on. What their `finally` blocks raise is of no interest."""
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    work: Any = task.get_coro()
    for _ in range(_THROWS_MAX):
        try:
            # Not `close`, which leaves a coroutine half open where a `finally` block awaits.
            work.throw(KilledError())
        except BaseException:  # noqa: BLE001 - see above
            return
