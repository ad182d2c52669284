"""What a message says about itself when it arrives, as far as the fold has to know."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from headrace.model.queue import PRIORITY_DEFAULT


class Properties(NamedTuple):
    """One message's own wishes. A message without any is plain, and is not mentioned at all."""

    priority: int = PRIORITY_DEFAULT
    due_ms: int | None = None  # wall clock; None: the queue's default delay after it was sent
    expires_ms: int | None = None  # wall clock; None: the queue's default time to live after it was sent
    key: bytes | None = None  # obeyed where the queue is ordered or fair
    deduplication_id: bytes | None = None
    move_id: bytes | None = None


ALL_PLAIN: Mapping[int, Properties] = MappingProxyType({})
