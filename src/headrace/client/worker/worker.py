"""Functions that are called for each message of a queue.

    @headrace.worker("tasks", concurrency=10, lease=30)
    def brew(message: headrace.Message) -> None:
        print(message.json(), message.attempt)

    brew.run()          # or on the command line: headrace worker teashop:brew

A handler that returns has done its message; one that raises gets it again later. `Retry(delay)` and `Reject(reason)`
say it more exactly. Handlers may be synchronous, each call then has a thread, or asynchronous.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import msgspec

from headrace.client.portal import Portal
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.message import AsyncMessage
from headrace.client.queue.outgoing import Span, seconds
from headrace.client.queue.sync import Message
from headrace.client.worker.config import WorkerConfig
from headrace.client.worker.loop import run_to_its_end
from headrace.client.worker.runner import COURTESY_S, Handler, Runner, Stop
from headrace.client.worker.threads import HandlerThreads
from headrace.host.clock import SystemClock
from headrace.host.process import hears_signals, on_stop_signal
from headrace.host.rand import SystemRand
from headrace.model.address import Address
from headrace.model.errors import InvalidConfigError
from headrace.model.names import check_topic_name

M = TypeVar("M")  # what the handler takes: a Message, or an AsyncMessage
R = TypeVar("R")  # what calling it gives


class Worker(Generic[M, R]):
    """A handler and how it wants its messages. Calling it calls the handler, as in a test."""

    def __init__(self, handler: Callable[[M], R], config: WorkerConfig) -> None:
        _check_handler(handler)
        self.handler = handler
        self.config = config
        self.__doc__ = handler.__doc__

    def __call__(self, message: M) -> R:
        return self.handler(message)

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.handler) or inspect.iscoroutinefunction(
            getattr(self.handler, "__call__", None)  # noqa: B004 - an object whose call is asynchronous
        )

    def configured(self, **changes: Any) -> "Worker[M, R]":
        """The same handler with another configuration; see `WorkerConfig`."""
        return Worker(self.handler, checked_config(**{**msgspec.structs.asdict(self.config), **changes}))

    def run(self, servers: str | Sequence[str | Address] | None = None) -> bool:
        """Work in the foreground until SIGTERM or Ctrl-C; returns whether every handler could finish.

        A node that is not up yet is waited for. Without `servers` it is the one that HEADRACE_HTTP names.
        In another thread than the main one it hears no signals, and works until the program ends: see `serve`.
        """

        async def main() -> bool:
            stop = Stop()
            if hears_signals():
                on_stop_signal(stop.ask)
            client = AsyncClient(servers)
            try:
                return await self.serve(client, stop)
            finally:
                # Nobody waits any more for an answer that is still to come.
                with suppress(TimeoutError):
                    async with asyncio.timeout(COURTESY_S):
                        await client.close()

        return run_to_its_end(main(), courtesy_s=COURTESY_S)

    async def serve(self, client: AsyncClient, stop: Stop) -> bool:
        """Work in a running loop until a stop is asked for; returns whether every handler could finish.

        `stop.ask()` is for the loop's own thread; others have `loop.call_soon_threadsafe(stop.ask)`.
        """
        # A queue of a name that cannot be would be waited for without end.
        check_topic_name(self.config.queue)
        threads = HandlerThreads(name=f"headrace-{self.config.queue}", count_max=self.config.concurrency)
        portal = Portal(asyncio.get_running_loop())

        def in_thread(message: AsyncMessage) -> "asyncio.Future[None]":
            handle = cast(Callable[[Message], object], self.handler)
            return threads.run(lambda: _done(handle(Message(message, portal))))

        handler = cast(Handler, self.handler) if self.is_async else in_thread
        queue = client.queue(self.config.queue)
        runner = Runner(queue, handler, self.config, clock=SystemClock(), rand=SystemRand())
        try:
            await runner.run(stop)
        finally:
            threads.close()
        return not runner.was_cut


def _done(result: object) -> None:
    """A handler that returns something that is still to be awaited has done nothing yet, and must not seem to have."""
    if inspect.iscoroutine(result):
        result.close()
    if inspect.isawaitable(result):
        raise TypeError(
            "the handler returned something to be awaited, and is no `async def` itself; make it one, and await in it"
        )


def _check_handler(handler: object) -> None:
    call = getattr(handler, "__call__", None)  # noqa: B004 - an object that is called like a function
    if call is None:
        raise InvalidConfigError(f"{handler!r} is no handler; give a function that takes a message")
    _check_takes_a_message(handler)
    for function in (handler, call):
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidConfigError(f"{handler!r} yields, so that it would not run at all; take the `yield` out of it")


def _check_takes_a_message(handler: Any) -> None:
    try:
        signature = inspect.signature(handler)
    except (TypeError, ValueError):
        return  # of a function in C, which does not always tell
    try:
        signature.bind(None)
    except TypeError:
        name = getattr(handler, "__qualname__", repr(handler))
        raise InvalidConfigError(
            f"{name}{signature} cannot be called with one message; a handler takes one argument, the message"
        ) from None


class Decorator(Protocol):
    """Which handlers there are. An asynchronous one is tried first, because what it returns would do for the other."""

    @overload
    def __call__(
        self, handler: Callable[[AsyncMessage], Coroutine[Any, Any, R]], /
    ) -> Worker[AsyncMessage, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, handler: Callable[[Message], R], /) -> Worker[Message, R]: ...


def worker(
    queue: str,
    *,
    concurrency: int = 10,
    lease: Span | None = None,
    prefetch: int | None = None,
    grace: Span = 30,
) -> Decorator:
    """Make a function the worker of a queue: one that takes a `Message`, or an `async def` with an `AsyncMessage`."""
    given: object = queue
    if not isinstance(given, str):
        raise InvalidConfigError(
            "@headrace.worker needs the name of its queue: write @headrace.worker('tasks') above the function"
        )
    config = checked_config(
        queue=queue, concurrency=concurrency, lease_s=seconds(lease), prefetch=prefetch, grace_s=seconds(grace)
    )

    def decorate(handler: Callable[[Any], Any]) -> Worker[Any, Any]:
        return Worker(handler, config)

    return cast(Decorator, decorate)


def checked_config(**values: Any) -> WorkerConfig:
    """A configuration that can be; the error says which value cannot."""
    try:
        return msgspec.convert(values, WorkerConfig)
    except msgspec.ValidationError as error:
        raise InvalidConfigError(f"a worker cannot have this: {error}") from None
