"""Redrive: dead letters go back to where they came from, or to a named queue, by filter and at a rate.

What was there when it began is looked at once, in order; what comes in meanwhile, a message that failed again among it,
is left alone. Each message is copied with a move id and ended here when the copy is committed. A redrive is written
down in the metadata, so a node that comes back goes on with it: what was moved is no longer there to be moved again.

A letter that has nowhere to go (it names no source, or one that is gone) stays where it is and holds up no other one; a
redrive that leaves any such letter behind ends as failed and says so.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec

from headrace.broker.queue.browse import parse_place
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.loader import Loader, Wanted
from headrace.broker.queue.moved import header_of, redriven
from headrace.broker.queue.mover import SendMoved
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.broker.queue.port import NO_SOURCE, Redrive, RedriveFilter, RedriveState
from headrace.folds.queue.view import State, iterate, state_of
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import HeadraceError, RedriveRunningError, UnknownRedriveError
from headrace.model.ids import Offset
from headrace.model.message import DEAD_REASON_HEADER, DEAD_SOURCE_HEADER, Message
from headrace.wire.message import StoredMessage

_logger = logging.getLogger(__name__)

_REMEMBERED = 10
_BATCH_COUNT = 100
_SAVE_MS = 1000

Save = Callable[[str, list[dict[str, Any]]], Awaitable[None]]
# Letters with nowhere to go, counted by the queue that they should go to; None: they name none.
Stranded = Counter[str | None]


class SavedRedrive(msgspec.Struct, kw_only=True):
    """A redrive as it is written down: its progress, and up to where it goes in each partition."""

    redrive: Redrive
    upto: list[int]
    # What the queue had counted as gone elsewhere when this began. Its log knows that to the message, while progress is
    # written down now and then.
    gone_before: int | None = None


class Redriver:
    def __init__(
        self,
        *,
        loader: Loader,
        clock: Clock,
        rand: Rand,
        wall_ms: Callable[[], int],
        spawn: Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"],
        find: Callable[[str], LiveQueue | None],
        missing: Callable[[str], HeadraceError],
        send: SendMoved,
        save: Save,
    ) -> None:
        self._loader = loader
        self._clock = clock
        self._rand = rand
        self._wall_ms = wall_ms
        self._spawn = spawn
        self._find = find
        self._missing = missing  # why a queue was not found
        self._send = send
        self._save = save
        self._known: dict[str, list[SavedRedrive]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def resume(self, saved: Mapping[str, list[dict[str, Any]]]) -> None:
        """Go on with what an earlier process had begun."""
        for queue, redrives in saved.items():
            self._known[queue] = [msgspec.convert(redrive, SavedRedrive) for redrive in redrives]
            live = self._find(queue)
            if live is not None and self._known[queue] and self._known[queue][0].redrive.state is RedriveState.RUNNING:
                _make_up(live, self._known[queue][0])
                self._start(live, self._known[queue][0])

    async def begin(
        self, live: LiveQueue, *, target: str | None, filter: RedriveFilter, rate_per_second: int | None
    ) -> Redrive:
        name = live.queue.name
        known = self._known.setdefault(name, [])
        if known and known[0].redrive.state is RedriveState.RUNNING:
            raise RedriveRunningError(f"redrive {known[0].redrive.id} of queue {name} is running; cancel it, or wait")
        saved = SavedRedrive(
            redrive=Redrive(
                id=self._rand.uuid().hex,
                queue=name,
                target=target,
                filter=filter,
                rate_per_second=rate_per_second,
                state=RedriveState.RUNNING,
                moved=0,
                skipped=0,
                total=_total(live, filter),
                started_ms=self._wall_ms(),
            ),
            upto=_ends(live),
            gone_before=_gone(live),
        )
        known.insert(0, saved)
        del known[_REMEMBERED:]
        await self._write(name)
        self._start(live, saved)
        return saved.redrive

    def of(self, queue: str) -> Sequence[Redrive]:
        return [saved.redrive for saved in self._known.get(queue, [])]

    async def cancel(self, queue: str, id: str) -> Redrive:
        saved = next((saved for saved in self._known.get(queue, []) if saved.redrive.id == id), None)
        if saved is None or saved.redrive.state is not RedriveState.RUNNING:
            raise UnknownRedriveError(f"no redrive {id} of queue {queue} is running")
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        if saved.redrive.state is RedriveState.RUNNING:
            self._end(saved, RedriveState.CANCELLED)
        await self._write(queue)
        return saved.redrive

    def forget(self, queue: str) -> None:
        """The queue is gone, and its redrives with it."""
        self._known.pop(queue, None)
        task = self._tasks.pop(queue, None)
        if task is not None:
            task.cancel()

    def _start(self, live: LiveQueue, saved: SavedRedrive) -> None:
        self._tasks[live.queue.name] = self._spawn(self._run(live, saved))

    def _end(
        self, saved: SavedRedrive, state: RedriveState, failure: str | None = None, code: str | None = None
    ) -> None:
        saved.redrive = msgspec.structs.replace(
            saved.redrive, state=state, ended_ms=self._wall_ms(), failure=failure, failure_code=code
        )

    def _complete(self, saved: SavedRedrive, stranded: Stranded) -> None:
        if not stranded:
            self._end(saved, RedriveState.COMPLETED)
            return
        reasons, code = [], None
        if count := stranded.pop(None, 0):
            reasons.append(f"{count} stay: they do not say which queue they came from; name a target")
            code = NO_SOURCE
        for target, count in sorted((target, count) for target, count in stranded.items() if target is not None):
            error = self._missing(target)
            reasons.append(f"{count} stay: {error}")
            code = code or error.code
        self._end(saved, RedriveState.FAILED, ". ".join(reasons), code)

    async def _write(self, queue: str) -> None:
        await self._save(queue, [msgspec.to_builtins(saved) for saved in self._known.get(queue, [])])

    async def _run(self, live: LiveQueue, saved: SavedRedrive) -> None:
        try:
            # What did not match before is looked at again after a restart, and counted anew.
            saved.redrive = msgspec.structs.replace(saved.redrive, skipped=0)
            stranded: Stranded = Counter()
            for partition in list(live.partitions):
                if partition.index < len(saved.upto):  # else it was added since
                    await self._move_all(live, partition, saved.upto[partition.index], saved, stranded)
            live.partitions.check_all()  # what is offline was left behind, and whoever asked is told
            self._complete(saved, stranded)
        except HeadraceError as error:
            _logger.warning("redrive failed", extra={"queue": live.queue.name, "error": str(error)})
            self._end(saved, RedriveState.FAILED, str(error), error.code)
        await self._write(live.queue.name)

    async def _move_all(
        self, live: LiveQueue, partition: PartitionQueue, upto: int, saved: SavedRedrive, stranded: Stranded
    ) -> None:
        # The messages of before can be read, and may be copied, once they are on disk. After a crash some may be gone.
        await partition.committed(Offset(min(upto, partition.partition.end_offset)))
        after = -1
        named = _named(saved.redrive.filter, partition)
        saved_ms = self._clock.monotonic_ms()
        while not live.is_closed:
            rate = saved.redrive.rate_per_second
            count = _BATCH_COUNT if rate is None else max(min(rate // 10, _BATCH_COUNT), 1)
            page = [offset for offset in _page(partition, named, after=after, count_max=count) if offset < upto]
            if not page:
                return
            after = page[-1]
            began_ms = self._clock.monotonic_ms()
            moved = await self._move(live, partition, page, saved.redrive, stranded)
            saved.redrive = msgspec.structs.replace(
                saved.redrive,
                moved=saved.redrive.moved + moved,
                skipped=saved.redrive.skipped + len(page) - moved,
            )
            if rate is not None and moved:
                await self._clock.sleep(max(moved * 1000 / rate - (self._clock.monotonic_ms() - began_ms), 0))
            if self._clock.monotonic_ms() - saved_ms >= _SAVE_MS:
                saved_ms = self._clock.monotonic_ms()
                await self._write(live.queue.name)

    async def _move(
        self, live: LiveQueue, partition: PartitionQueue, page: list[int], redrive: Redrive, stranded: Stranded
    ) -> int:
        found = await self._loader.read([Wanted(partition, offset) for offset in page])
        by_target: dict[str, list[tuple[int, Message]]] = {}
        for offset in page:
            message = found.get((partition.index, offset))
            if message is None or not _matches(message, redrive.filter):
                continue
            target = redrive.target or header_of(message, DEAD_SOURCE_HEADER)
            if target is not None and self._find(target) is not None:
                by_target.setdefault(target, []).append((offset, redriven(live, partition, message)))
            else:
                stranded[target] += 1
        moved = 0
        for target, pairs in by_target.items():
            outcomes = await self._send(target, [message for _, message in pairs])
            done = []
            for (offset, _), outcome in zip(pairs, outcomes, strict=True):
                if isinstance(outcome, HeadraceError):
                    raise outcome
                if partition.fold.is_live(offset):
                    done.append(offset)
            moved += len(done)
            if done:
                await partition.end_redriven(done)
        return moved


def _gone(live: LiveQueue) -> int:
    return sum(partition.fold.counts.dead_lettered for partition in live.partitions)


def _make_up(live: LiveQueue, saved: SavedRedrive) -> None:
    """Count what was moved after the progress was last written down."""
    redrive = saved.redrive
    if saved.gone_before is not None:
        moved = min(max(_gone(live) - saved.gone_before, redrive.moved), redrive.total)
        saved.redrive = msgspec.structs.replace(redrive, moved=moved)


def _ends(live: LiveQueue) -> list[int]:
    """Up to where each partition goes: everything that its count includes, also what is not on disk yet.

    A partition that is offline is not looked at, when it is back neither.
    """
    ends = [0] * live.partitions.count
    for partition in live.partitions:
        ends[partition.index] = partition.partition.end_offset
    return ends


def _total(live: LiveQueue, filter: RedriveFilter) -> int:
    if filter.places is not None:
        return sum(len(_named(filter, partition) or ()) for partition in live.partitions)
    return sum(partition.advanced_fold().visible_count for partition in live.partitions)


def _named(filter: RedriveFilter, partition: PartitionQueue) -> list[int] | None:
    """The offsets of a partition that a filter names, in order; None where it names none at all."""
    if filter.places is None:
        return None
    places = (parse_place(place) for place in filter.places)
    return sorted({offset for index, offset in places if index == partition.index})


def _page(partition: PartitionQueue, named: list[int] | None, *, after: int, count_max: int) -> list[int]:
    """The next visible offsets: of all that are there, or of those that are named, without looking at the others.

    Of an ordered queue also those that wait behind others which can go, for they go in order.
    """
    fold = partition.advanced_fold()
    if fold.config.ordered:
        free = fold.shelf.in_order(fold.ready_offsets())
        found = free.iter_equal_or_larger(after + 1) if named is None else (one for one in named if one in free)
        return list(islice((offset for offset in found if offset > after), count_max))
    if named is None:
        return iterate(fold, after=after, state=State.VISIBLE, count_max=count_max)
    visible = (offset for offset in named if offset > after and state_of(fold, offset) is State.VISIBLE)
    return list(islice(visible, count_max))


def _matches(message: StoredMessage, filter: RedriveFilter) -> bool:
    if filter.reason is not None and filter.reason not in (header_of(message, DEAD_REASON_HEADER) or ""):
        return False
    if filter.source is not None and filter.source != header_of(message, DEAD_SOURCE_HEADER):
        return False
    if filter.key is not None and (message.key is None or message.key != filter.key.encode()):
        return False
    if filter.sent_before_ms is not None and message.sent_ms >= filter.sent_before_ms:
        return False
    if filter.sent_after_ms is not None and message.sent_ms <= filter.sent_after_ms:
        return False
    return filter.body_contains is None or filter.body_contains.encode() in message.body
