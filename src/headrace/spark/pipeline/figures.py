"""Measured figures, each with where it comes from: given by a person, measured now, from a benchmark, or shipped.

The plan of a capacity uses figures by name and never a number of its own, so that whoever reads its answer can go and
check every one of them.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import msgspec

from headrace.spark.errors import OptionError

# What a node does in a second, for messages of 1 KB that are synced to disk before they are answered.
PRODUCE = "produce"  # taken from Kafka producers; also what a follower does with each message
CONSUME = "consume"  # given to one that reads by offset: a consumer, or a follower
SEND = "send"  # taken over HTTP
RECEIVE = "receive"
ACKNOWLEDGE = "acknowledge"
PARTITION = "partition"  # through one partition
ARCHIVE = "archive"  # from a topic into the lake, by one core of Spark
RECORD_OVERHEAD = "record_overhead"  # bytes on disk beyond the message's own

_RATES = (PRODUCE, CONSUME, SEND, RECEIVE, ACKNOWLEDGE, PARTITION, ARCHIVE)
UNITS = {**dict.fromkeys(_RATES, "messages/s"), RECORD_OVERHEAD: "bytes"}
BATCHES = (1, 10, 100)

_MESSAGE_BYTES = 1024
_ARCHIVING = "stream_to_delta"
_WORKS = {"produce, fsync": PRODUCE, "consume": CONSUME}


class Figure(NamedTuple):
    name: str
    value: float
    source: str

    @property
    def unit(self) -> str:
        return UNITS[self.name]


Figures = Mapping[str, Figure]

_MACHINE = "on a 2-core machine (AMD EPYC) that node and client share"
_STREAMS = f"shipped: benchmark throughput, a full run {_MACHINE}"
_QUEUES = f"shipped: benchmark queues, a full run {_MACHINE}"
_LAKE = f"shipped: benchmark spark, a full run {_MACHINE} too: streaming into Delta, halved"
_FORMAT = "shipped: batches of some hundred messages on disk"
_QUEUE_RATES: dict[int, tuple[float, float, float]] = {  # send, receive, acknowledge, by messages a request
    1: (30_000, 12_900, 12_400),
    10: (64_800, 47_600, 51_200),
    100: (124_900, 98_400, 91_400),
}


def shipped(batch: int) -> dict[str, Figure]:
    """What the project's own machine did; for who has measured nothing."""
    send, receive, acknowledge = _QUEUE_RATES[batch]
    listed = (
        Figure(PRODUCE, 493_000, _STREAMS),
        Figure(CONSUME, 995_000, _STREAMS),
        Figure(PARTITION, 493_000, _STREAMS),
        Figure(SEND, send, _QUEUES),
        Figure(RECEIVE, receive, _QUEUES),
        Figure(ACKNOWLEDGE, acknowledge, _QUEUES),
        Figure(ARCHIVE, 74_200, _LAKE),
        Figure(RECORD_OVERHEAD, 12, _FORMAT),
    )
    return {figure.name: figure for figure in listed}


class _Report(msgspec.Struct):
    name: str
    figures: Any = None


class _Results(msgspec.Struct):
    began: str
    quick: bool = False
    machine: dict[str, str] = {}
    reports: list[_Report] = []


def benchmarked(directory: Path, batch: int) -> dict[str, Figure]:
    """The newest of each in a directory of `make bench`'s results. Quick runs are a look and not a measurement."""
    if not directory.is_dir():
        raise OptionError(f"--bench {directory} is no directory; give the one that `make bench` writes its results to")
    found: dict[str, Figure] = {}
    for path in sorted(directory.glob("*.json")):
        try:
            results = msgspec.json.decode(path.read_bytes(), type=_Results)
        except msgspec.DecodeError:
            continue
        if not results.quick:
            cores = int(results.machine.get("cores", "1"))
            for report in results.reports:
                source = f"benchmark {report.name}, {path.name}"
                found |= {one.name: one for one in _of_report(report, batch, source)}
                found |= {one.name: one for one in _of_spark(report, cores, source)}
    if not found:
        raise OptionError(f"--bench {directory} has no results of a full run; `make bench` writes some, --quick none")
    return found


def _of_spark(report: _Report, cores: int, source: str) -> Iterable[Figure]:
    """Streaming into Delta is what an archive does. Spark had all cores of the machine."""
    figures = report.figures if report.name == "spark" and isinstance(report.figures, dict) else {}
    seconds = figures.get("seconds", {}).get(_ARCHIVING)
    if seconds:
        yield Figure(ARCHIVE, figures["rows"] / median(seconds) / cores, source)


def _of_report(report: _Report, batch: int, source: str) -> Iterable[Figure]:
    for line in _lines(report.figures):
        rate = line.get("messages_per_s")
        if not isinstance(rate, int | float) or rate <= 0:
            continue
        if report.name == "throughput" and line.get("size_bytes") == _MESSAGE_BYTES and line.get("work") in _WORKS:
            name = _WORKS[line["work"]]
            yield Figure(name, float(rate), source)
            if name == PRODUCE:  # the benchmark's topic has one partition
                yield Figure(PARTITION, float(rate), source)
        elif report.name == "queues" and (line.get("door"), line.get("batch")) == ("REST", batch):
            work = line.get("work")
            if work in (SEND, RECEIVE, ACKNOWLEDGE):
                yield Figure(work, float(rate), source)


def _lines(figures: Any) -> list[dict[str, Any]]:
    lines = figures.get("lines", []) if isinstance(figures, dict) else figures
    return [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []


def chosen(*layers: Figures) -> dict[str, Figure]:
    """Of several sources, the first that has a figure."""
    merged: dict[str, Figure] = {}
    for layer in reversed(layers):
        merged |= layer
    return merged
