"""A node under load, killed at random instants and started again: nothing acknowledged is lost, doubled or moved.

HEADRACE_LONG=1 makes it fifty kills. HEADRACE_TEST_SEED repeats the instants of a run, as far as two processes can.
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.cluster.load import Load, Place, check_history
from tests.support.node import NodeProcess, running

IS_LONG = os.environ.get("HEADRACE_LONG") == "1"
KILLS = 50 if IS_LONG else 6
SEED = int(os.environ.get("HEADRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))

# Small files, so that a short run rolls segments, fills journals and takes checkpoints many times.
SMALL = {
    "log.journal_bytes": 1024 * 1024,
    "log.journal_append_bytes_max": 64 * 1024,
    "log.checkpoint_bytes": 1024 * 1024,
    "log.maintenance_interval_ms": 200,
}
SEGMENT_BYTES = 512 * 1024
# Below and above what goes through the journal.
SIZES = (10, 10, 100, 100, 100, 1000, 1000, 5000, 100_000)


def create_topics(node: NodeProcess, topics: int = 3, partitions: int = 3) -> list[Place]:
    admin = AdminClient({"bootstrap.servers": node.server, "log_level": 0})
    names = [f"load-{number}" for number in range(topics)]
    made = admin.create_topics(
        [NewTopic(name, partitions, 1, config={"segment.bytes": str(SEGMENT_BYTES)}) for name in names]
    )
    for future in made.values():
        future.result(10)
    return [Place(name, index) for name in names for index in range(partitions)]


@pytest.mark.timeout(900 if IS_LONG else 120)
def test_nothing_acknowledged_is_lost_doubled_or_moved_by_kills(tmp_path: Path) -> None:
    print(f"HEADRACE_TEST_SEED={SEED}")
    chance = random.Random(SEED)
    with running(tmp_path / "data", settings=SMALL) as node:
        places = create_topics(node)
        with Load(node.server, places, seed=SEED, sizes=SIZES) as load:
            for _ in range(KILLS):
                load.wait_progress(50)
                time.sleep(chance.uniform(0.0, 1.0))  # a random instant, not a synchronisation
                node.kill()
                if chance.random() < 0.3:
                    # Recovery is interrupted as well, wherever it is.
                    node.launch()
                    time.sleep(chance.uniform(0.0, 0.8))
                    node.kill()
                node.start()
                assert not load.errors(), load.errors()[:10]
            load.wait_progress(50)
            load.settle()
        total = check_history(load)
        assert total > KILLS * 50
        print(f"{KILLS} kills, {total} messages")
        # And once more after a clean stop.
        assert node.stop() == 0
        node.start()
        assert check_history(load) == total
