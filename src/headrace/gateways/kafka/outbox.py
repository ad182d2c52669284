"""Answers on their way to one peer: gathered through a turn, written at once, and how much of them it has taken."""

import asyncio

from headrace.gateways.kafka.counters import KafkaCounters
from headrace.model.batch import Buffer

# What is written at once from this size on is charged until it is taken to its last byte.
BIG_BYTES = 64 * 1024


class Outbox:
    __slots__ = (
        "_big_bytes",
        "_buffers",
        "_counters",
        "_mark_bytes",
        "_mark_ms",
        "_pause_bytes",
        "_transport",
        "_written_bytes",
        "big_bytes",
        "size",
    )

    def __init__(self, transport: asyncio.Transport, counters: KafkaCounters, *, pause_bytes: int) -> None:
        self._transport = transport
        self._counters = counters
        self._buffers: list[Buffer] = []
        self.size = 0  # bytes that were gathered and not written
        self.big_bytes = 0  # those that are being written, if they are many
        self._pause_bytes = pause_bytes
        self._big_bytes = min(pause_bytes, BIG_BYTES)
        self.set_limits()
        self._written_bytes = 0
        self._mark_ms = 0
        self._mark_bytes = 0

    def put(self, buffers: list[Buffer]) -> None:
        self._buffers += buffers
        for buffer in buffers:
            self.size += len(buffer)

    def flush(self) -> None:
        """Hand everything to the transport."""
        buffers = self._buffers
        if not buffers:
            return
        self._counters.bytes_out += self.size
        self._written_bytes += self.size
        self._buffers = []
        self.size, size = 0, self.size
        if size > self._big_bytes:
            self._write_big(buffers, size)
        elif len(buffers) == 1:
            self._transport.write(buffers[0])
        else:
            self._transport.writelines(buffers)

    def _write_big(self, buffers: list[Buffer], size: int) -> None:
        """Have the transport pause unless the kernel takes it all: it is in memory until the last byte is taken."""
        self.big_bytes = size
        self._transport.set_write_buffer_limits(high=0)
        self._transport.writelines(buffers)
        self.big_bytes = 0
        if not self.untaken_bytes:
            self.set_limits()

    def set_limits(self) -> None:
        self._transport.set_write_buffer_limits(high=self._pause_bytes, low=0)

    @property
    def untaken_bytes(self) -> int:
        """Bytes that the transport still holds."""
        return self._transport.get_write_buffer_size()

    def mark(self, now_ms: int) -> None:
        """Begin to count what the peer takes."""
        self._mark_ms = now_ms
        self._mark_bytes = self._written_bytes - self.untaken_bytes

    def since_mark_ms(self, now_ms: int) -> int:
        return now_ms - self._mark_ms

    @property
    def taken_bytes(self) -> int:
        """Bytes that the peer took since the mark."""
        return self._written_bytes - self.untaken_bytes - self._mark_bytes
