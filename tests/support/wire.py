"""Requests to a node over a plain socket: what no client would send, and exactly when it is sent."""

import socket
import struct
from types import TracebackType
from typing import Any

from headrace.wire.kafka.frame import encode_request, read_correlation_id, read_response


class Wire:
    """A connection that asks and waits, or sends several requests and then takes their answers in order."""

    def __init__(self, server: str, *, deadline_s: float = 10.0) -> None:
        host, _, port = server.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=deadline_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> "Wire":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api_key: int, version: int, request: Any) -> Any:
        return self.receive(api_key, version, self.send(api_key, version, request))

    def send(self, api_key: int, version: int, request: Any) -> int:
        """Returns the request's correlation id."""
        self._correlation_id += 1
        self._socket.sendall(encode_request(api_key, version, self._correlation_id, "test", request))
        return self._correlation_id

    def receive(self, api_key: int, version: int, correlation_id: int) -> Any:
        (size,) = struct.unpack(">i", self._exactly(4))
        frame = self._exactly(size)
        assert read_correlation_id(frame) == correlation_id, "answers come in the order of the requests"
        return read_response(api_key, version, frame).value

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the node closed the connection")
            data += more
        return data
