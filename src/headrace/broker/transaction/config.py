"""What the coordinator of transactions is told at its start."""

from typing import Annotated

import msgspec

from headrace.model.topic import DAY_MS, INT32_MAX


class TransactionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    # Partitions of the internal topic, which is made when the first transactional producer begins.
    partitions: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 4
    # The longest time-out that a producer may ask for; its transactions are aborted when it is over.
    timeout_ms_max: Annotated[int, msgspec.Meta(ge=1, le=INT32_MAX)] = 15 * 60 * 1000
    # Of transactions over HTTP, where the caller says nothing.
    timeout_ms: Annotated[int, msgspec.Meta(ge=1)] = 60_000
    # A transactional id that nobody has used for so long is forgotten.
    expiry_ms: Annotated[int, msgspec.Meta(ge=1)] = 7 * DAY_MS
    # How many transactional ids a partition of the internal topic knows at a time.
    ids_max: Annotated[int, msgspec.Meta(ge=1)] = 25_000
    # How often time-outs are looked at.
    check_interval_ms: Annotated[int, msgspec.Meta(ge=1)] = 500
    # The end of a transaction is answered when every participant has heard of it, or after so long: it is decided.
    end_wait_ms: Annotated[int, msgspec.Meta(ge=0)] = 2000

    def __post_init__(self) -> None:
        if self.timeout_ms > self.timeout_ms_max:
            raise ValueError("timeout_ms is above timeout_ms_max")
