"""`python -m benchmarks.beside CHECKOUT`: this tree beside another checkout of headrace, in turns of one run.

Each tree has a node of its own on the same disk, and both get the same bytes from the same loader. A turn takes both,
in an order that changes from turn to turn, and gives a ratio of this tree to the other one: of messages a second, and
of the node's CPU time for a message. The medians of the turns are printed, with the lowest and the highest. The other
checkout needs its own virtual environment (`make run` makes one).
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import generator
from benchmarks.door import Door, MsgpackDoor, RestDoor, SqsDoor, create_queue
from benchmarks.generator import new_topic
from benchmarks.http_round import Load, Part, measure_round
from benchmarks.process import Server, node_command, remove
from benchmarks.report import Goal, Report, amount, console, print_report
from benchmarks.settings import Settings

GOAL_RATIO = 0.97
BODY = "x" * 1024
TURNS = 9
TURNS_QUICK = 2
STREAM_MESSAGES = 400_000
STREAM_MESSAGES_QUICK = 60_000


class Found(NamedTuple):
    """One work on one node."""

    messages_per_s: float
    node_cpu_us: float  # for each message


Measure = Callable[[Server, str, Settings], dict[str, Found]]  # a name that no queue or topic of the node has yet


@contextmanager
def running_other(python: Path, data: Path) -> Iterator[Server]:
    """A node of the checkout that an interpreter belongs to, with a data directory that is gone afterwards."""
    command = [str(python), *node_command(data)[1:]]
    node = Server(command, data.parent / f"{data.name}.log")
    try:
        yield node
    finally:
        node.kill()
        remove(data)


def through(name: str, count: int, make: Callable[[Server, str], Door], *, is_ordered: bool = False) -> Measure:
    """Send to a queue of its own, receive and acknowledge, so many messages a request."""

    def measure(node: Server, fresh: str, settings: Settings) -> dict[str, Found]:
        create_queue(node.http, fresh, ordered=is_ordered)
        how = Load(settings.either(1.5, 0.4), settings.either(0.3, 0.1))
        taken = measure_round(node, make(node, fresh), BODY, count, how)
        works = ("send", "receive", "acknowledge")
        return {f"{name}, {work} {count}": _found(part) for work, part in zip(works, taken, strict=True)}

    return measure


def _found(part: Part) -> Found:
    if not part.found.messages_per_s or part.found.failed:
        raise RuntimeError(f"{part.found.failed} requests failed, {part.found.messages_per_s:.0f} messages a second")
    return Found(part.found.messages_per_s, part.server_cpu_share / part.found.messages_per_s * 1e6)


def stream(durability: str) -> Measure:
    """Produce to a topic with librdkafka and read it again."""

    def measure(node: Server, fresh: str, settings: Settings) -> dict[str, Found]:
        count = int(settings.either(STREAM_MESSAGES, STREAM_MESSAGES_QUICK))
        found = {}
        with new_topic(node, fresh, durability):
            for work, load in (("produce", generator.produce), ("consume", generator.consume)):
                before_s = node.cpu_s()
                options = ("--messages", str(count), *(("--size", "1024") if work == "produce" else ()))
                rate = load(node.address, fresh, *options).messages_per_s
                found[f"Kafka, {durability}, {work}"] = Found(rate, (node.cpu_s() - before_s) / count * 1e6)
        return found

    return measure


def _rest(node: Server, queue: str) -> Door:
    return RestDoor(node.http, queue)


def _msgpack(node: Server, queue: str) -> Door:
    return MsgpackDoor(node.http, queue)


def _sqs(node: Server, queue: str) -> Door:
    return SqsDoor(node.http, f"http://{node.http}/000000000000/{queue}")


MEASURES: tuple[Measure, ...] = (
    stream("memory"),
    stream("fsync"),
    through("REST", 1, _rest),
    through("SQS", 1, _sqs),
    through("SQS", 10, _sqs),
    through("REST, ordered", 10, _rest, is_ordered=True),
    through("msgpack", 100, _msgpack),
)


def measure_all(this: Server, other: Server, settings: Settings) -> dict[str, list[tuple[Found, Found]]]:
    turns: dict[str, list[tuple[Found, Found]]] = {}
    for measure in MEASURES:
        for number in range(int(settings.either(TURNS, TURNS_QUICK))):
            fresh = f"beside-{MEASURES.index(measure)}-{number}"
            nodes = (this, other) if number % 2 else (other, this)
            found = {node: measure(node, fresh, settings) for node in nodes}
            for name, here in found[this].items():
                turns.setdefault(name, []).append((here, found[other][name]))
    return turns


def report(turns: dict[str, list[tuple[Found, Found]]]) -> Report:
    rows, goals = [], []
    for name, pairs in turns.items():
        ratios = sorted(here.messages_per_s / there.messages_per_s for here, there in pairs)
        cpu_ratio = median(here.node_cpu_us / there.node_cpu_us for here, there in pairs)
        rows.append(
            [
                name,
                amount(median(there.messages_per_s for _, there in pairs)),
                amount(median(here.messages_per_s for here, _ in pairs)),
                f"{median(ratios):.3f}",
                f"{ratios[0]:.2f} to {ratios[-1]:.2f}",
                amount(median(there.node_cpu_us for _, there in pairs)),
                amount(median(here.node_cpu_us for here, _ in pairs)),
                f"{cpu_ratio:.3f}",
            ]
        )
        goals.append(Goal.at_least(f"{name}: at least {GOAL_RATIO} of the other tree", GOAL_RATIO, median(ratios)))
    return Report(
        name="beside",
        title="This tree beside the other one",
        columns=["work", "other/s", "this/s", "ratio", "of turns", "other CPU us", "this CPU us", "ratio of CPU"],
        rows=rows,
        figures=turns,
        goals=goals,
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.beside", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the directory of the other tree")
    parser.add_argument("--quick", action="store_true", help="less of everything: a look, not a measurement")
    parser.add_argument("--results", type=Path, default=Path("bench-results"), help="where the nodes keep their data")
    given = parser.parse_args(arguments)
    python = given.checkout / ".venv" / "bin" / "python"
    if not python.exists():
        parser.error(f"{python} is missing; run `make run` once in {given.checkout}, which makes it")
    given.results.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="data-", dir=given.results))
    try:
        with ExitStack() as stack:
            this = stack.enter_context(running_other(Path(sys.executable), directory / "this"))
            other = stack.enter_context(running_other(python.absolute(), directory / "other"))
            settings = Settings(is_quick=given.quick, directory=directory)
            print_report(console(), report(measure_all(this, other, settings)))
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
