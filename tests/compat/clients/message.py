"""A message as every client has it, and what a client has to be able to do to be tested."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

DEADLINE_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    # None of one that is sent: whatever the client gives it.
    timestamp_ms: int | None = None


Stored = tuple[int, Message]
"""A message and its offset."""


class Client(Protocol):
    @property
    def name(self) -> str: ...

    def can_write(self, message: Message) -> bool:
        """Whether this client has a way to send such a message."""

    def write(
        self,
        server: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: str = "all",
        is_idempotent: bool = False,
        partition: int = 0,
        bytes_max: int = 1_048_588,
    ) -> list[int]:
        """Send in order and wait for the acknowledgements. Returns offsets, -1 where the client is not told."""

    def read(
        self, server: str, topic: str, *, offset: int = 0, partition: int = 0, committed: bool = False
    ) -> list[Stored]:
        """Everything from an offset to the end."""

    def offset_at(self, server: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
        """The first offset at or after a time."""
