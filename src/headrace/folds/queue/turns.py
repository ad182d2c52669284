"""Fair queues: the keys of an unordered queue take turns, so that a noisy one does not starve the others.

Each key with live messages has the number of its last turn; a key that is new, or is back after it had nothing, gets
a number as if it had just had one. The next message is of the key whose turn is longest ago. Within a key, by
priority and then by place (`rotation.py`): if priority went first, a noisy key had only to raise it. Messages without
a key share a turn.

Turn numbers change with arrivals and hand-outs only, in the log's order, so a replay gives the same ones. Which key a
message has is remembered for each: about 100 bytes a message. That is the price of asking for fairness.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from pyroaring import BitMap64

from headrace.folds.queue.rotation import Line, Rotation
from headrace.folds.queue.shelf import NONE, LaneImage, Shelf
from headrace.model.queue import PRIORITY_DEFAULT

_NEVER = -1
KEYLESS = b""  # in an image alone: a key of no bytes takes its turn with those that have none


class Party:
    """The messages of one key."""

    __slots__ = ("key", "live_count", "queued_turn", "ready", "turn")

    def __init__(self, key: bytes, turn: int) -> None:
        self.key = key
        self.turn = turn
        self.queued_turn = _NEVER  # with which it stands in the heap
        self.live_count = 0
        self.ready: dict[int, Line] = {}  # highest priority first

    def first(self, count_max: int, upto: int) -> Iterator[int]:
        """Its ready messages below an offset, in the order in which they are to be handed out; at least so many."""
        for line in self.ready.values():
            yield from line.first(count_max, upto)

    def has_below(self, upto: int) -> bool:
        return any(line.has_below(upto) for line in self.ready.values())

    @property
    def has_ready(self) -> bool:
        return any(self.ready.values())

    def of_priority(self, priority: int, rotation: Rotation) -> Line:
        if priority not in self.ready:
            self.ready[priority] = Line(rotation)
            self.ready = dict(sorted(self.ready.items(), reverse=True))
        return self.ready[priority]

    def discard(self, offset: int) -> None:
        for line in self.ready.values():
            line.discard(offset)


class FairShelf(Shelf):
    """Ready messages whose keys take turns."""

    has_lanes = True

    def __init__(self, live: BitMap64, rotation: Rotation) -> None:
        super().__init__(live, rotation)  # its lines say what is ready, and the keys' own in which order
        self._keyless = Party(KEYLESS, 0)  # always there; its messages are those that `_party_of` does not know
        self._parties: dict[bytes, Party] = {}
        self._party_of: dict[int, Party] = {}
        self._heap: list[tuple[int, Party]] = []  # by turn, which no two parties share; outdated ones among them

    def add_range(self, base: int, end: int, *, is_ready: bool) -> None:
        super().add_range(base, end, is_ready=is_ready)
        if is_ready:
            self._keyless.of_priority(PRIORITY_DEFAULT, self._rotation).fresh.add_range(base, end)
            self._queue(self._keyless)

    def add(self, offset: int, key: bytes | None, priority: int, *, is_ready: bool) -> None:
        self.note_priority(offset, priority)
        if key:
            party = self._parties.get(key)
            if party is None:
                self.turn += 1
                party = self._parties[key] = Party(key, self.turn)
            party.live_count += 1
            self._party_of[offset] = party
        if is_ready:
            self.ready(offset)

    def ready(self, offset: int, *, is_tried: bool = False) -> None:
        super().ready(offset)
        party = self._party(offset)
        party.of_priority(self.priority_of(offset), self._rotation).add(offset, is_tried=is_tried)
        self._queue(party)

    def unready(self, offset: int) -> None:
        super().unready(offset)
        self._party(offset).discard(offset)

    def take(self, offsets: Iterable[int], moment_ms: int) -> None:
        for offset in offsets:
            self.unready(offset)
            party = self._party(offset)
            self.turn += 1
            party.turn = self.turn
            self._queue(party)

    def done(self, offset: int) -> None:
        super().done(offset)
        party = self._party_of.pop(offset, self._keyless)
        party.discard(offset)
        self._left(party)

    def done_below(self, offset: int) -> None:
        super().done_below(offset)
        for party in (self._keyless, *self._parties.values()):
            for line in party.ready.values():
                line.discard_below(offset)
        for gone in [known for known in self._party_of if known < offset]:
            self._left(self._party_of.pop(gone))

    def pick(self, count_max: int, upto: int) -> list[int]:
        waiting: list[Iterator[int]] = []
        seen: list[Party] = []
        while self._heap and len(waiting) < count_max:
            turn, party = heappop(self._heap)
            if party.queued_turn != turn:
                continue
            party.queued_turn = _NEVER
            seen.append(party)
            if party.has_below(upto):
                waiting.append(party.first(count_max, upto))
        for party in seen:
            self._queue(party)
        return _round_robin(waiting, count_max)

    def lane(self, key: bytes) -> Sequence[int]:
        party = self._parties.get(key)
        return sorted(offset for offset, owner in self._party_of.items() if owner is party) if party is not None else []

    def _freeze_lanes(self) -> Callable[[], Iterable[LaneImage]]:
        """The keyless first: its turn must be kept, its messages need not be told."""
        keyless = LaneImage(KEYLESS, self._keyless.turn, [])
        turns = [(party.turn, party.key) for party in self._parties.values()]
        party_of = self._party_of.copy()

        def images() -> Iterable[LaneImage]:
            members: dict[bytes, list[int]] = {key: [] for _, key in turns}
            for offset, party in party_of.items():
                members[party.key].append(offset)
            return [keyless, *(LaneImage(key, turn, sorted(members[key])) for turn, key in sorted(turns))]

        return images

    def load(
        self, lanes: Iterable[LaneImage], ready: BitMap64, others: dict[int, BitMap64], tried: BitMap64 = NONE
    ) -> None:
        super().load((), ready, others)
        keyless = ready.copy()
        for key, turn, offsets in lanes:
            if key == KEYLESS:
                self._keyless.turn = turn
                self.turn = max(self.turn, turn)
                continue
            # An ordered queue's lanes have had no turns: they get theirs in the order in which they come.
            party = self._parties[key] = Party(key, turn or self.turn + 1)
            self.turn = max(self.turn, party.turn)
            party.live_count = len(offsets)
            for offset in offsets:
                self._party_of[offset] = party
            keyless -= BitMap64(offsets)
            self._load_ready(party, ready & BitMap64(offsets), tried)
        self._load_ready(self._keyless, keyless, tried)

    def _load_ready(self, party: Party, ready: BitMap64, tried: BitMap64) -> None:
        for priority, line in self.lines.items():
            if not ready.isdisjoint(line.fresh):
                party.of_priority(priority, self._rotation).load(ready & line.fresh, tried)
        self._queue(party)

    def _party(self, offset: int) -> Party:
        return self._party_of.get(offset, self._keyless)

    def _queue(self, party: Party) -> None:
        """Let it stand in the heap with its turn, if it has anything ready."""
        if party.queued_turn != party.turn and party.has_ready:
            party.queued_turn = party.turn
            heappush(self._heap, (party.turn, party))

    def _left(self, party: Party) -> None:
        if party is self._keyless:
            return
        party.live_count -= 1
        if not party.live_count:
            party.queued_turn = _NEVER
            del self._parties[party.key]


def _round_robin(queues: list[Iterator[int]], count_max: int) -> list[int]:
    picked: list[int] = []
    while queues:
        rest = []
        for offsets in queues:
            if len(picked) == count_max:
                return picked
            offset = next(offsets, None)
            if offset is not None:
                picked.append(offset)
                rest.append(offsets)
        queues = rest
    return picked
