"""How a worker takes and handles messages."""

from typing import Annotated

import msgspec

from headrace.model.queue import LEASE_MS_MAX, Backoff


class WorkerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    queue: str
    # Handlers that run at once: tasks of the event loop, or threads.
    concurrency: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 10
    # Seconds; None: the queue's. It is extended while a handler runs, so it only says how soon others get the message
    # of a worker that died.
    lease_s: Annotated[float, msgspec.Meta(gt=0, le=LEASE_MS_MAX / 1_000)] | None = None
    # Messages that are leased beyond those being handled, so that no handler waits for the network. None: half as
    # many as are handled at once.
    prefetch: Annotated[int, msgspec.Meta(ge=0)] | None = None
    wait_s: float = 20.0
    # How long a stop waits for handlers that run.
    grace_s: Annotated[float, msgspec.Meta(ge=0)] = 30.0
    # After a failed attempt, where the queue has no back-off of its own.
    backoff: Backoff = Backoff(first_ms=1_000, last_ms=600_000)

    @property
    def ahead_max(self) -> int:
        return self.concurrency // 2 if self.prefetch is None else self.prefetch
