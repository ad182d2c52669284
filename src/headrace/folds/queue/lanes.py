"""Ordered queues: the messages of a key are handed out one after the other.

Each key with live messages has a lane, its messages in order of offset. The rule is one sentence: from a lane may be
taken what is ready, from the front, up to the first live message that is not ready. So nothing passes an earlier
message that is leased, delayed or on its way out; several may be taken together; and one that comes back has kept its
place.

A key that was served goes behind the others (`rotation.py`): when that was is known of it for as long as it has live
messages. A key that was not served stands where its front does.

Only a ready front is in the visible sets. A waiting message costs the eight bytes of its place in the lane: which
lane it belongs to is known only for fronts and for messages that are not ready (`_lane_of`). One that dies while it
waits (its time to live is over, the queue is purged) therefore stays in its lane until it comes to the front and is
passed over.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from pyroaring import BitMap64

from headrace.folds.queue.rotation import Rotation, next_key
from headrace.folds.queue.shelf import NONE, LaneImage, Shelf


class Lane:
    """One key's messages, in order, dead ones among them."""

    __slots__ = ("_offsets", "_start", "key", "turn")

    def __init__(self, key: bytes, turn: int = 0) -> None:
        self.key = key
        self.turn = turn  # its key in the rotation; 0: it was not served, and stands where its front does
        self._offsets = array("q")
        self._start = 0

    def append(self, offset: int) -> None:
        self._offsets.append(offset)

    def front(self, live: BitMap64) -> int | None:
        """The first live message; the dead before it are forgotten."""
        offsets = self._offsets
        start = self._start
        while start < len(offsets) and offsets[start] not in live:
            start += 1
        if start > 32 and start > len(offsets) // 2:
            del offsets[:start]
            start = 0
        self._start = start
        return offsets[start] if start < len(offsets) else None

    def __iter__(self) -> Iterator[int]:
        return islice(self._offsets, self._start, None)

    def copied(self) -> "array[int]":
        return self._offsets[self._start :]


