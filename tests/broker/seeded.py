"""One seeded day of a node with everything on it, for `test_determinism.py`: prints what is on its disk afterwards.

What it does is decided by the seed alone. So whatever differs between two runs was decided by the order of a set or by
an address, and would make a failure that a seed has found impossible to find again.
"""

import asyncio
import hashlib
import random
import sys

import msgspec
from tests.broker.node import LOG_CONFIG, batch, fetch
from tests.broker.transaction.world import World, messages

from headrace.broker.group.port import Caller, OffsetCommit
from headrace.folds.group.consumer_request import ConsumerHeartbeat
from headrace.model.queue import QueueConfig
from headrace.testing.clock import settle

# A small journal, so that its files are switched and segments synced behind them all the time.
CONFIG = msgspec.structs.replace(
    LOG_CONFIG,
    journal_bytes=8 * 1024,
    checkpoint_bytes=16 * 1024,
    clean_gain_bytes_min=1,
    clean_active_bytes=4 * 1024,
    maintenance_interval_ms=1000,
)
TOPICS = 12
QUEUES = 4
STEPS = 60


async def lived(seed: int) -> World:
    chooser = random.Random(seed)
    world = await World(log_config=CONFIG, seed=seed).start()
    for index in range(TOPICS):
        await world.make(f"t{index}", segment_bytes="4096", retention_bytes="8192")
    for index in range(QUEUES):
        await world.queues.create(f"q{index}", QueueConfig())
    producer = await world.begin()
    for member in ("m1", "m2", "m3"):
        request = ConsumerHeartbeat(
            member, 0, topic_names=tuple(f"t{i}" for i in range(TOPICS)), rebalance_timeout_ms=10_000, owned=frozenset()
        )
        await world.groups.consumers.heartbeat("c", request)
    readers = []
    for step in range(STEPS):
        for index in chooser.sample(range(TOPICS), TOPICS):
            partition = world.broker.partition(f"t{index}", 0)
            readers.append(asyncio.ensure_future(read_on(world, f"t{index}")))
            partition.append(batch(b"%d" % step + b"x" * chooser.choice([10, 300, 900])))
        for index in range(QUEUES):
            world.queues.send(f"q{index}", messages(b"%d" % step + b"y" * chooser.choice([10, 500])))
        await settle()
        for index in chooser.sample(range(QUEUES), 2):
            received = await world.receive(f"q{index}")
            await world.queues.acknowledge(f"q{index}", [message.receipt for message in received])
        if step % 10 == 0:
            await world.send(producer, b"tx", sequence=step // 10, topic="t0")
            await world.coordinator.end(producer, is_commit=step % 20 == 0, is_bumped=False)
            await world.groups.commit(Caller(group_id=f"g{step}"), [OffsetCommit(f"t{i}", 0, step) for i in range(3)])
        await world.clock.elapse(chooser.choice([0, 10, 400, 2000]))
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    return world


async def read_on(world: World, topic: str) -> None:
    end = world.broker.partition(topic, 0).high_watermark
    await world.fetched(fetch(end, topic=topic, wait_ms=500))


async def main(seed: int) -> None:
    world = await lived(seed)
    await world.coordinator.stop()
    await world.queues.stop()
    await world.logs.stop()
    world.abandon()
    for path, data in sorted(world.disk.files().items()):
        print(hashlib.sha256(data).hexdigest(), len(data), path)
    print(sorted(world.disk.calls.items()))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
