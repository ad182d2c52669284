"""Dead letters that go back to their queues, each once, whatever is killed in between.

Theory of operation. Which ones go back is decided once, and written down before the first of them moves: their places,
which are partition and offset in the dead-letter queue. A place is never given to another message, so a letter that
goes back, fails and dies again has a new place and is not part of this redrive.

The node moves them, some hundred at a time, by its own redrive: it copies a message with a move id, and ends it in the
dead-letter queue when the copy is committed, and it goes on with that after a restart. What was moved is not there any
more to be moved again. So asking again for places of which some were moved does nothing wrong, and that is all that a
run does which takes over from one that was killed: it reads what was decided, waits for a redrive that is under way,
and asks for all of the places again. When everything was asked for, what was decided is deleted, and the next run of
the same command decides anew.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from headrace.client.http.caller import is_maybe
from headrace.client.portal import BackgroundLoop
from headrace.client.queue.client import AsyncClient
from headrace.client.queue.description import Redrive, RedriveFilter
from headrace.client.queue.queue import AsyncQueue
from headrace.host.clock import Clock, SystemClock
from headrace.host.disk import SystemDisk, write_atomically
from headrace.model.errors import HeadraceError, RedriveRunningError, UnknownQueueError
from headrace.spark.pipeline.errors import PipelineFailedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.spark.pipeline.context import Run

# Of the states of a message, those in which nobody holds it. A blocked one waits for another of its key.
MOVABLE = ("visible", "blocked")

_DECIDED = "redrive.json"
_PLACES_MAX = 1000  # in one redrive of the node's
_LOOK_MS = 100
_TRIES_MAX = 5  # for a request of which no answer came
# A redrive of the node's that failed because some letters have nowhere to go has moved all others.
_LEFT_BEHIND = frozenset({"no_source", UnknownQueueError.code})


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    queue: str
    to: str | None
    condition: str
    rate: int | None = None


class Decided(msgspec.Struct, frozen=True, kw_only=True):
    """What goes back, as it is written down."""

    queue: str
    to: str | None
    condition: str
    decided_ms: int
    places: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    chosen: int
    moved: int  # by this run
    left: int  # somebody holds them, or the queue that they came from is gone
    notes: tuple[str, ...] = ()


def begun(run: "Run") -> Decided | None:
    """What a run that was cut off had decided."""
    path = run.directory / _DECIDED
    return msgspec.json.decode(path.read_bytes(), type=Decided) if path.exists() else None


def decide(chosen: "DataFrame", order: Order, now_ms: int) -> Decided:
    rows = chosen.select("partition", "offset").orderBy("partition", "offset").collect()
    places = [f"{row['partition']}-{row['offset']}" for row in rows]
    return Decided(queue=order.queue, to=order.to, condition=order.condition, decided_ms=now_ms, places=places)


def at_places(letters: "DataFrame", decided: Decided) -> "DataFrame":
    """Those of the letters that were decided on and are still there."""
    pairs = [tuple(map(int, place.split("-"))) for place in decided.places]
    places = letters.sparkSession.createDataFrame(pairs, "partition int, offset bigint")
    return letters.join(places, ["partition", "offset"], "left_semi")


def redrive(decided: Decided, order: Order, *, http: str, run: "Run") -> Outcome:
    """Write down what was decided, have it moved, and forget it again."""
    path = run.directory / _DECIDED
    write_atomically(SystemDisk(), str(path.parent), path.name, msgspec.json.encode(decided))
    loop = BackgroundLoop(name="headrace-redrive")
    try:
        moved, left = loop.run(_move_all(decided, order.rate, http, run))
    finally:
        loop.close()
    notes = []
    if run.is_stopping and left:
        notes.append("It was asked to end; the same command goes on with what is left.")
    else:
        path.unlink()
        if left:
            notes.append(f"{left:,} stay: somebody holds them, or the queue that they came from is gone (try --to).")
    return Outcome(chosen=len(decided.places), moved=moved, left=left, notes=tuple(notes))


async def _move_all(decided: Decided, rate: int | None, http: str, run: "Run") -> tuple[int, int]:
    """How many were moved, and how many are still there."""
    total = len(decided.places)
    moved = 0
    async with AsyncClient(http) as client:
        mover = _Mover(client.queue(decided.queue), decided.to, rate, SystemClock())
        for places in _pieces(decided.places):
            if run.is_stopping:
                break
            moved = await mover.move(places, moved, lambda now: run.report("moving", rows=now, of=total))
            run.report("moving", rows=moved, of=total)
        left = await _still_there(client.queue(decided.queue), set(decided.places))
    return moved, left


def _pieces(places: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(places), _PLACES_MAX):
        yield places[start : start + _PLACES_MAX]


async def _still_there(queue: AsyncQueue, places: set[str]) -> int:
    count, after = 0, None
    while True:
        page = await queue.browse(limit=1000, after=after)
        count += sum(f"{message.partition}-{message.offset}" in places for message in page.messages)
        after = page.next
        if after is None:
            return count


class _Mover:
    """Has a node redrive places, and waits for it."""

    def __init__(self, queue: AsyncQueue, to: str | None, rate: int | None, clock: Clock) -> None:
        self._queue = queue
        self._to = to
        self._rate = rate
        self._clock = clock

    async def move(self, places: Sequence[str], before: int, told: Callable[[int], None]) -> int:
        """How many have gone, with those before. Of an ordered queue the next of a key goes when the one before has."""
        upto = before + len(places)
        while before < upto:
            ended = await self._redrive(places, before, told)
            before += ended.moved
            if ended.moved == 0:
                break
        return before

    async def _redrive(self, places: Sequence[str], before: int, told: Callable[[int], None]) -> Redrive:
        for tried in range(1, _TRIES_MAX + 1):
            await self._wait_for_others()
            try:
                started = await self._queue.redrive(
                    target=self._to, filter=RedriveFilter(places=tuple(places)), rate=self._rate
                )
            except RedriveRunningError:
                continue
            except HeadraceError as error:
                # It may run: then it is waited for, and asking again finds the rest.
                if tried == _TRIES_MAX or not (error.retriable or is_maybe(error)):
                    raise
                continue
            return await self._wait_for(started, before, told)
        raise PipelineFailedError(
            f"other redrives of {self._queue.name} run all the time; wait for them, or cancel them"
        )

    async def _wait_for_others(self) -> None:
        while any(one.state == "running" for one in await self._queue.redrives()):
            await self._clock.sleep(_LOOK_MS)

    async def _wait_for(self, started: Redrive, before: int, told: Callable[[int], None]) -> Redrive:
        current = started
        while current.state == "running":
            await self._clock.sleep(_LOOK_MS)
            known = [one for one in await self._queue.redrives() if one.id == started.id]
            if not known:
                raise PipelineFailedError(
                    f"the node knows nothing of the redrive {started.id} any more; run this again"
                )
            current = known[0]
            told(before + current.moved)
        if current.state == "failed" and current.failure_code not in _LEFT_BEHIND:
            raise PipelineFailedError(f"the node could not redrive {self._queue.name}: {current.failure}")
        if current.state == "cancelled":
            raise PipelineFailedError(f"somebody cancelled the redrive {current.id} of {self._queue.name}")
        return current
