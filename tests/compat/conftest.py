"""One node for all tests of the clients; each test has topics of its own."""

import re
from collections.abc import Iterator
from zlib import crc32

import pytest
from tests.compat.clients.java import SKIPPED, Java, build
from tests.compat.sqs_world import World
from tests.support.node import NodeProcess, running


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running(tmp_path_factory.mktemp("compat") / "data") as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name: str = request.node.name
    return re.sub(r"[^a-zA-Z0-9._-]", "-", name.removeprefix("test_"))[:200]


@pytest.fixture(scope="session", params=["json", "query"])
def world(node: NodeProcess, request: pytest.FixtureRequest) -> World:
    """SQS by one of its protocols."""
    return World(node, request.param)


@pytest.fixture
def name(world: World, request: pytest.FixtureRequest) -> str:
    """Of SQS queues that no other test has, in either protocol."""
    whole = request.node.name
    readable = re.sub(r"[^A-Za-z0-9_-]", "-", whole.removeprefix("test_"))[:40]
    return f"{readable}-{crc32(f'{world.is_query} {whole}'.encode()):08x}"


@pytest.fixture(scope="session")
def java(pytestconfig: pytest.Config) -> Java:
    cache = pytestconfig.cache
    assert cache is not None
    return build(cache.mkdir("java"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud that a client was left out: a skipped test alone is easily overlooked."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", []) if report.longrepr]
    for reason in sorted({reason for reason in reasons if SKIPPED in reason}):
        terminalreporter.section("Java", sep="!", red=True, bold=True)
        terminalreporter.line(reason, red=True, bold=True)
