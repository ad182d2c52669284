"""A group changes from the classic to the consumer protocol and back, one member after the other, at work.

Every record is read, no committed offset goes back, and by the members' own account no two of them ever read the same
partition at once.
"""

import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.compat.clients.java import Java
from tests.compat.group_watch import DEADLINE_S, JAVA, Member, Seen, Watch
from tests.support.node import NodeProcess, running
from tests.support.wait import wait_until
from tests.support.wire import Wire

from headrace.wire.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest

# Where every member leaves in good order, nobody waits for these times: they outlast the busiest machine's pauses.
PATIENT_MS = 30_000
INTERVAL = {"groups.consumer_heartbeat_interval_ms": 200}
PATIENT = INTERVAL | {"groups.consumer_session_timeout_ms": PATIENT_MS}
QUICK = INTERVAL | {"groups.consumer_session_timeout_ms": 6000}
CONFLUENT = "confluent-kafka"
PARTITIONS = 6
# What the members of one group have in common, by each client's name for it.
ASSIGNORS = {
    ("range", CONFLUENT): "range",
    ("range", JAVA): "org.apache.kafka.clients.consumer.RangeAssignor",
    ("cooperative-sticky", CONFLUENT): "cooperative-sticky",
    ("cooperative-sticky", JAVA): "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class Span(NamedTuple):
    """From when to when a member read a partition."""

    partition: int
    start_ns: int
    end_ns: int | None
    file: str


class MigrationWatch(Watch):
    """Asks about a consumer group where the group is one, and otherwise about a classic group."""

    assignor = "range"
    types: tuple[int, ...] = ()  # of a consumer group's members: 0 classic, 1 consumer

    def classic(self, client: str, **options: Any) -> Member:
        strategy = ASSIGNORS[self.assignor, client]
        times = {"session.timeout.ms": PATIENT_MS}
        return self._joined(client, {"partition.assignment.strategy": strategy, **times, **options})

    def consumer(self, client: str, **options: Any) -> Member:
        return self._joined(client, {"group.protocol": "consumer", **options})

    def _joined(self, client: str, options: dict[str, Any]) -> Member:
        events = self._directory / f"events-{next(self._files)}"
        return self.start(client, events=str(events), **{"max.poll.interval.ms": PATIENT_MS, **options})

    def describe(self, wire: Wire) -> Seen:
        (group,) = wire.ask(69, 1, ConsumerGroupDescribeRequest((self.name,))).groups
        if group.error_code != 0:
            self.types = ()
            return super().describe(wire)
        self.types = tuple(sorted(member.member_type for member in group.members))
        owned = {
            member.member_id: frozenset(
                index for topic in member.assignment.topic_partitions for index in topic.partitions
            )
            for member in group.members
        }
        return Seen(group.group_state, owned)

    def wait_types(self, *types: int) -> None:
        """Wait until the members between them have everything, and are of these protocols. None: a classic group."""

        def is_so() -> bool:
            return bool(self.seen) and self.types == types and self._is_whole(self.seen[-1], len(types) or 2)

        self.seen.clear()
        wait_until(is_so, deadline_s=DEADLINE_S, what=lambda: f"{types}; {self.types} {self.seen[-1:]}")

    def spans(self) -> list[Span]:
        found = []
        for file in self._directory.glob("events-*"):
            taken: dict[int, int] = {}
            for line in file.read_text(encoding="utf-8").splitlines():
                at_ns, what, _, partition = line.split()
                if what == "taken":
                    taken[int(partition)] = int(at_ns)
                else:
                    found.append(Span(int(partition), taken.pop(int(partition)), int(at_ns), file.name))
            found += [Span(partition, at_ns, None, file.name) for partition, at_ns in taken.items()]
        return sorted(found)

    def check_readers(self) -> None:
        spans = self.spans()
        assert {span.partition for span in spans} == set(range(self.partitions))
        for one, other in pairwise(spans):
            if one.partition == other.partition:
                assert one.end_ns is not None, f"{one} was never over when {other} began"
                assert one.end_ns <= other.start_ns, f"two readers: {one} and {other}"


@pytest.fixture
def own_node(tmp_path: Path) -> Iterator[NodeProcess]:
    with running(tmp_path / "data", settings=PATIENT) as started:
        yield started


@pytest.mark.parametrize(
    ("assignor", "first", "second"),
    [
        ("range", JAVA, CONFLUENT),
        ("cooperative-sticky", JAVA, JAVA),
        ("cooperative-sticky", CONFLUENT, CONFLUENT),
    ],
)
def test_members_change_their_protocol_one_after_the_other_and_back(
    own_node: NodeProcess, tmp_path: Path, assignor: str, first: str, second: str, request: pytest.FixtureRequest
) -> None:
    java: Java | None = request.getfixturevalue("java") if JAVA in (first, second) else None
    with MigrationWatch(own_node.server, "orders", tmp_path, partitions=PARTITIONS, java=java).running() as watch:
        watch.assignor = assignor
        one, two = watch.classic(first), watch.classic(second)
        watch.wait_types()
        for start, types in ((watch.consumer, (1, 1)), (watch.classic, ())):
            one.end(signal.SIGTERM)
            one = start(first)
            watch.wait_types(0, 1)
            watch.wait_reading(one)
            watch.wait_reading(two)
            own_node.kill()
            own_node.start()
            watch.wait_types(0, 1)
            two.end(signal.SIGTERM)
            two = start(second)
            watch.wait_types(*types)
            watch.wait_reading(one)
            watch.wait_reading(two)
        watch.finish()
        watch.check_readers()


def test_a_third_member_of_the_other_protocol_joins_and_leaves(tmp_path: Path) -> None:
    """Nobody else restarts: the two that were there share with it, and have everything again when it has gone."""
    with (
        running(tmp_path / "data", settings=QUICK) as node,
        MigrationWatch(node.server, "orders", tmp_path, partitions=PARTITIONS).running() as watch,
    ):
        watch.assignor = "cooperative-sticky"
        one, two = watch.classic(CONFLUENT), watch.classic(CONFLUENT)
        watch.wait_types()
        three = watch.consumer(CONFLUENT)
        watch.wait_types(0, 0, 1)
        for member in (one, two, three):
            watch.wait_reading(member)
        three.end(signal.SIGKILL)  # the group finds out by its silence
        watch.wait_types()
        four = watch.consumer(CONFLUENT)
        watch.wait_types(0, 0, 1)
        four.end(signal.SIGTERM)
        watch.wait_types()
        watch.finish()


@pytest.mark.parametrize("client", [JAVA, CONFLUENT])
def test_a_static_member_keeps_its_place_while_it_changes_its_protocol(
    own_node: NodeProcess, tmp_path: Path, client: str, request: pytest.FixtureRequest
) -> None:
    java: Java | None = request.getfixturevalue("java") if client == JAVA else None
    names = [{"group.instance.id": name} for name in ("one", "two")]
    with MigrationWatch(own_node.server, "orders", tmp_path, partitions=PARTITIONS, java=java).running() as watch:
        one, two = (watch.classic(client, **name) for name in names)
        watch.wait_types()
        for start, types in ((watch.consumer, (1, 1)), (watch.classic, ())):
            one.end(signal.SIGTERM)
            one = start(client, **names[0])
            watch.wait_types(0, 1)
            two.end(signal.SIGTERM)
            two = start(client, **names[1])
            watch.wait_types(*types)
            watch.wait_reading(one)
            watch.wait_reading(two)
        watch.finish()
        watch.check_readers()
