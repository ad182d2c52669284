"""Whatever becomes of commits, cuts, crashes and snapshots, a fold that is restored is what the log's entries made it.

The log is cleaned all the time, and commits are held back by any amount. A cut takes what is not committed, as a new
leader's answer makes a follower do; a fault takes the newest snapshot, as long as the older one is there.
"""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.model.ids import Epoch, Offset
from headrace.testing.disk import SimulatedDisk

from .cleaning import EAGER, Fold, ack, restored, send
from .test_publication import path_of
from .world import World, partition_id, run, successor, topic_config

actions = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("send"), st.integers(1, 3)),
        st.tuples(st.just("ack"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.integers(1, 4)),
        st.tuples(st.just("hold"), st.integers(0, 8)),
        st.tuples(
            st.sampled_from(["checkpoint", "clean", "release", "cut", "restart", "crash", "lose"]), st.integers(0, 8)
        ),
    ),
    min_size=10,
    max_size=80,
)


class Life:
    """A log with its fold, from process to process, and what its entries say."""

    def __init__(self, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.world = World(SimulatedDisk(), {partition_id(0): topic_config()}, EAGER)
        self.sent: set[int] = set()
        self.acked: dict[int, int] = {}  # message -> its entry
        self.lag = 0

    async def begin(self) -> None:
        await self.world.start()
        self.own(Fold(self.world.log()))

    def own(self, fold: Fold) -> None:
        self.fold = fold.attach()
        self.world.log().listener = self.commit
        self.commit()

    def commit(self) -> None:
        log = self.world.log()
        # Ends of batches are where a replica's answers are, and each batch here has one entry.
        log.progress.commit(Offset(max(log.durable_offset - self.lag, 0)))

    async def step(self, action: str, number: int) -> None:
        world, log = self.world, self.world.log()
        match action:
            case "send":
                for _ in range(number):
                    base = send(world, self.fold, [b"%d " % len(self.sent) + b"x" * 500])
                    self.sent.add(base)
                    await world.settle()
            case "ack":
                for offset in sorted(self.sent - self.acked.keys())[:number]:
                    self.acked[offset] = log.end_offset
                    ack(world, self.fold, [offset])
                    await world.settle()
            case "hold":
                self.lag = number
            case "release":
                self.lag = 0
                self.commit()
            case "checkpoint":
                await world.store.checkpoint(log)
            case "clean":
                if log.active.size:
                    log.roll(now_ms=world.clock.wall_ms())
                await world.store.maintain(log, floor=log.end_offset)
                while await world.store.clean(log):
                    pass
            case "cut":
                end = max(log.end_offset - number, log.progress.committed)
                if end < log.end_offset:
                    await world.store.truncate(log, Offset(end))
                    self.forget(log.end_offset)
                    world.epoch = Epoch(world.epoch + 1)
                    self.own(await restored(world))
            case "restart":
                await world.restart()
                self.own(await restored(world))
            case "crash" | "lose":
                await self.die(action)
        self.check()

    async def die(self, action: str) -> None:
        old = self.world
        old.abandon()
        kept = old.log().published.get("fold", [])
        if action == "crash":
            old.disk.crash(self.chooser)
        elif len(kept) > 1:
            old.disk.remove(path_of(old, kept[0]))  # as its fold would find it by its checksum
        self.world = successor(old, old.disk)
        await self.world.start()
        self.forget(self.world.log().end_offset)
        self.own(await restored(self.world))

    def forget(self, end: int) -> None:
        """Entries from an offset on are gone, and their acknowledgements with them."""
        self.sent = {offset for offset in self.sent if offset < end}
        self.acked = {offset: entry for offset, entry in self.acked.items() if entry < end}

    def check(self) -> None:
        progress = self.world.log().progress
        assert progress.start <= progress.committed <= progress.end
        assert progress.cleaned <= progress.older <= progress.committed
        assert self.fold.end_offset == progress.end
        assert self.fold.messages == self.sent
        assert self.fold.acked == self.acked.keys()


@settings(max_examples=200, deadline=None)
@given(actions=actions, seed=st.integers(0, 2**32))
def test_a_restored_fold_is_what_the_entries_of_its_log_made_it(actions: list[tuple[str, int]], seed: int) -> None:
    async def main() -> None:
        life = Life(seed)
        await life.begin()
        for action, number in [*actions, ("crash", 0), ("clean", 0), ("lose", 0)]:
            await life.step(action, number)
        life.world.abandon()

    run(main())
