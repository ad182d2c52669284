"""What a seed stands for: the limits of the node, the faults that may happen, and for how long.

Each seed enables a random subset of the faults and draws tiny limits, because a bug that needs two things at once is
found where nothing else is in the way (swarm testing).
"""

import random  # noqa: TID251 -- this is where a run's choices come from
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from headrace.app.config import HttpConfig, KafkaConfig, NodeConfig, TopicsConfig
from headrace.broker.group.config import GroupsConfig
from headrace.broker.queue.config import QueuesConfig
from headrace.broker.transaction.config import TransactionsConfig
from headrace.log.config import LogConfig
from headrace.model.address import Address

FaultKind = Literal[
    "kill",
    "power",
    "stop",
    "pause",
    "full_disk",
    "sync_error",
    "write_error",
    "slow_disk",
    "short_writes",
    "cold_cache",
    "write_back",
    "clock_jump",
    "reset",
    "cut",
    "slow_network",
    "store",
]
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)

NODE_HOST = "10.0.0.1"
_KIB = 1024

Pace = Literal["quick", "dense", "light"]


class Rhythm(NamedTuple):
    busy_s: float
    pause_ms: float
    fault_interval_s: float
    slack: int = 1  # by how much the node's own intervals are longer, so that an idle hour costs little


# Short runs for tests, a load that fills what has a bound, and hours in which timers of every length run out.
_RHYTHMS: dict[Pace, tuple[Rhythm, ...]] = {
    "quick": (Rhythm(3.0, 250.0, 0.5), Rhythm(5.0, 500.0, 1.0)),
    "dense": (Rhythm(20.0, 50.0, 2.0), Rhythm(40.0, 100.0, 8.0)),
    "light": (Rhythm(7_200.0, 120_000.0, 600.0, 30), Rhythm(14_400.0, 300_000.0, 900.0, 60)),
}
PACES: tuple[Pace, ...] = get_args(Pace)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    pace: Pace
    faults: tuple[FaultKind, ...]
    fault_interval_s: float  # between two faults, on average
    busy_s: float  # how long clients send and faults happen
    pause_ms: float  # between two calls of a client, on average
    window_bytes: int  # of a connection
    config: NodeConfig
    segment_bytes: int


def make_plan(seed: int, *, pace: Pace | None = None, faults: tuple[FaultKind, ...] | None = None) -> Plan:
    """The plan of a seed; of another pace or with other faults where those are given."""
    chance = random.Random(f"plan/{seed}")
    drawn_pace = chance.choice(PACES)
    pace = drawn_pace if pace is None else pace
    rhythm = chance.choice(_RHYTHMS[pace])
    share = chance.choice((0.0, 0.2, 0.5, 1.0))
    drawn = tuple(kind for kind in FAULT_KINDS if chance.random() < share)
    journal_bytes = chance.choice((32, 64, 256, 1024)) * _KIB
    log = LogConfig(
        journal_bytes=journal_bytes,
        journal_append_bytes_max=chance.choice((2, 4, 16)) * _KIB,
        checkpoint_bytes=chance.choice((8, 64, 1024)) * _KIB,
        maintenance_interval_ms=chance.choice((500, 2_000, 5_000)) * rhythm.slack,
        disk_check_interval_ms=min(1_000 * rhythm.slack, 10_000),
        flush_interval_ms=min(1_000 * rhythm.slack, 10_000),
        memory_settle_ms=chance.choice((1_000, 35_000)),
        disk_reserve_bytes=64 * _KIB,
        disk_ballast_bytes=chance.choice((0, 128)) * _KIB,
        open_files_max=chance.choice((16, 1024)),
        clean_gain_bytes_min=chance.choice((1, 64)) * _KIB,
        clean_merge_bytes=chance.choice((8, 1024)) * _KIB,
        clean_active_bytes=chance.choice((4, 64)) * _KIB,
    )
    config = NodeConfig(
        insecure_listen=True,
        kafka=KafkaConfig(listen=Address(NODE_HOST, 9092)),
        http=HttpConfig(listen=Address(NODE_HOST, 8080), admin_listen=Address(NODE_HOST, 8081)),
        topics=TopicsConfig(defaults={"segment.bytes": str(chance.choice((8, 64, 1024)) * _KIB)}),
        groups=GroupsConfig(
            consumer_heartbeat_interval_ms=min(1_000 * rhythm.slack, 60_000),
            consumer_session_timeout_ms=min(6_000 * rhythm.slack, 300_000),
        ),
        queues=QueuesConfig(keep_interval_ms=chance.choice((500, 5_000)) * rhythm.slack),
        transactions=TransactionsConfig(check_interval_ms=min(500 * rhythm.slack, 5_000)),
        log=log,
    )
    return Plan(
        seed=seed,
        pace=pace,
        faults=drawn if faults is None else faults,
        fault_interval_s=rhythm.fault_interval_s,
        busy_s=rhythm.busy_s,
        pause_ms=rhythm.pause_ms,
        window_bytes=chance.choice((1, 16, 256)) * _KIB,
        config=config,
        segment_bytes=int(config.topics.defaults["segment.bytes"]),
    )
