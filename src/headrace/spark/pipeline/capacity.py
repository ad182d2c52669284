"""How many machines, nodes, disks and partitions a stated load takes, out of what was measured.

    work of a message   the part of a node's second that it takes: 1/rate for each thing that is done with it
    streams             replicas x 1/produce + (replicas - 1 + readers) x 1/consume
    queues              1/send + 1/receive + 1/acknowledge + (replicas - 1) x (1/produce + 1/consume)
                        + readers x 1/consume
    nodes               peak rate x work / (1 - headroom)
    data                messages a day x days x (bytes / compression + overhead) x replicas
    machines            the most that work, data or network ask for, at least one for each replica; and the spare ones

A follower takes a message as a producer's, and reads it from its leader as a consumer does: until replication is
measured by itself, that is how it is counted. Rates were measured with the client on the same machine, so a node on
a machine of its own does more. Every step is kept with its formula and its numbers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.spark.errors import OptionError
from headrace.spark.pipeline.figures import (
    ACKNOWLEDGE,
    ARCHIVE,
    CONSUME,
    PARTITION,
    PRODUCE,
    RECEIVE,
    RECORD_OVERHEAD,
    SEND,
    Figure,
    Figures,
)

DAY_S = 86_400
GB = 1_000_000_000
TB = 1_000 * GB
_BITS = 8
# An archive that was down for an hour catches up within one: it has to be twice as fast as the messages come.
ARCHIVE_PACE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked for. The defaults are what the project is built for."""

    messages_per_day: float = 1_000_000_000
    message_bytes: float = 1_024
    peak_per_s: float = 100_000
    retention_days: float = 7
    replicas: int = 3
    readers: int = 1  # groups that read each message by offset; for a queue, beside its workers
    compression: float = 1.0  # bytes before by bytes after

    def __post_init__(self) -> None:
        check_positive("--messages", self.messages_per_day)
        check_positive("--size", self.message_bytes)
        check_positive("--peak", self.peak_per_s)
        check_positive("--days", self.retention_days)
        if self.replicas < 1:
            raise OptionError(f"--replicas {self.replicas} is too few; 1 is no copy at all, 3 survive the loss of one")
        if self.readers < 0:
            raise OptionError(f"--readers {self.readers} is below zero")
        if not self.compression >= 1:
            raise OptionError(
                f"--compression {self.compression} is below 1; say how many bytes become one, as 4 for 4:1"
            )
        if self.peak_per_s * DAY_S < self.messages_per_day:
            average = self.messages_per_day / DAY_S
            raise OptionError(f"--peak {self.peak_per_s:,.0f} is below the average of the day, {average:,.0f} a second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What a machine has, and how much of it is used."""

    cores: int = 8
    disk_bytes: float = 8 * TB
    network_bits_per_s: float = 10 * GB
    cores_per_node: int = 2  # as measured: a node's loop, its syncs and the kernel's work for it
    headroom: float = 0.4  # left free at the peak
    disk_fill_max: float = 0.8
    spare: int = 1  # machines that may be missing at the peak

    def __post_init__(self) -> None:
        if self.cores < self.cores_per_node or self.cores_per_node < 1:
            raise OptionError(f"--cores {self.cores} is less than the {self.cores_per_node} that a node takes")
        check_positive("--disk", self.disk_bytes)
        check_positive("--network", self.network_bits_per_s)
        if not 0 <= self.headroom < 1:
            raise OptionError(f"--headroom {self.headroom} has to be a part of 1, as 0.4 for 40 percent")
        if not 0 < self.disk_fill_max <= 1:
            raise OptionError(f"--disk-fill {self.disk_fill_max} has to be a part of 1, as 0.8 for 80 percent")
        if self.spare < 0:
            raise OptionError(f"--spare {self.spare} is below zero")

    @property
    def nodes(self) -> int:
        return self.cores // self.cores_per_node


def check_positive(option: str, value: float) -> None:
    if not value > 0:
        raise OptionError(f"{option} {value:g} has to be above zero")
    if math.isinf(value):
        raise OptionError(f"{option} is beyond every number that can be counted with; give a smaller one")


class Step(NamedTuple):
    """One line of the calculation."""

    name: str
    formula: str
    numbers: str
    result: str


class Need(NamedTuple):
    """What one way of use takes."""

    use: str  # streams or queues
    machines: int
    nodes: int
    partitions: int
    disk_per_machine_bytes: float
    decided_by: str
    steps: Sequence[Step]


class Plan(NamedTuple):
    load: Load
    machine: Machine
    used: Sequence[Figure]
    common: Sequence[Step]
    needs: Sequence[Need]
    data_bytes: float
    archive_cores: int


def plan(load: Load, machine: Machine, figures: Figures, *, partition_bytes_max: float = 100 * GB) -> Plan:
    """The whole calculation."""
    average = load.messages_per_day / DAY_S
    overhead = figures[RECORD_OVERHEAD].value
    stored = load.message_bytes / load.compression + overhead
    copy = load.messages_per_day * load.retention_days * stored
    data = copy * load.replicas
    archive_cores = max(1, math.ceil(average * ARCHIVE_PACE / figures[ARCHIVE].value))
    common = [
        Step("average rate", "messages a day / 86,400", f"{load.messages_per_day:,.0f} / 86,400", f"{average:,.0f}/s"),
        Step(
            "bytes on disk for a message",
            "size / compression + overhead",
            f"{load.message_bytes:,.0f} / {load.compression:g} + {overhead:,.0f}",
            f"{stored:,.0f} B",
        ),
        Step(
            "data, one copy",
            "messages a day x days x bytes on disk",
            f"{load.messages_per_day:,.0f} x {load.retention_days:g} x {stored:,.0f}",
            f"{copy / TB:,.2f} TB",
        ),
        Step(
            "data, all copies", "one copy x replicas", f"{copy / TB:,.2f} TB x {load.replicas}", f"{data / TB:,.2f} TB"
        ),
        Step(
            "Spark cores for the archive",
            f"{ARCHIVE_PACE} x average rate / archive",
            f"{ARCHIVE_PACE} x {average:,.0f} / {figures[ARCHIVE].value:,.0f}",
            f"{archive_cores}",
        ),
    ]
    needs = [_need(use, load, machine, figures, copy, partition_bytes_max) for use in ("streams", "queues")]
    names = (PRODUCE, CONSUME, PARTITION, SEND, RECEIVE, ACKNOWLEDGE, ARCHIVE, RECORD_OVERHEAD)
    return Plan(load, machine, [figures[name] for name in names], common, needs, data, archive_cores)


def _need(use: str, load: Load, machine: Machine, figures: Figures, copy: float, partition_bytes_max: float) -> Need:
    rate = {name: figure.value for name, figure in figures.items()}
    work, formula, numbers = _work(use, load, rate)
    free = 1 - machine.headroom
    nodes_busy = load.peak_per_s * work / free
    network = load.peak_per_s * load.message_bytes / load.compression * _BITS
    out = network * (load.replicas - 1 + load.readers + (use == "queues"))
    both = max(network * load.replicas, out)
    by = {
        "work": math.ceil(math.ceil(nodes_busy) / machine.nodes),
        "data": math.ceil(copy * load.replicas / (machine.disk_bytes * machine.disk_fill_max)),
        "network": math.ceil(both / (machine.network_bits_per_s * free)),
        "replicas": load.replicas,
    }
    decided_by = max(by, key=lambda name: by[name])
    machines = by[decided_by] + machine.spare
    disk = copy * load.replicas / by[decided_by]
    partitions, partition_step = _partitions(load, machine, rate, copy, machines * machine.nodes, partition_bytes_max)
    steps = [
        Step("work of a message", formula, numbers, f"{work * 1e6:,.2f} us of a node"),
        Step(
            "nodes at the peak",
            "peak x work / (1 - headroom)",
            f"{load.peak_per_s:,.0f} x {work * 1e6:,.2f} us / {free:g}",
            f"{nodes_busy:,.2f}, so {math.ceil(nodes_busy)}",
        ),
        Step(
            "machines for work",
            "nodes / (cores / cores a node)",
            f"{math.ceil(nodes_busy)} / ({machine.cores} / {machine.cores_per_node})",
            str(by["work"]),
        ),
        Step(
            "machines for data",
            "all copies / (disk x fill)",
            f"{copy * load.replicas / TB:,.2f} TB / ({machine.disk_bytes / TB:g} TB x {machine.disk_fill_max:g})",
            str(by["data"]),
        ),
        Step(
            "machines for network",
            "the larger of in and out at the peak / (network x (1 - headroom))",
            f"{both / GB:,.2f} Gbit/s / ({machine.network_bits_per_s / GB:g} Gbit/s x {free:g})",
            str(by["network"]),
        ),
        Step(
            "machines",
            "the most of these and the replicas, and the spare ones",
            f"max({by['work']}, {by['data']}, {by['network']}, {load.replicas}) + {machine.spare}",
            str(machines),
        ),
        Step("disk used on a machine", "all copies / machines without the spare ones",
             f"{copy * load.replicas / TB:,.2f} TB / {by[decided_by]}", f"{disk / TB:,.2f} TB"),
        partition_step,
    ]  # fmt: skip
    return Need(use, machines, machines * machine.nodes, partitions, disk, decided_by, steps)


def _work(use: str, load: Load, rate: dict[str, float]) -> tuple[float, str, str]:
    """Seconds of a node for one message, with the formula in words and in numbers."""
    followers = load.replicas - 1
    if use == "streams":
        reads = followers + load.readers
        return (
            load.replicas / rate[PRODUCE] + reads / rate[CONSUME],
            "replicas / produce + (replicas - 1 + readers) / consume",
            f"{load.replicas} / {rate[PRODUCE]:,.0f} + {reads} / {rate[CONSUME]:,.0f}",
        )
    work = 1 / rate[SEND] + 1 / rate[RECEIVE] + 1 / rate[ACKNOWLEDGE]
    work += followers * (1 / rate[PRODUCE] + 1 / rate[CONSUME]) + load.readers / rate[CONSUME]
    return (
        work,
        "1 / send + 1 / receive + 1 / acknowledge + (replicas - 1) x (1 / produce + 1 / consume) + readers / consume",
        f"1 / {rate[SEND]:,.0f} + 1 / {rate[RECEIVE]:,.0f} + 1 / {rate[ACKNOWLEDGE]:,.0f} + {followers} x "
        f"(1 / {rate[PRODUCE]:,.0f} + 1 / {rate[CONSUME]:,.0f}) + {load.readers} / {rate[CONSUME]:,.0f}",
    )


def _partitions(
    load: Load, machine: Machine, rate: dict[str, float], copy: float, nodes: int, partition_bytes_max: float
) -> tuple[int, Step]:
    by_rate = math.ceil(load.peak_per_s / (rate[PARTITION] * (1 - machine.headroom)))
    by_size = math.ceil(copy / partition_bytes_max)
    count = math.ceil(max(by_rate, by_size, nodes) / nodes) * nodes
    step = Step(
        "partitions",
        "the most of peak / (partition x (1 - headroom)), one copy / partition size and nodes, as a multiple of nodes",
        f"max({by_rate}, {by_size}, {nodes})",
        str(count),
    )
    return count, step
