"""The ceiling of HTTP on this machine: a protocol over httptools that answers every request with an empty body.

It parses each request whole, its head and its body, looks at nothing of it, and writes one answer made beforehand. A
node that takes messages by HTTP does this too, and then its own work; the ratio of the two says how much that is.

Run as `python -m benchmarks.bare_http`; the first line printed is the address.
"""

import asyncio
import json
import sys
from typing import cast

import httptools
import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


class BareProtocol(asyncio.Protocol):
    """One connection. httptools calls `on_message_complete` once for each request that has arrived."""

    def __init__(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class, of no common ancestor

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        self._transport.write(ANSWER)


async def serve() -> None:
    server = await asyncio.get_running_loop().create_server(BareProtocol, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    print(json.dumps({"http": f"{host}:{port}"}), flush=True)
    await server.serve_forever()


def main() -> None:
    try:
        uvloop.run(serve())
    except KeyboardInterrupt:
        sys.exit(0)


if __name__ == "__main__":
    main()
