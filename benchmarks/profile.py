"""The profile of the produce path: nothing in it is done for each message.

A node counts the calls and the executed lines of every function of headrace, while the same number of batches comes
in, first with 10 messages in each, then with 1,000. What is done for each batch is equal in both; what is done for
each message would be a hundred times as much. Messages are tiny, so that both batches fit one read from the socket:
reading in pieces depends on bytes, not on messages. Batches go one at a time: how many share a sync depends on time.
"""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import msgspec

from benchmarks.generator import new_topic
from benchmarks.process import Server, node_command, remove
from benchmarks.report import Goal, Report
from benchmarks.settings import Settings

NAME = "profile"
FEW, MANY = 10, 1000
MESSAGE = b"x" * 8
WARMUP_BATCHES = 30
SHOWN = 25
# Timers of the node tick while batches come; a line for each twentieth message is far above them and far below one.
PER_MESSAGE_MAX = 0.05
ANSWER_DEADLINE_S = 30.0


class Cost(NamedTuple):
    """What a function did for each batch: with few messages in it, and with many."""

    function: str
    calls_few: float
    calls_many: float
    lines_few: float
    lines_many: float

    @property
    def lines_per_message(self) -> float:
        return (self.lines_many - self.lines_few) / (MANY - FEW)


def run(settings: Settings) -> Report:
    batches = int(settings.either(500, 200))
    data = settings.directory / "profile"
    node = _start(data)
    try:
        counts = [_count(node, settings.directory, messages, batches) for messages in (FEW, MANY)]
    finally:
        node.kill()
        remove(data)
    return report(compare(*counts, batches=batches), batches)


def compare(few: list[dict[str, Any]], many: list[dict[str, Any]], *, batches: int) -> list[Cost]:
    """Costs for each batch by function, the largest first."""
    counted: dict[str, list[float]] = {}
    for column, snapshot in enumerate((few, many)):
        for entry in snapshot:
            numbers = counted.setdefault(f"{entry['place']} {entry['function']}", [0.0] * 4)
            numbers[column] += entry["calls"] / batches
            numbers[2 + column] += entry["lines"] / batches
    return sorted((Cost(name, *numbers) for name, numbers in counted.items()), key=lambda cost: -cost.lines_many)


def report(costs: list[Cost], batches: int) -> Report:
    total = Cost("all of headrace", *(sum(column) for column in zip(*(cost[1:] for cost in costs), strict=True)))
    culprits = [cost.function for cost in costs if cost.lines_per_message > PER_MESSAGE_MAX]
    notes = [
        f"{batches} batches of each kind, one at a time. Calls and executed lines of headrace's own code, all threads.",
        "Nothing is done for each message: a hundred times the messages take the same calls and lines."
        if not culprits and total.lines_per_message <= PER_MESSAGE_MAX
        else f"Done for each message: {', '.join(culprits) or 'something in small pieces'}.",
    ]
    return Report(
        name=NAME,
        title=f"The produce path: work for a batch of {FEW} and of {MANY:,} messages",
        columns=["function", f"calls, {FEW}", f"calls, {MANY:,}", f"lines, {FEW}", f"lines, {MANY:,}"],
        rows=[[cost.function, *(f"{number:.2f}" for number in cost[1:])] for cost in [total, *costs[:SHOWN]]],
        figures=[cost._asdict() for cost in costs],
        goals=[
            Goal.below(
                "lines of code for each additional message: none (below 0.05)", PER_MESSAGE_MAX, total.lines_per_message
            )
        ],
        notes=notes,
    )


def _start(data: Path) -> Server:
    command = [sys.executable, "-m", "benchmarks.traced_node", *node_command(data)[3:]]
    return Server(command, data.parent / "traced.log", stdin=subprocess.PIPE)


def _count(node: Server, directory: Path, messages: int, batches: int) -> list[dict[str, Any]]:
    topic, result = f"profile-{messages}", directory / f"profile-{messages}.json"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": node.address, "linger.ms": 1000, "batch.num.messages": messages, "acks": "all"}
    )
    with new_topic(node, topic, "fsync"):
        _send(producer, topic, messages, WARMUP_BATCHES)
        _tell(node, directory, "reset")
        _send(producer, topic, messages, batches)
        _tell(node, directory, f"dump {result}")
    counts: list[dict[str, Any]] = msgspec.json.decode(result.read_bytes())
    result.unlink()
    return counts


def _send(producer: Any, topic: str, messages: int, batches: int) -> None:
    chunk = [{"value": MESSAGE}] * messages
    for _ in range(batches):
        if producer.produce_batch(topic, chunk, partition=0) != messages or producer.flush(ANSWER_DEADLINE_S):
            raise RuntimeError("the traced node did not acknowledge a batch")


def _tell(node: Server, directory: Path, command: str) -> None:
    """Give the node a word and wait until it has been obeyed."""
    log = directory / "traced.log"
    done, word = log.read_text().count("done: "), command.split()[0]
    assert node.process.stdin is not None
    node.process.stdin.write(f"{command}\n".encode())
    node.process.stdin.flush()
    deadline = time.monotonic() + ANSWER_DEADLINE_S
    while log.read_text().count("done: ") == done:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the traced node did not {word}")
        time.sleep(0.02)
