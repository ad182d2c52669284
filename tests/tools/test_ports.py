"""Ports of tests come from one place, which knows what the kernel gives to clients."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
# A socket that is bound only to learn a free port and closed again, or kept, which a test says by this name.
_PICKED = re.compile(r'(?<!kept)\.bind\(\("127\.0\.0\.1", 0\)\)')


def test_no_test_picks_a_port_from_those_that_the_kernel_gives_to_clients() -> None:
    picking = [str(path.relative_to(TESTS)) for path in TESTS.rglob("*.py") if _PICKED.search(path.read_text())]
    assert picking == [], "use tests.support.node.free_port: a client that reconnects may be given such a port itself"
