"""What the coordinator of transactions asks of groups."""

from collections.abc import Sequence
from typing import Protocol

from headrace.broker.group.port import Caller, OffsetCommit, Outcomes

__all__ = ["Caller", "Groups", "OffsetCommit", "Outcomes"]


class Groups(Protocol):
    async def commit_transactional(
        self, caller: Caller, offsets: Sequence[OffsetCommit], *, producer_id: int, producer_epoch: int
    ) -> Outcomes:
        """Note offsets that count once the transaction commits. Durable when this returns."""

    async def end_transaction(self, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        """Let what a producer has noted count, or be forgotten. May be repeated."""
