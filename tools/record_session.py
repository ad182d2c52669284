"""Record what a Kafka client says: a loopback proxy that keeps the client's bytes, a file for each connection.

    python -m tools.record_session --forward 127.0.0.1:9092 --listen 127.0.0.1:9093 --name kcat --to DIRECTORY

Start the node so that it tells clients the proxy's address (`headrace up --advertise 127.0.0.1:9093`), run the client
against the proxy, and end with Ctrl-C or SIGTERM. Connections that said nothing leave no file.
"""

import argparse
import asyncio
import contextlib
import itertools
from pathlib import Path

SESSION_BYTES_MAX = 50_000


class Recorder:
    def __init__(self, *, host: str, port: int, name: str, directory: Path) -> None:
        self._host = host
        self._port = port
        self._name = name
        self._directory = directory
        self._numbers = itertools.count(1)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node_reader, node_writer = await asyncio.open_connection(self._host, self._port)
        said = bytearray()
        answers = asyncio.create_task(_copy(node_reader, writer, bytearray()))
        try:
            await _copy(reader, node_writer, said)
        finally:
            answers.cancel()
            node_writer.close()
            writer.close()
            if said:
                path = self._directory / f"{self._name}-{next(self._numbers)}.bin"
                await asyncio.to_thread(path.write_bytes, said[:SESSION_BYTES_MAX])
                print(f"{path}: {len(said)} bytes")


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            kept += data
            writer.write(data)
            await writer.drain()


async def _main() -> None:
    parser = argparse.ArgumentParser(description="Keep what a Kafka client says, a file for each connection.")
    parser.add_argument("--forward", required=True, help="HOST:PORT of the node")
    parser.add_argument("--listen", required=True, help="HOST:PORT that the client connects to")
    parser.add_argument("--name", required=True, help="beginning of the files' names")
    parser.add_argument("--to", required=True, type=Path, help="directory of the files")
    arguments = parser.parse_args()
    host, port = arguments.forward.rsplit(":", 1)
    recorder = Recorder(host=host, port=int(port), name=arguments.name, directory=arguments.to)
    listen_host, listen_port = arguments.listen.rsplit(":", 1)
    server = await asyncio.start_server(recorder.serve, listen_host, int(listen_port))
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_main())
