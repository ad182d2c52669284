"""Listening and connecting, passed in, so that a simulated network can stand in for the real one."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]:
        """Where it listens; the port is the real one even if 0 was asked for."""

    async def close(self) -> None:
        """Stop accepting. Open connections are their protocols' affair."""


class Transport(Protocol):
    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> Listener: ...

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]: ...


class TcpListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server
        host, port, *_ = server.sockets[0].getsockname()
        self._address = (str(host), int(port))

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    async def close(self) -> None:
        # Not wait_closed(): it waits for the connections too, and those are asked to close by their owner.
        self._server.close()


class TcpTransport:
    """TCP through the running event loop."""

    def __init__(self, *, backlog: int = 1024) -> None:
        self._backlog = backlog

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> Listener:
        loop = asyncio.get_running_loop()
        return TcpListener(await loop.create_server(factory, host, port, backlog=self._backlog))

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        return await asyncio.get_running_loop().create_connection(factory, host, port)
