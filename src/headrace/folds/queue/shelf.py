"""The messages that could be handed out, in the order in which they would be.

A shelf knows every live message as ready or not ready (leased, delayed, dying, overdue), and holds those that may be
picked now by priority, in the order that `rotation.py` says: compressed sets of offsets, and those that were tried.
Three kinds differ in what may be picked:

    Shelf          every ready message, by priority and then by place
    OrderedShelf   of each key only the first live message, if it is ready           (lanes.py)
    FairShelf      every ready message, the keys taking turns                        (turns.py)

`pick` chooses and changes nothing. What is taken is then told by `take`, on replay too, where nothing was picked.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple

from pyroaring import BitMap64

from headrace.folds.queue.rotation import Line, Rotation
from headrace.model.queue import PRIORITY_DEFAULT

NONE = BitMap64()


class LaneImage(NamedTuple):
    """The live messages of one key, in order."""

    key: bytes
    turn: int  # when it was last served; 0: not yet
    offsets: Sequence[int]


class FrozenShelf(NamedTuple):
    """What of a shelf goes into a snapshot, as of one moment."""

    turn: int
    others: dict[int, BitMap64]
    lanes: Callable[[], Iterable[LaneImage]]  # in an order that follows from the state; takes long if there are many


class Shelf:
    """Ready messages of a queue without keys."""

    has_lanes = False

    def __init__(self, live: BitMap64, rotation: Rotation) -> None:
        self._live = live  # the state's own: a message leaves it before `done` is called
        self._rotation = rotation
        # By priority, highest first. Most queues have the default one alone.
        self.lines: dict[int, Line] = {PRIORITY_DEFAULT: Line(rotation)}
        # Live messages of another priority than the default, so that one that comes back finds its place.
        self.others: dict[int, BitMap64] = {}
        self.turn = 0  # the last turn that was taken, where keys take turns

    # Arrivals.

    def add_range(self, base: int, end: int, *, is_ready: bool) -> None:
        """Messages without key and of default priority."""
        if is_ready:
            self.lines[PRIORITY_DEFAULT].fresh.add_range(base, end)

    def add(self, offset: int, key: bytes | None, priority: int, *, is_ready: bool) -> None:
        self.note_priority(offset, priority)
        if is_ready:
            self.lines[priority].fresh.add(offset)

    def note_priority(self, offset: int, priority: int) -> None:
        if priority == PRIORITY_DEFAULT:
            return
        if priority not in self.others:
            self.others[priority] = BitMap64()
            self.lines[priority] = Line(self._rotation)
            self.lines = dict(sorted(self.lines.items(), reverse=True))
        self.others[priority].add(offset)

    # Changes of a live message.

    def ready(self, offset: int, *, is_tried: bool = False) -> None:
        self.line_of(offset).add(offset, is_tried=is_tried)

    def unready(self, offset: int) -> None:
        self.line_of(offset).discard(offset)

    def take(self, offsets: Iterable[int], moment_ms: int) -> None:
        """Messages that were handed out, in this order, at a moment: not ready from now on."""
        if self.others:
            for offset in offsets:
                self.unready(offset)
            return
        line = self.lines[PRIORITY_DEFAULT]
        if line.tried is not None:
            for offset in offsets:
                line.discard(offset)
            return
        fresh = line.fresh
        for offset in offsets:
            fresh.discard(offset)

    # The end of messages, which have left the live ones.

    def done(self, offset: int) -> None:
        priority = self.priority_of(offset)
        self.lines[priority].discard(offset)
        if priority != PRIORITY_DEFAULT:
            self.others[priority].discard(offset)

    def done_below(self, offset: int) -> None:
        for line in self.lines.values():
            line.discard_below(offset)
        for offsets in self.others.values():
            offsets.remove_range(0, offset)

    # Choosing.

    def pick(self, count_max: int, upto: int) -> list[int]:
        """Up to so many offsets below `upto`, in the order in which they are to be handed out."""
        picked: list[int] = []
        for line in self.lines.values():
            if not line:
                continue
            left = count_max - len(picked)
            if line.tried is None:
                found = list(islice(line.fresh, left))
                # In order of offset: if the last is below, all are.
                picked += found if found[-1] < upto else [offset for offset in found if offset < upto]
            else:
                picked += islice(line.first(left, upto), left)
            if len(picked) == count_max:
                break
        return picked

    def has_visible(self, upto: int) -> bool:
        return any(line.has_below(upto) for line in self.lines.values())

    def is_visible(self, offset: int) -> bool:
        return any(offset in line for line in self.lines.values())

    def visible_sets(self) -> list[tuple[int, BitMap64]]:
        """What could be handed out now, with its priority: each message in one of these sets."""
        return [(priority, offsets) for priority, line in self.lines.items() for offsets in line.sets()]

    @property
    def has_turns(self) -> bool:
        """Whether anything here is ordered by when it was handed out, though no message says so."""
        return False

    # Looking.

    def maybe_ready(self) -> Iterator[int]:
        """All ready messages in order of offset; where keys have an order, others may be among them."""
        return merge(*(offsets for _, offsets in self.visible_sets()))

    def line_of(self, offset: int) -> Line:
        return self.lines[self.priority_of(offset) if self.others else PRIORITY_DEFAULT]

    def priority_of(self, offset: int) -> int:
        for priority, offsets in self.others.items():
            if offset in offsets:
                return priority
        return PRIORITY_DEFAULT

    def lane(self, key: bytes) -> Sequence[int]:
        """The live messages of a key, in order; none where the shelf has no lanes."""
        return ()

    def blocker(self, offset: int) -> int | None:
        """The earlier message of its key behind which a ready one has to wait."""
        return None

    def in_order(self, ready: BitMap64) -> BitMap64:
        """Of the ready messages, those that can leave together and pass nobody who has to stay."""
        return ready

    def freeze(self) -> FrozenShelf:
        """Take down what a snapshot needs, which nobody changes then."""
        others = {priority: members.copy() for priority, members in self.others.items()}
        return FrozenShelf(self.turn, others, self._freeze_lanes())

    def lanes(self) -> Iterable[LaneImage]:
        return self._freeze_lanes()()

    def _freeze_lanes(self) -> Callable[[], Iterable[LaneImage]]:
        return tuple

    # Making it anew, after a restart or when the queue's configuration asks for another kind.

    def load(
        self, lanes: Iterable[LaneImage], ready: BitMap64, others: dict[int, BitMap64], tried: BitMap64 = NONE
    ) -> None:
        """`tried`: those that were handed out before, the ready ones among them."""
        for priority, offsets in others.items():
            for offset in offsets:
                self.note_priority(offset, priority)
        rest = ready.copy()
        for priority, offsets in self.others.items():
            self.lines[priority].load(ready & offsets, tried)
            rest -= offsets
        self.lines[PRIORITY_DEFAULT].load(rest, tried)
