"""Groups of real clients under load, with members that come, go, are paused and are killed, and a node that restarts.

Every message is read at least once, committed offsets never go back, and no partition has two owners in a generation.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.group_watch import JAVA, Watch
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until

ROUNDS = 6 if os.environ.get("HEADRACE_LONG") else 1
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka", JAVA)


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    """A node that a test may kill."""
    with running(tmp_path / "data") as started:
        yield started


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_reads_everything_while_members_and_node_come_and_go(
    own_node: NodeProcess, tmp_path: Path, client: str, request: pytest.FixtureRequest
) -> None:
    java = request.getfixturevalue("java") if client == JAVA else None
    with Watch(own_node.server, "orders", tmp_path, partitions=6, java=java).running() as watch:
        first, second = watch.start(client), watch.start(client)
        watch.wait_stable(2)
        for _ in range(ROUNDS):
            third = watch.start(client)
            watch.wait_stable(3)
            second.end(signal.SIGKILL)
            watch.wait_stable(2)
            # At work: kafka-python (3.0.12) that loses its membership between joining and being given its partitions
            # goes on reading where it was before, and commits that, although others were further meanwhile.
            watch.wait_reading(first)
            first.send(signal.SIGSTOP)
            watch.wait_stable(1)
            first.send(signal.SIGCONT)
            watch.wait_stable(2)
            own_node.kill()
            own_node.start()
            watch.wait_stable(2)
            second = watch.start(client)
            watch.wait_stable(3)
            third.end(signal.SIGTERM)
            watch.wait_stable(2)
        watch.finish()


def test_a_cooperative_group_moves_only_what_has_to_move(node: NodeProcess, topic: str, tmp_path: Path) -> None:
    options = {"partition.assignment.strategy": "cooperative-sticky"}
    with Watch(node.server, topic, tmp_path, partitions=6).running() as watch:
        watch.start("confluent-kafka", **options)
        (before,) = watch.wait_stable(1).owned.values()
        second = watch.start("confluent-kafka", **options)
        owned = watch.wait_stable(2).owned
        assert sorted(len(partitions) for partitions in owned.values()) == [3, 3]
        assert all(partitions <= before for partitions in owned.values())
        second.end(signal.SIGKILL)
        watch.wait_stable(1)
        watch.finish()


def test_static_members_come_back_to_their_partitions_without_a_rebalance(
    node: NodeProcess, topic: str, tmp_path: Path
) -> None:
    with Watch(node.server, topic, tmp_path, partitions=4).running() as watch:
        watch.start("confluent-kafka", **{"group.instance.id": "one"})
        second = watch.start("confluent-kafka", **{"group.instance.id": "two"})
        before = watch.wait_stable(2).owned
        second.end(signal.SIGKILL)
        watch.start("confluent-kafka", **{"group.instance.id": "two"})

        def has_new_member() -> bool:
            return bool(watch.seen) and watch.seen[-1].owned.keys() != before.keys()

        watch.seen.clear()
        wait_until(has_new_member, deadline_s=20.0, what="the second process of the static member")
        after = watch.seen[-1].owned
        assert {seen.state for seen in watch.seen} == {"Stable"}
        assert set(after.values()) == set(before.values())
        watch.finish()


def test_a_node_that_restarts_finds_its_groups_as_they_were(own_node: NodeProcess, tmp_path: Path) -> None:
    """Nobody joins again: members, generation and assignment are the node's to remember."""
    with Watch(own_node.server, "orders", tmp_path, partitions=4).running() as watch:
        for client in CLIENTS[:1] * 2:
            # Longer than a node takes to come back, however busy the machine is.
            watch.start(client, **{"session.timeout.ms": 60_000, "max.poll.interval.ms": 60_000})
        before = watch.wait_stable(2)
        for restart in (own_node.kill, own_node.stop):
            restart()
            own_node.start()
            assert watch.wait_stable(2) == before
        watch.finish()
        assert watch.seen[-1] == before
