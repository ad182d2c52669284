"""One HTTP connection of the client, over a transport that notes what is written to it."""

import asyncio
from collections.abc import Iterable

import pytest

from headrace.client.http.connection import HttpConnection
from headrace.host.clock import SystemClock
from headrace.model.address import Address

HEAD = b"POST /queues/q/purge HTTP/1.1\r\nhost: localhost\r\n\r\n"


class NotingTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.pieces.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.pieces += [bytes(piece) for piece in list_of_data]


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_no_empty_piece_is_ever_written(body: bytes) -> None:
    # asyncio of CPython 3.13.0 keeps an empty piece for ever, and then `close` waits for it.
    async def main() -> None:
        transport = NotingTransport()
        connection = HttpConnection(Address("localhost", 1), clock=SystemClock(), answer_bytes_max=1000)
        connection.connection_made(transport)
        asked = asyncio.ensure_future(connection.ask(HEAD, body, timeout_ms=10_000))
        await asyncio.sleep(0)
        connection.data_received(b"HTTP/1.1 204 No Content\r\n\r\n")
        assert (await asked).status == 204
        assert all(transport.pieces)
        assert b"".join(transport.pieces) == HEAD + body

    asyncio.run(main())
