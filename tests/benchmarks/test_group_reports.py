"""Reports about groups and transactions say what was measured; their loads run against a real node."""

from pathlib import Path

from benchmarks import groups, transactions
from benchmarks.group_storm import MeasuredRebalances
from benchmarks.group_storm import measure as measure_rebalances
from benchmarks.groups import Line, Rebalance
from benchmarks.process import Server, running_node
from benchmarks.transaction_load import measure

from headrace.cli.load import Target, create_topics


def test_a_group_is_shown_beside_a_consumer_without_one() -> None:
    line = Line(members=2, messages_per_s=300_000.0, ratio=1.5, ratios=[1.25, 1.5, 1.75])
    agreed = MeasuredRebalances(begin_s=3.25, leave_s=0.5, join_s=1.0)
    report = groups.report(
        [line],
        200_000.0,
        [
            Rebalance(protocol="classic", members=100, measured=agreed),
            Rebalance(protocol="consumer", members=100, measured=None, failure="the members failed"),
        ],
    )
    assert report.rows == [
        ["one consumer, assigned", "200,000", "1.00", ""],
        ["group of 2", "300,000", "1.50", "1.25 to 1.75"],
    ]
    assert "they agree 3.2 s after all began, 0.5 s after one left, 1.0 s after one came" in report.notes[0]
    assert "not measured; the members failed" in report.notes[1]


def test_transactions_are_shown_beside_an_idempotent_producer() -> None:
    line = transactions.Line(
        each=10_000,
        messages_per_s=90_000.0,
        transactions_per_s=9.0,
        idempotent_messages_per_s=100_000.0,
        ratio=0.9,
        ratios=[0.85, 0.9],
    )
    assert transactions.report([line]).rows == [["10,000", "90,000", "9.00", "100,000", "0.900", "0.850 to 0.900"]]


def make_topic(node: Server, name: str, partitions: int) -> None:
    create_topics(Target(server=node.address, topic=name), partitions=partitions, settings={})


def test_the_loads_of_groups_and_transactions_end_by_themselves(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        make_topic(node, "written", 1)
        for each in (0, 10):
            found = measure(node.address, "written", each=each, size_bytes=100, seconds=0.2)
            assert found.messages == found.transactions * each if each else found.messages > 0
            assert found.messages_per_s > 0
        make_topic(node, "shared-out", 3)
        rebalances = measure_rebalances(node.address, "shared-out", members=3, protocol="classic")
        assert rebalances.begin_s > 0


def test_a_group_of_processes_reads_everything_once(tmp_path: Path) -> None:
    with running_node(tmp_path / "data") as node:
        make_topic(node, "shared", groups.PARTITIONS)
        measure(node.address, "shared", each=0, size_bytes=1024, seconds=0.2)
        assert groups.read(node, tmp_path, 1, None) > 0
        assert groups.read(node, tmp_path, 2, "readers") > 0
