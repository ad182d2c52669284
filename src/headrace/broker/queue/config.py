"""What the queues of a node are told at its start."""

from typing import Annotated

import msgspec


class QueuesConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Queues, and what they may cost this node."""

    # Whether the first send to a name makes its queue.
    auto_create: bool = True
    # Decoded messages near the heads of all queues that are kept in memory.
    cache_bytes: Annotated[int, msgspec.Meta(ge=1024 * 1024)] = 64 * 1024 * 1024
    receive_count_max: Annotated[int, msgspec.Meta(ge=1)] = 1000
    # The longest that a receive may wait; a request's own deadline is the gateway's.
    wait_ms_max: Annotated[int, msgspec.Meta(ge=0)] = 60_000
    # Between two rounds of retention and of letting go what is done.
    keep_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 5_000
