"""A TCP proxy that breaks connections where it is told to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from headrace.model.address import Address


class Cut(NamedTuple):
    """Break a connection once so many bytes of it have passed, counted from its first."""

    of_answers: bool  # of what the server says; else of what the client says
    after_bytes: int


class BreakingProxy:
    def __init__(self, target: Address) -> None:
        self._target = target
        self.address = Address("127.0.0.1", 0)
        self.cuts: list[Cut] = []  # for the next connections, one each; whoever comes later is served well
        self.cut_count = 0
        self._served: set[asyncio.Task[None]] = set()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)
        # Also where it was cancelled before it had reached the target.
        task.add_done_callback(lambda _: writer.transport.abort())

    async def close(self) -> None:
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut = self.cuts.pop(0) if self.cuts else None
        server_reader, server_writer = await asyncio.open_connection(*self._target)
        pumps = (
            asyncio.create_task(self._pump(reader, server_writer, cut if cut and not cut.of_answers else None)),
            asyncio.create_task(self._pump(server_reader, writer, cut if cut and cut.of_answers else None)),
        )
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before anything is awaited: whoever closes the proxy may cancel that.
            server_writer.transport.abort()
            writer.transport.abort()
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, cut: Cut | None) -> None:
        passed = 0
        with suppress(ConnectionError):
            while data := await source.read(65_536):
                if cut is not None and passed + len(data) >= cut.after_bytes:
                    sink.write(data[: cut.after_bytes - passed])
                    await sink.drain()
                    self.cut_count += 1
                    return
                passed += len(data)
                sink.write(data)
                await sink.drain()


@asynccontextmanager
async def breaking_proxy(target: Address) -> AsyncIterator[BreakingProxy]:
    proxy = BreakingProxy(target)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.address = Address(*server.sockets[0].getsockname()[:2])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
