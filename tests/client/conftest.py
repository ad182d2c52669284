"""One node for all tests of the client that need a healthy one."""

from collections.abc import Iterator

import pytest
from tests.cli.running import RunningNode, running_node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    with running_node(tmp_path_factory.mktemp("node") / "data") as started:
        yield started


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
