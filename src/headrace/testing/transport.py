"""One end of a connection in memory: an asyncio transport with write buffers, flow control and every way to end.

What is written goes into the write buffer; as much as fits the window leaves for the peer, which has it one latency
later, in order and in pieces of any size. The window is what the two kernels would hold: bytes on their way, and bytes
that a paused reader has not taken.
"""

import asyncio
import zlib
from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

from headrace.testing.event_loop import Actor, VirtualLoop

_HIGH_BYTES = 64 * 1024
FIRST_PORT = 40_000


class Trace(Protocol):
    def note(self, kind: str, *values: object) -> None: ...


class Machine:
    """One address on the network, and the actor that runs there now."""

    def __init__(self, host: str, actor: Actor) -> None:
        self.host = host
        self.actor = actor
        self.has_power = True
        self.next_port = FIRST_PORT


class Carrier(Protocol):
    """What an end asks of its network."""

    loop: VirtualLoop
    trace: Trace
    window_bytes: int
    actor: Actor

    def latency_s(self) -> float: ...

    def split(self, data: bytes) -> list[bytes]:
        """The pieces in which the bytes arrive."""

    def carry(self, sender: "SimulatedTransport", piece: bytes | None) -> None:
        """Bytes, or the end, have crossed the network."""

    def carry_reset(self, sender: "SimulatedTransport") -> None: ...

    def refuse(self, sender: "SimulatedTransport") -> None:
        """Tell a sender that no connection is there any more."""

    def forget(self, end: "SimulatedTransport") -> None: ...


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Carrier, machine: Machine, number: int, addresses: tuple[Any, Any]) -> None:
        super().__init__()
        self.machine = machine
        self.actor = machine.actor
        self.number = number
        self.peer: SimulatedTransport
        self._network = network
        self._loop = network.loop
        self._addresses = addresses
        self._protocol: asyncio.BaseProtocol
        self._high, self._low = _HIGH_BYTES, _HIGH_BYTES // 4
        self._protocol_paused = False
        self._buffer: deque[bytes] = deque()
        self._buffer_bytes = 0
        self._window_bytes = network.window_bytes
        self._flying_bytes = 0  # left the buffer, not taken by the peer's protocol
        self._arrives_s = 0.0  # of what was sent last: nothing overtakes it
        self._inbox: deque[bytes | None] = deque()  # arrived while reading was paused; None is the end
        self._is_delivering = False
        self._reading = True
        self._closing = False
        self._eof_written = False
        self._eof_sent = False
        self._is_lost = False

    # asyncio.Transport.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"sockname": self._addresses[0], "peername": self._addresses[1]}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading and not self._closing:
            self._reading = True
            self._loop.call_soon_for(self.actor, self._deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        assert high >= low >= 0
        self._high, self._low = high, low
        self._balance()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._buffer_bytes

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or not len(data):
            return
        assert not self._eof_written, "written after the end"
        # A copy: as the kernel's, it does not change when the writer's buffer does.
        self._buffer.append(bytes(data))
        self._buffer_bytes += len(data)
        self._pump()
        self._balance()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._eof_written:
            self._eof_written = True
            self._pump()

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._eof_written = True
        self._pump()
        if not self._buffer_bytes:
            self._loop.call_soon_for(self.actor, self._lose, None)

    def abort(self) -> None:
        self._reset_peer()
        self._break(None)

    # The way there.

    def _pump(self) -> None:
        """Send what the window takes."""
        while self._buffer and self._flying_bytes < self._window_bytes:
            data = self._buffer.popleft()
            room = self._window_bytes - self._flying_bytes
            if len(data) > room:
                self._buffer.appendleft(data[room:])
                data = data[:room]
            self._buffer_bytes -= len(data)
            self._flying_bytes += len(data)
            for piece in self._network.split(data):
                self._send(piece)
        if self._eof_written and not self._buffer and not self._eof_sent:
            self._eof_sent = True
            self._send(None)

    def _send(self, piece: bytes | None) -> None:
        if self.actor.is_dead:
            return
        now = self._loop.time()
        self._arrives_s = max(self._arrives_s, now + self._network.latency_s())
        self._loop.call_at_for(self._network.actor, self._arrives_s, self._network.carry, self, piece)

    def acknowledge(self, size: int) -> None:
        """The peer's protocol has taken some bytes."""
        self._flying_bytes -= size
        if self._is_lost:
            return
        self._pump()
        self._balance()
        if self._closing and not self._buffer_bytes:
            self._lose(None)

    def _balance(self) -> None:
        if not self._protocol_paused and self._buffer_bytes > self._high:
            self._protocol_paused = True
            self._protocol.pause_writing()
        elif self._protocol_paused and self._buffer_bytes <= self._low:
            self._protocol_paused = False
            if not self._is_lost:
                self._protocol.resume_writing()

    # The way back.

    def arrive(self, piece: bytes | None) -> None:
        """Something came over the network, for this machine's kernel."""
        if self._is_lost or self._closing:
            if piece is not None:
                self._network.refuse(self.peer)
            return
        self._inbox.append(piece)
        self._loop.call_soon_for(self.actor, self._deliver)

    def _deliver(self) -> None:
        while self._inbox and self._reading and not self._closing:
            piece = self._inbox.popleft()
            if piece is None:
                self._network.trace.note("eof", self.number)
                if not self._protocol.eof_received():  # type: ignore[attr-defined]
                    self.close()
                continue
            taken = self._feed(piece)
            if taken < len(piece):
                self._inbox.appendleft(piece[taken:])
            now = self._loop.time()
            self._loop.call_at_for(self.peer.actor, now, self.peer.acknowledge, taken)

    def _feed(self, piece: bytes) -> int:
        self._network.trace.note("in", self.number, len(piece), zlib.crc32(piece))
        protocol = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(piece)  # type: ignore[attr-defined]
            return len(piece)
        taken = 0
        while taken < len(piece) and self._reading and not self._closing:
            buffer = memoryview(protocol.get_buffer(-1))
            size = min(len(buffer), len(piece) - taken)
            buffer[:size] = piece[taken : taken + size]
            taken += size
            protocol.buffer_updated(size)
        return taken

    # The end.

    def _reset_peer(self) -> None:
        if not self._is_lost and not self.actor.is_dead:
            at = self._loop.time() + self._network.latency_s()
            self._loop.call_at_for(self._network.actor, at, self._network.carry_reset, self)

    def reset(self) -> None:
        """The peer, or something on the way, says that this connection is over."""
        if not self._is_lost:
            self._network.trace.note("reset", self.number)
            self._break(ConnectionResetError(104, "Connection reset by peer"))

    def _break(self, error: Exception | None) -> None:
        self._closing = True
        self._buffer.clear()
        self._buffer_bytes = 0
        self._loop.call_soon_for(self.actor, self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if self._is_lost:
            return
        if any(self._inbox):
            self._reset_peer()  # as a kernel does whose process has closed without reading everything
        self._is_lost = True
        self._closing = True
        self._network.forget(self)
        self._protocol.connection_lost(error)

    def start(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    @property
    def is_lost(self) -> bool:
        return self._is_lost
