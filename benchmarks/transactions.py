"""(l): what transactions cost: messages a second at several sizes of transaction, beside an idempotent producer.

A transaction costs what its beginning and its end cost, whatever is in it, so the ratio rises with its size. Both kinds
of producer take turns, and a ratio is taken within a turn, as for the throughput.
"""

from statistics import median

import msgspec

from benchmarks.generator import new_topic
from benchmarks.process import Server, running_node
from benchmarks.report import Report, amount
from benchmarks.settings import Settings
from benchmarks.transaction_load import MeasuredTransactions, measure

NAME = "transactions"
SIZE_BYTES = 1024
EACH = (1, 100, 10_000)
DURABILITY = "fsync"


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One size of transaction: medians over the turns."""

    each: int
    messages_per_s: float
    transactions_per_s: float
    idempotent_messages_per_s: float
    ratio: float
    ratios: list[float]


def run(settings: Settings) -> Report:
    turns = range(int(settings.either(5, 2)))
    seconds = settings.either(3.0, 0.8)
    taken: dict[int, list[tuple[MeasuredTransactions, MeasuredTransactions]]] = {each: [] for each in EACH}
    with running_node(settings.directory / "transactions") as node:
        for _ in turns:
            for each, found in taken.items():
                found.append(_turn(node, each, seconds))
    return report([_line(each, found) for each, found in taken.items()])


def _turn(node: Server, each: int, seconds: float) -> tuple[MeasuredTransactions, MeasuredTransactions]:
    with new_topic(node, "transactions", DURABILITY):
        ceiling = measure(node.address, "transactions", each=0, size_bytes=SIZE_BYTES, seconds=seconds)
        return measure(node.address, "transactions", each=each, size_bytes=SIZE_BYTES, seconds=seconds), ceiling


def _line(each: int, turns: list[tuple[MeasuredTransactions, MeasuredTransactions]]) -> Line:
    ratios = [found.messages_per_s / ceiling.messages_per_s for found, ceiling in turns]
    return Line(
        each=each,
        messages_per_s=median(found.messages_per_s for found, _ in turns),
        transactions_per_s=median(found.transactions / found.seconds for found, _ in turns),
        idempotent_messages_per_s=median(ceiling.messages_per_s for _, ceiling in turns),
        ratio=median(ratios),
        ratios=ratios,
    )


def report(lines: list[Line]) -> Report:
    return Report(
        name=NAME,
        title="(l) One transactional producer, 1 KB, fsync, beside the same producer without transactions",
        columns=[
            "messages a transaction",
            "messages/s",
            "transactions/s",
            "idempotent messages/s",
            "ratio",
            "of turns",
        ],
        rows=[
            [
                f"{line.each:,}",
                amount(line.messages_per_s),
                amount(line.transactions_per_s),
                amount(line.idempotent_messages_per_s),
                f"{line.ratio:.3f}",
                f"{min(line.ratios):.3f} to {max(line.ratios):.3f}",
            ]
            for line in lines
        ],
        figures=msgspec.to_builtins(lines),
        notes=[
            "confluent-kafka, one transaction after another, one partition; every commit is answered when it is "
            "durable and its marker is written."
        ],
    )
