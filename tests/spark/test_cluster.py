"""The same jobs on a cluster: a master and two workers on loopback, executors that die, and a Connect server."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from tests.spark.command import Command
from tests.spark.killed_driver import LONG, Driver, driving
from tests.spark.standalone import Cluster, standalone
from tests.spark.topic_sink import create_topic, numbers, values
from tests.support.node import NodeProcess
from tests.support.wait import wait_until

from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing

COUNT = 1_200
DEADLINE_S = 240.0  # six JVMs on two cores


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster") / "spark") as started:
        yield started


@pytest.fixture
def source(node: NodeProcess, topic: str) -> str:
    create_topic(node, topic, partitions=2)

    async def main() -> None:
        async with StreamClient(node.server) as client:
            await client.produce(
                topic, [Outgoing(str(number).encode(), partition=number % 2) for number in range(COUNT)]
            )

    asyncio.run(main())
    return topic


def kill_an_executor(driver: Driver, cluster: Cluster, place: Path) -> None:
    """In the middle of a batch, when its tasks have given half of their rows to the sink."""

    def held() -> list[int]:
        pids = {int(path.name.removeprefix("held-")) for path in place.glob("held-*")}
        return [executor.pid for executor in cluster.executors() if executor.pid in pids]

    wait_until(
        lambda: bool(held()) or driver.process.poll() is not None,
        deadline_s=DEADLINE_S,
        what=lambda: f"a task waits in {place.name}; the driver said:\n{driver.said()}",
    )
    assert held(), f"the driver ended before a task waited in {place.name}; it said:\n{driver.said()}"
    psutil.Process(held()[0]).kill()
    (place / "go").touch()


def test_an_executor_that_dies_in_the_middle_of_a_batch_leaves_nothing_doubled_or_lost(
    node: NodeProcess, cluster: Cluster, source: str, tmp_path: Path
) -> None:
    target = f"{source}-copy"
    create_topic(node, target, partitions=2)
    arguments = (cluster.master, node.server, source, target, tmp_path)
    with driving("tests.spark.cluster_job", arguments, log=tmp_path / "driver.log") as driver:
        kill_an_executor(driver, cluster, tmp_path / "topic")
        kill_an_executor(driver, cluster, tmp_path / "lake")
        assert driver.process.wait(DEADLINE_S) == 0, driver.said()
    assert values(node, target, partitions=2) == numbers(COUNT)
    table = DeltaTable(tmp_path / "table").to_pyarrow_table()
    assert Counter(value.as_py().decode() for value in table["value"]) == numbers(COUNT)


@pytest.mark.skipif(not LONG, reason="half a minute for a JVM of its own")
def test_the_same_command_runs_on_the_cluster(node: NodeProcess, cluster: Cluster, source: str, tmp_path: Path) -> None:
    # Executors ask for 1 GB unless they are told otherwise, and wait for ever where no worker has it.
    where = ("--spark", cluster.master, "--conf", "spark.executor.memory=512m")
    Command(node, tmp_path).run("pipeline", "run", "archive", "--topic", source, "--table", "lake", *where)
    table = DeltaTable(tmp_path / "lake").to_pyarrow_table()
    assert Counter(value.as_py().decode() for value in table["value"]) == numbers(COUNT)


@pytest.mark.skipif(not LONG, reason="half a minute for a server of its own")
def test_topics_are_read_and_written_through_a_connect_server(
    node: NodeProcess, cluster: Cluster, source: str, tmp_path: Path
) -> None:
    target = f"{source}-copy"
    create_topic(node, target, partitions=2)
    remote = cluster.start_connect_server()
    arguments = (remote, node.server, source, target, tmp_path / "checkpoint")
    with driving("tests.spark.connect_client", arguments, log=tmp_path / "client.log") as client:
        assert client.process.wait(DEADLINE_S) == 0, client.said()
    assert values(node, target, partitions=2) == numbers(COUNT) + Counter(["batch"])
