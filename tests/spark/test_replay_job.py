"""What a replay is about, as the broker keeps it."""

import pytest
from tests.spark.source_data import create
from tests.support.node import NodeProcess

from headrace.spark.errors import OptionError
from headrace.spark.pipeline.replay_job import End, ReplayJob
from headrace.testing.rand import SeededRand


def job(node: NodeProcess, topic: str, *, table_id: str = "table", **selection: object) -> ReplayJob:
    target = {"kafka.bootstrap.servers": node.server, "topic": topic}
    return ReplayJob("job", target, selection=selection, table_id=table_id)


@pytest.fixture
def target(node: NodeProcess, topic: str) -> str:
    create(node, topic)
    return topic


def test_a_plan_of_many_partitions_is_found_again_as_it_was(node: NodeProcess, target: str) -> None:
    """It is far longer than what fits beside one offset."""
    rand = SeededRand(1)
    ends = [End(f"topic-{number}", 7, int.from_bytes(rand.bytes(7))) for number in range(2_000)]
    assert job(node, target).find() is None
    assert job(node, target).begin(ends) == ends
    assert job(node, target).find() == ends


def test_who_begins_a_job_second_gets_the_plan_of_the_first(node: NodeProcess, target: str) -> None:
    first, second = [End("orders", 0, 10)], [End("orders", 0, 20)]
    assert job(node, target).begin(first) == first
    assert job(node, target).begin(second) == first
    assert job(node, target).find() == first


def test_the_same_selection_of_another_table_is_another(node: NodeProcess, target: str) -> None:
    job(node, target, where="a").begin([End("orders", 0, 10)])
    with pytest.raises(OptionError, match="was begun for another selection"):
        job(node, target, where="a", table_id="another").find()
    with pytest.raises(OptionError, match="was begun for another selection"):
        job(node, target, where="b").begin([End("orders", 0, 10)])
