"""One node for all tests of the clients; each test has topics of its own."""

import re
from collections.abc import Iterator

import pytest
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
