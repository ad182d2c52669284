"""A node in memory that serves from a thread of its own, for programs that block."""

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TypeVar

from tests.client.fake_node import FakeNode, fake_node
from tests.support.wait import wait_until

from headrace.client.portal import BackgroundLoop

T = TypeVar("T")
DEADLINE_S = 20.0


class ServedNode:
    """What is asked of the node is asked on its loop."""

    def __init__(self, loop: BackgroundLoop, node: FakeNode) -> None:
        self._loop = loop
        self._node = node

    @property
    def server(self) -> str:
        return str(self._node.address)

    def ask(self, question: Callable[[FakeNode], T]) -> T:
        async def work() -> T:
            return question(self._node)

        return self._loop.run(work())

    def wait(self, condition: Callable[[FakeNode], bool], what: str) -> None:
        wait_until(lambda: self.ask(condition), deadline_s=DEADLINE_S, what=what)


@contextmanager
def serving_fake() -> Iterator[ServedNode]:
    loop = BackgroundLoop(name="fake-node")
    stack = AsyncExitStack()
    try:
        node = loop.run(stack.enter_async_context(fake_node()))
        yield ServedNode(loop, node)
    finally:
        loop.run(stack.aclose())
        loop.close()
