"""The power fails at any call, twice, while a log is written to and compacted: every table comes out as the model's."""

import asyncio
import os
import random
from collections.abc import Collection
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.folds.transaction_index import Aborted
from headrace.log.compacted import NAME as COMPACTED_NAME
from headrace.model.batch import BatchHeader, read_header
from headrace.model.ids import Offset
from headrace.model.topic import COMPACT, COMPACT_AND_DELETE, UNLIMITED
from headrace.testing.disk import SimulatedDisk
from headrace.wire.kafka.records import Record, decode_batch

from .cleaning import batches_of
from .compacting import ABORT, COMMIT, Pair, attach, close_segment, compact_config, mark, put, started, table
from .world import SMALL, World, partition_id, run, successor

RETENTION_MS = 10_000
CONFIG = compact_config(delete_retention_ms=RETENTION_MS)
PRODUCERS = (1, 2)

put_step = st.tuples(st.just("put"), st.integers(1, 4), st.sampled_from([5, 100, 700, 2500]))
step = st.one_of(
    put_step,
    put_step,
    st.tuples(st.just("transact"), st.integers(1, 3), st.sampled_from([5, 300])),
    st.tuples(st.sampled_from(["commit", "abort"]), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("jump"), st.sampled_from([500, 4_000, 11_000, 30_000]), st.just(0)),
    st.tuples(
        st.sampled_from(["compact", "compact", "compact", "maintain", "checkpoint", "write_back", "restart", "cut"]),
        st.integers(0, 30),
        st.just(0),
    ),
)
steps = st.lists(step, min_size=5, max_size=50)


class Event(NamedTuple):
    """One batch that was written: messages, or a producer's marker."""

    offset: int
    pairs: tuple[Pair, ...]
    producer_id: int = -1
    marker: int | None = None