class OrderedShelf(Shelf):
    """Ready messages of an ordered queue. Messages without a key have no order."""

    has_lanes = True

    def __init__(self, live: BitMap64, rotation: Rotation) -> None:
        super().__init__(live, Rotation(rotation.marks, self._turn_of))
        self._message_key_of = rotation.key_of
        self._lanes: dict[bytes, Lane] = {}
        self._lane_of: dict[int, Lane] = {}
        self._unready = BitMap64()  # of messages with a key

    def add(self, offset: int, key: bytes | None, priority: int, *, is_ready: bool) -> None:
        if key is None:
            super().add(offset, None, priority, is_ready=is_ready)
            return
        self.note_priority(offset, priority)
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        lane.append(offset)
        if not is_ready:
            self._unready.add(offset)
            self._lane_of[offset] = lane
        self._refresh(lane)

    def ready(self, offset: int, *, is_tried: bool = False) -> None:
        self._unready.discard(offset)
        lane = self._lane_of.get(offset)
        if lane is None:
            super().ready(offset, is_tried=is_tried)
            return
        if lane.front(self._live) == offset:
            self._show(lane, offset)
        else:
            del self._lane_of[offset]

    def _show(self, lane: Lane, front: int) -> None:
        """A key's first message may be handed out."""
        self.line_of(front).add(front, is_tried=lane.turn > 0)

    def _turn_of(self, offset: int) -> int:
        lane = self._lane_of.get(offset)
        return self._message_key_of(offset) if lane is None else lane.turn

    def unready(self, offset: int) -> None:
        super().unready(offset)
        # A waiting message whose time to live is over is in no lane that we know of, and may be of no key at all; it
        # is noted all the same, since it must not be handed out when it comes to the front.
        self._unready.add(offset)

    def take(self, offsets: Iterable[int], moment_ms: int) -> None:
        following: dict[int, tuple[Lane, Iterator[int]]] = {}
        for offset in offsets:
            super().unready(offset)
            lane = self._lane_of.get(offset)
            if offset in following:
                lane, walk = following.pop(offset)
            elif lane is not None:
                walk = iter(lane)
                self._serve(lane, offset, moment_ms)
            else:
                continue
            self._unready.add(offset)
            self._lane_of[offset] = lane
            # What is taken together is in order: the next one of this lane can only be its next live message.
            for later in walk:
                if later > offset and later in self._live:
                    following[later] = (lane, walk)
                    break

    def _serve(self, lane: Lane, taken: int, moment_ms: int) -> None:
        """It goes behind the others."""
        turn = next_key(lane.turn, moment_ms)
        front = lane.front(self._live)
        if front is None or front == taken or not self.is_visible(front):
            lane.turn = turn
        else:  # a cleaned log lacks what came in between
            super().unready(front)
            lane.turn = turn
            self._show(lane, front)

    def done(self, offset: int) -> None:
        super().done(offset)
        self._unready.discard(offset)
        lane = self._lane_of.pop(offset, None)
        if lane is not None:
            self._refresh(lane)

    def done_below(self, offset: int) -> None:
        super().done_below(offset)
        self._unready.remove_range(0, offset)
        self._lane_of = {kept: lane for kept, lane in self._lane_of.items() if kept >= offset}
        for lane in list(self._lanes.values()):
            self._refresh(lane)

    def pick(self, count_max: int, upto: int) -> list[int]:
        picked: list[int] = []
        for line in self.lines.values():
            left = count_max - len(picked)
            if not left:
                break
            fronts = list(islice(line.first(left, upto), left))
            for front in fronts:
                if len(picked) == count_max:
                    break
                picked.append(front)
                # As many of one key as there are, as SQS does: whoever has the key may as well have them all.
                if (lane := self._lane_of.get(front)) is not None and len(picked) < count_max:
                    picked += islice(self._followers(lane, front, upto), count_max - len(picked))
        return picked

    def _followers(self, lane: Lane, front: int, upto: int) -> Iterator[int]:
        for offset in lane:
            if offset == front or offset not in self._live:
                continue
            if offset >= upto or offset in self._unready:
                return
            yield offset

    @property
    def has_turns(self) -> bool:
        return bool(self._lanes)

    def maybe_ready(self) -> Iterator[int]:
        return iter(self._live - self._unready)  # of messages without a key, it is not known here who has them

    def lane(self, key: bytes) -> Sequence[int]:
        lane = self._lanes.get(key)
        return [offset for offset in lane if offset in self._live] if lane is not None else []

    def blocker(self, offset: int) -> int | None:
        if offset in self._unready or offset in self._lane_of or self.is_visible(offset):
            return None
        # Waiting messages do not know their lane. Somebody asks, so a search through all of them may be paid.
        for lane in self._lanes.values():
            if offset in lane:
                return lane.front(self._live)
        return None

    def in_order(self, ready: BitMap64) -> BitMap64:
        found = ready.copy()
        for lane in {lane for offset, lane in self._lane_of.items() if offset in self._unready}:
            is_behind = False
            for offset in lane:
                is_behind = is_behind or (offset in self._live and offset in self._unready)
                if is_behind:
                    found.discard(offset)
        return found

    def _freeze_lanes(self) -> Callable[[], Iterable[LaneImage]]:
        live = self._live.copy()
        lanes = [(lane.key, lane.turn, lane.copied()) for lane in self._lanes.values()]

        def images() -> Iterable[LaneImage]:
            found = [
                LaneImage(key, turn, [offset for offset in offsets if offset in live]) for key, turn, offsets in lanes
            ]
            return sorted(found, key=lambda image: image.offsets[0])

        return images

    def load(
        self, lanes: Iterable[LaneImage], ready: BitMap64, others: dict[int, BitMap64], tried: BitMap64 = NONE
    ) -> None:
        rest = ready.copy()
        for key, turn, offsets in lanes:
            lane = self._lanes[key] = Lane(key, turn)
            for offset in offsets:
                lane.append(offset)
                if offset not in ready:
                    self._unready.add(offset)
                    self._lane_of[offset] = lane
            rest -= BitMap64(offsets)
        super().load((), rest, others, tried)
        for lane in list(self._lanes.values()):
            self._refresh(lane)

    def _refresh(self, lane: Lane) -> None:
        """The front may be another one, or ready now."""
        front = lane.front(self._live)
        if front is None:
            del self._lanes[lane.key]
            return
        self._lane_of[front] = lane
        if front not in self._unready:
            self._show(lane, front)
