"""Ids are remembered and forgotten as if each were looked at in turn, and nobody waits while that is done to many."""

import gc
import sys
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyroaring import BitMap64

from headrace.folds.queue.arrival import Properties
from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.image import freeze, restore, snapshot
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.remembered import CHUNK_COUNT, Entry, RememberedIds
from headrace.folds.snapshot import joined

IDS_MAX = 12
ALL_IDS = [b"%d" % number for number in range(20)]
MANY = 300_000
# Lines of Python that a step may execute: a few for each id of a chunk, and none for each of all ids.
STEP_LINES_MAX = 16 * CHUNK_COUNT


class OneByOne:
    """The same, in the simplest way."""

    def __init__(self) -> None:
        self.entries: OrderedDict[bytes, tuple[int, int]] = OrderedDict()

    def find(self, id_: bytes, now_ms: int) -> int | None:
        offset, until_ms = self.entries.get(id_, (0, now_ms))
        return offset if until_ms > now_ms else None

    def add(self, id_: bytes, offset: int, until_ms: int) -> None:
        self.entries.pop(id_, None)
        self.entries[id_] = offset, until_ms
        if len(self.entries) > IDS_MAX:
            self.entries.popitem(last=False)

    def forget(self, now_ms: int) -> None:
        while self.entries and next(iter(self.entries.values()))[1] <= now_ms:
            self.entries.popitem(last=False)

    def drop(self, offsets: BitMap64, below: int) -> None:
        for id_, (offset, _) in list(self.entries.items()):
            if offset < below and offset in offsets:
                del self.entries[id_]

    def dump(self) -> list[Entry]:
        return [(id_, *place) for id_, place in self.entries.items()]


class RememberingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ids = RememberedIds(ids_max=IDS_MAX, chunk_count=3)
        self.model = OneByOne()
        self.now_ms = self.offset = 0
        self.frozen = self.ids.freeze()
        self.frozen_dump: list[Entry] = []

    @rule(id_=st.sampled_from(ALL_IDS), length_ms=st.integers(-5, 30))
    def add(self, id_: bytes, length_ms: int) -> None:
        self.offset += 1
        self.ids.add(id_, self.offset, self.now_ms + length_ms)
        self.model.add(id_, self.offset, self.now_ms + length_ms)

    @rule(ids=st.lists(st.sampled_from(ALL_IDS), max_size=4), is_purged=st.booleans())
    def add_undated_and_date(self, ids: list[bytes], is_purged: bool) -> None:
        for id_ in ids:
            self.offset += 1
            self.ids.add(id_, self.offset)
            self.model.add(id_, self.offset, self.now_ms + 10)
            assert self.ids.find(id_, self.now_ms + 1000) == self.offset
        if is_purged:
            self.drop([*range(0, self.offset, 2)], 0)
        self.ids.date(self.now_ms + 10)

    @rule(passed_ms=st.integers(0, 20))
    def forget(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.ids.forget(self.now_ms)
        self.model.forget(self.now_ms)

    @rule(kept=st.lists(st.integers(0, 40)), back=st.integers(0, 10))
    def drop(self, kept: list[int], back: int) -> None:
        live = BitMap64(range(self.offset + 1)) - BitMap64(kept)
        below = max(self.offset - back + 1, 0)
        self.ids.drop(live, below=below)
        self.model.drop(live, below)

    @rule()
    def sweep(self) -> None:
        self.ids.sweep()

    @rule()
    def freeze(self) -> None:
        self.frozen, self.frozen_dump = self.ids.freeze(), self.model.dump()

    @rule()
    def restore(self) -> None:
        again = RememberedIds(ids_max=IDS_MAX, chunk_count=3)
        for entry in self.ids.freeze()():
            again.add(*entry)
        self.ids = again

    @invariant()
    def is_the_same(self) -> None:
        assert self.ids.freeze()() == self.model.dump()
        assert len(self.ids) == len(self.model.entries)
        assert [self.ids.find(id_, self.now_ms) for id_ in ALL_IDS] == [
            self.model.find(id_, self.now_ms) for id_ in ALL_IDS
        ]

    @invariant()
    def what_was_frozen_stays(self) -> None:
        assert self.frozen() == self.frozen_dump

    def teardown(self) -> None:
        while self.ids.sweep():
            pass
        assert self.ids.held_count <= len(self.ids) + 3


test_ids_are_forgotten_as_if_each_were_looked_at = RememberingMachine.TestCase


@contextmanager
def one_step(what: str) -> Iterator[None]:
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
    assert count < STEP_LINES_MAX, what


@pytest.fixture
def fold() -> QueueFold:
    """A queue that knows many ids."""
    found = QueueFold()
    for base in range(0, MANY, 1000):
        own = {at: Properties(deduplication_id=b"%032d" % (base + at)) for at in range(1000)}
        found.arrive(base, 1000, sent_ms=base // 1000, properties=own)
        found.take_fresh_ids()  # as a queue at work does
    return found


def test_a_snapshot_of_many_ids_is_taken_down_in_one_short_step(fold: QueueFold) -> None:
    with one_step("freeze"):
        encode = freeze(fold, "ids")
    assert len(restore(joined(encode()), name="ids").deduplication) == MANY


def test_a_purge_forgets_many_ids_in_one_short_step(fold: QueueFold) -> None:
    fold.acknowledge([0], now=Instant(0, 1000))
    with one_step("purge"):
        fold.purge(MANY - 1, now=Instant(0, 1000))
    assert [id_ for id_, _, _ in fold.deduplication.freeze()()] == [b"%032d" % 0, b"%032d" % (MANY - 1)]


def test_many_ids_whose_time_is_over_are_forgotten_in_one_short_step_and_swept_in_others(fold: QueueFold) -> None:
    with one_step("forget"):
        fold.tick(Instant(0, 10_000_000))
    assert not fold.deduplication
    has_more = True
    while has_more:
        with one_step("sweep"):
            has_more = fold.sweep_ids()
    assert fold.deduplication.held_count == 0
    assert snapshot(fold, "ids")


def test_what_arrives_sweeps_what_is_forgotten(fold: QueueFold) -> None:
    fold.tick(Instant(0, 10_000_000))
    for base in range(MANY, MANY + MANY, 1000):
        own = {at: Properties(deduplication_id=b"%032d" % (base + at)) for at in range(1000)}
        fold.arrive(base, 1000, sent_ms=10_000_000, properties=own)
    assert fold.deduplication.held_count < MANY + 10_000


def test_many_ids_are_in_small_tables_that_no_collection_of_garbage_looks_through(fold: QueueFold) -> None:
    gc.collect()
    tables = fold.deduplication._tables
    assert max(map(len, tables)) < MANY / 100, "a table that grows moves all that it holds"
    chunks = [chunk.ids for chunk in fold.deduplication._chunks][:-1]
    assert len(chunks) > 10
    assert not any(map(gc.is_tracked, [*tables, *chunks]))