class Model:
    """Everything that was written, and what follows from it for transactions. It is the log's index of them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.end = 0

    def cut(self, end: int) -> None:
        self.events = [event for event in self.events if event.offset < end]
        self.end = end

    def opened(self) -> dict[int, int]:
        first: dict[int, int] = {}
        for event in self.events:
            if event.marker is not None:
                first.pop(event.producer_id, None)
            elif event.producer_id >= 0:
                first.setdefault(event.producer_id, event.offset)
        return first

    @property
    def last_stable_offset(self) -> Offset:
        return Offset(min(self.opened().values(), default=self.end))

    def aborted(self, start: Offset, end: Offset) -> list[Aborted]:
        found: list[Aborted] = []
        first: dict[int, int] = {}
        for event in self.events:
            if event.marker is not None:
                begun = first.pop(event.producer_id, None)
                if event.marker == ABORT and begun is not None:
                    found.append(Aborted(event.producer_id, Offset(begun), Offset(event.offset)))
            elif event.producer_id >= 0:
                first.setdefault(event.producer_id, event.offset)
        return [one for one in found if one.last_offset >= start and one.first_offset < end]

    def forget_aborted(self, marker_offsets: Collection[int]) -> None:
        """Nothing is to be shown of them in any case."""

    def is_shown(self, producer_id: int, offset: int) -> bool:
        """Whether a reader of committed messages is shown a message."""
        if offset >= self.last_stable_offset:
            return False
        return not any(
            one.producer_id == producer_id and one.first_offset <= offset <= one.last_offset
            for one in self.aborted(Offset(0), Offset(2**62))
        )

    def messages(self) -> dict[int, tuple[int, Pair]]:
        return {
            event.offset + at: (event.producer_id, pair) for event in self.events for at, pair in enumerate(event.pairs)
        }


class Run:
    def __init__(self, seed: int, crash_at_call: int, map_count: int, policy: str = COMPACT) -> None:
        self.chooser = random.Random(seed)
        config = msgspec.structs.replace(SMALL, compact_map_bytes=24 * map_count)
        topic = msgspec.structs.replace(CONFIG, cleanup_policy=policy, retention_ms=UNLIMITED)
        self.world = World(SimulatedDisk(), {partition_id(0): topic}, config)
        self.model = Model()
        self.calls_left = crash_at_call
        self.image: tuple[SimulatedDisk, int] | None = None
        self.number = 0
        self.seen_end = 0
        # Where the log ended at which time: who was there then has had the time to read on.
        self.ends: list[tuple[int, int]] = []

    async def start(self) -> None:
        await self.world.start()
        self.attach()

    def attach(self) -> None:
        attach(self.world.log())
        self.world.log().transactions = self.model

    def promised(self) -> int:
        return self.world.promised_end[partition_id(0)]

    def before_call(self, operation: str, path: str) -> None:
        self.calls_left -= 1
        if self.calls_left == 0:
            self.world.disk.on_call = None
            self.image = (self.world.disk.copy(), self.promised())

    def pairs(self, count: int, size: int) -> list[Pair]:
        self.number += 1
        return [
            (
                b"k%d" % self.chooser.randrange(8),
                None if self.chooser.random() < 0.2 else b"%d-%d." % (self.number, at) + b"x" * size,
            )
            for at in range(count)
        ]

    async def step(self, kind: str, count: int, size: int) -> None:
        world, log = self.world, self.world.log()
        match kind:
            case "put" | "transact":
                producer_id = self.chooser.choice(PRODUCERS) if kind == "transact" else -1
                pairs = self.pairs(count, size)
                base = put(world, pairs, producer_id=producer_id, codec=self.chooser.choice([0, 0, 1, 4]))
                self.model.events.append(Event(base, tuple(pairs), producer_id))
            case "commit" | "abort":
                producer_id = PRODUCERS[count]
                if producer_id in self.model.opened():
                    await world.settle()
                    marker = COMMIT if kind == "commit" else ABORT
                    self.model.events.append(Event(mark(world, producer_id, marker), (), producer_id, marker))
            case "jump":
                world.clock.jump_wall(count)
            case "compact":
                await close_segment(world)
                self.seen_end = log.end_offset
                await world.store.clean(log)
            case "maintain":
                await world.store.maintain(log, floor=log.durable_offset)
            case "checkpoint":
                await world.store.checkpoint(log)
            case "write_back":
                world.disk.write_back(self.chooser)
            case "cut":
                await self.cut(count)
            case "restart":
                await world.settle()
                await world.store.stop()
                await self.start()
        await world.settle()
        self.model.end = self.world.log().end_offset
        self.ends.append((self.world.clock.wall_ms(), self.model.end))

    async def cut(self, count: int) -> None:
        """Cut off what no pass has looked at, as a new leader may have it. What a pass saw was committed for good."""
        world, log = self.world, self.world.log()
        await world.settle()
        lowest = max(self.seen_end, log.end_offset - count)
        if lowest < log.end_offset and self.image is None and world.disk.on_call is None:
            await world.store.truncate(log, Offset(lowest))
            self.forget(log.end_offset)
            world.promised_end[partition_id(0)] = log.end_offset

    def forget(self, end: int) -> None:
        self.model.cut(end)
        self.ends = [(time_ms, min(offset, end)) for time_ms, offset in self.ends]

    async def served(self) -> list[tuple[BatchHeader, list[Record]]]:
        world, log = self.world, self.world.log()
        found = []
        offset = log.start_offset
        while offset < log.end_offset:
            part = await world.store.read(log.read(offset, bytes_max=900, upto=log.end_offset))
            assert part.next_offset > offset
            found += [(read_header(batch), decode_batch(batch)) for batch in batches_of(part.data)]
            offset = part.next_offset
        return found

    async def check(self, promised: int) -> object:
        world, log, model = self.world, self.world.log(), self.model
        assert world.store.refused == {}
        assert log.end_offset >= promised
        assert log.start_offset == 0, "nothing but retention moves the start, and this log has none"
        model = Model()
        model.events = [event for event in self.model.events if event.offset < log.end_offset]
        model.end = log.end_offset
        batches = await self.served()
        sent = model.messages()
        found: dict[int, tuple[int, Pair]] = {}
        for header, records in batches:
            if not header.is_control:
                found |= {record.offset: (header.producer_id, (record.key, record.value)) for record in records}
        for offset, message in found.items():
            assert sent.get(offset) == message, f"{offset} serves what was never sent there"
        shown = {o: pair for o, (producer_id, pair) in sent.items() if model.is_shown(producer_id, o)}
        left = {o: pair for o, (producer_id, pair) in found.items() if model.is_shown(producer_id, o)}
        now_ms = world.clock.wall_ms()
        for place in {0, *(end for time_ms, end in self.ends if time_ms > now_ms - RETENTION_MS)}:
            # Who had read everything up to a place, and reads on from there, has what one has who never lost a message.
            read = [pair for offset, pair in shown.items() if offset < place] if place else []
            assert table([*read, *(pair for offset, pair in left.items() if offset >= place)]) == table(shown.values())
        self.check_markers(model, batches)
        return log.start_offset, found

    def check_markers(self, model: Model, batches: list[tuple[BatchHeader, list[Record]]]) -> None:
        """A transaction of which anything is there ends there too."""
        there = {header.base_offset for header, _ in batches if header.is_control}
        for header, _ in batches:
            if header.producer_id >= 0 and not header.is_control and header.base_offset < model.last_stable_offset:
                ends = [e.offset for e in model.events if e.marker is not None and e.producer_id == header.producer_id]
                assert min(end for end in ends if end > header.base_offset) in there

    async def crash(self, disk: SimulatedDisk, promised: int) -> None:
        """Crash, recover twice, and go on with the second process."""
        if self.chooser.random() < 0.7:
            disk.crash(self.chooser)
        self.world.promised_end[partition_id(0)] = promised
        contents = []
        wall_ms = self.world.clock.wall_ms()
        for _ in range(2):
            self.world = successor(self.world, disk)
            self.world.clock.jump_wall(wall_ms - self.world.clock.wall_ms())
            await self.world.start()
            contents.append(await self.check(promised))
            end = self.world.log().end_offset
            self.world.abandon()
            disk.crash(self.chooser)
        assert contents[0] == contents[1], "recovery twice is not once"
        self.world = successor(self.world, disk)
        self.world.clock.jump_wall(wall_ms - self.world.clock.wall_ms())
        self.forget(end)
        await self.start()

    async def finish(self) -> None:
        """With time, nothing is left but the last message of each key."""
        for producer_id in list(self.model.opened()):
            self.model.events.append(Event(mark(self.world, producer_id, COMMIT), (), producer_id, COMMIT))
        for _ in range(3):
            await close_segment(self.world)
            self.model.end = self.world.log().end_offset
            while await self.world.store.clean(self.world.log()):
                pass
            await self.world.store.maintain(self.world.log(), floor=self.world.log().durable_offset)
            self.world.clock.jump_wall(RETENTION_MS * 2)
        await self.check(self.promised())
        expected = table(pair for o, (p, pair) in self.model.messages().items() if self.model.is_shown(p, o))
        found = [
            (record.key, record.value) for h, records in await self.served() if not h.is_control for record in records
        ]
        assert sorted(found) == sorted(expected.items())


@settings(max_examples=10_000 if os.environ.get("HEADRACE_LONG") else 400, deadline=None)
@given(
    steps=steps,
    seed=st.integers(0, 2**32),
    crash_at_call=st.integers(1, 900),
    map_count=st.sampled_from([16, 23, 1000]),
    policy=st.sampled_from([COMPACT, COMPACT_AND_DELETE]),
)
def test_every_reader_has_the_last_value_of_each_key_whenever_the_power_fails(
    steps: list[tuple[str, int, int]], seed: int, crash_at_call: int, map_count: int, policy: str
) -> None:
    async def main() -> None:
        run = Run(seed, crash_at_call, map_count, policy)
        await run.start()
        run.world.disk.on_call = run.before_call
        for one in steps:
            await run.step(*one)
        run.world.disk.on_call = None
        await run.check(run.promised())
        image = run.image or (run.world.disk.copy(), run.promised())
        run.world.abandon()
        await run.crash(*image)
        run.image = None
        for one in steps[:20]:
            await run.step(*one)
        await run.check(run.promised())
        await run.finish()
        run.world.abandon()

    asyncio.run(main())


async def prepared() -> World:
    world = await started(CONFIG)
    for number in range(60):
        put(world, [(b"k%d" % (number % 7), None if number % 5 == 0 else b"%d." % number + b"x" * 200)])
        await world.settle()
    await close_segment(world)
    return world


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_each_call_of_one_pass_leaves_the_same_table(seed: int) -> None:
    async def main() -> None:
        world = await prepared()
        images: list[SimulatedDisk] = []
        names: list[str] = []

        def watch(operation: str, path: str) -> None:
            images.append(world.disk.copy())
            names.append(f"{operation} {path}")

        run_ = Run(seed, 0, 1000)
        run_.world = world
        expected = table([pair for _, pair in sorted((await messages(run_)).items())])
        world.disk.on_call = watch
        assert await world.store.clean(world.log())
        world.disk.on_call = None
        world.abandon()
        assert any("rename" in name and COMPACTED_NAME in name for name in names)
        states = set()
        for number, image in enumerate([*images, world.disk]):
            image.crash(random.Random(seed * 1000 + number))
            heir = successor(world, image)
            await heir.start()
            assert heir.store.refused == {}
            attach(heir.log())
            run_.world = heir
            found = await messages(run_)
            assert table([pair for _, pair in sorted(found.items())]) == expected
            while await heir.store.clean(heir.log()):
                pass
            again = await messages(run_)
            assert table([pair for _, pair in sorted(again.items())]) == expected
            assert len(again) == 7
            states.add(len(found))
            heir.abandon()
        assert {60, 7} <= states
        assert len(states) > 2, "a pass replaces group after group"

    run(main())


async def messages(run_: Run) -> dict[int, Pair]:
    return {record.offset: (record.key, record.value) for _, records in await run_.served() for record in records}


@pytest.mark.parametrize("operation", ["open", "pwritev", "fdatasync", "truncate", "rename", "sync_directory", "pread"])
def test_a_disk_that_fails_during_a_pass_loses_nothing(operation: str) -> None:
    async def main() -> None:
        failed = 0
        for nth in range(1, 30):
            world = await prepared()
            run_ = Run(nth, 0, 1000)
            run_.world = world
            expected = table([pair for _, pair in sorted((await messages(run_)).items())])
            log = world.log()
            world.disk.fail(operation, nth=nth)  # type: ignore[arg-type]
            try:
                await world.store.clean(log)
            except OSError:
                failed += 1
            world.disk.heal()
            if log.broken is None:
                assert table([pair for _, pair in sorted((await messages(run_)).items())]) == expected
                while await world.store.clean(log):
                    pass
            world.abandon()
            world.disk.crash(random.Random(nth))
            heir = successor(world, world.disk)
            await heir.start()
            assert heir.store.refused == {}
            run_.world = heir
            assert table([pair for _, pair in sorted((await messages(run_)).items())]) == expected
            heir.abandon()
        assert failed

    run(main())
