"""One node for all tests of the command line that need one; each test has topics of its own."""

from collections.abc import Iterator

import pytest
from tests.cli.command import Headrace, headrace_at
from tests.cli.running import RunningNode, running_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    name: str = request.node.name
    return name.removeprefix("test_").replace("[", "-").replace("]", "")[:200]


@pytest.fixture
def headrace(node: RunningNode) -> Headrace:
    return headrace_at(node)
