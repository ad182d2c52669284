"""A relay between clients and a node that keeps what the clients say: raw material for fuzzing."""

import socket
import threading
from collections.abc import Callable
from types import TracebackType

_CHUNK_BYTES = 65_536
_POLL_S = 0.2


class Tap:
    """Listens on a port of its own and relays each connection to a node, as long as the block lasts."""

    def __init__(self, target: str, *, port: int = 0) -> None:
        host, _, target_port = target.rpartition(":")
        self._target = (host, int(target_port))
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.settimeout(_POLL_S)
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.address = "{}:{}".format(*self._listener.getsockname())
        self.said: list[bytearray] = []  # by clients, for each connection

    def __enter__(self) -> "Tap":
        self._spawn(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            node = socket.create_connection(self._target)
            kept = bytearray()
            self.said.append(kept)
            self._spawn(self._relay, client, node, kept)
            self._spawn(self._relay, node, client, None)

    def _relay(self, source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
        source.settimeout(_POLL_S)
        while not self._over.is_set():
            try:
                data = source.recv(_CHUNK_BYTES)
                if not data:
                    break
                sink.sendall(data)
            except TimeoutError:
                continue
            except OSError:
                break
            if kept is not None:
                kept += data
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        sink.close()


def kafka_frames(said: bytes | bytearray) -> list[bytes]:
    """The requests that a Kafka client sent over one connection, each with its length in front."""
    frames = []
    position = 0
    while position + 4 <= len(said):
        end = position + 4 + int.from_bytes(said[position : position + 4], "big")
        frames.append(bytes(said[position:end]))
        position = end
    return frames


def http_requests(said: bytes | bytearray) -> list[bytes]:
    """The requests that an HTTP client sent over one connection. Each has a Content-Length or no body."""
    requests = []
    position = 0
    while (head_end := said.find(b"\r\n\r\n", position)) >= 0:
        head = bytes(said[position:head_end]).lower()
        length = 0
        for line in head.split(b"\r\n"):
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        end = head_end + 4 + length
        requests.append(bytes(said[position:end]))
        position = end
    return requests
