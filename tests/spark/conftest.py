"""One Spark and one node for all tests here: a JVM takes seconds to start, and a node's topics are the tests' own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.support.node import NodeProcess, running

from headrace.spark import session

_JVM_EXIT_DEADLINE_S = 30.0
_numbers = itertools.count()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session with two cores, whose JVM is gone when the tests are over."""
    made = session(
        "tests",
        master="local[2]",
        config={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            "spark.driver.memory": "1g",
        },
    )
    gateway = made.sparkContext._gateway
    assert gateway is not None
    try:
        yield made
    finally:
        made.stop()
        # The JVM ends when its standard input does. That is this process's end, unless it is brought about before.
        process = gateway.proc
        gateway.shutdown()
        process.stdin.close()
        process.wait(_JVM_EXIT_DEADLINE_S)


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that all tests share; each makes topics and queues of its own. It looks after its logs often."""
    settings = {"log.maintenance_interval_ms": 200}
    with running(tmp_path_factory.mktemp("node") / "data", settings=settings) as started:
        yield started


@pytest.fixture
def topic() -> str:
    """A name that no other test has."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """Where a streaming query keeps how far it is."""
    return str(tmp_path / "checkpoint")
