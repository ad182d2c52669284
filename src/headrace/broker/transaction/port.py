"""What gateways may ask of transactions: sends and acknowledgements that count together, or not at all.

A call whose answer is lost is not repeated, except `commit` and `abort`: begin anew instead. A transaction that nobody
ends is aborted when its time is over, and a node that restarts aborts what was open.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.model.errors import HeadraceError
from headrace.model.message import Message, Sent


class Begun(NamedTuple):
    """A transaction that was begun."""

    id: str  # opaque and signed; goes with every further call
    timeout_ms: int


class Transactions(Protocol):
    async def begin(self, *, timeout_ms: int | None = None) -> Begun:
        """None: as long as the node's configuration says."""

    async def send(self, transaction: str, queue: str, messages: Sequence[Message]) -> list[Sent | HeadraceError]:
        """Store messages in a queue, or in a topic where the name is of no queue; seen once the transaction commits.

        Each has its own outcome. The error that is raised concerns the whole call: nothing of it may count.
        """

    async def acknowledge(self, transaction: str, queue: str, receipts: Sequence[str]) -> list[HeadraceError | None]:
        """Have leases end with the transaction: for good if it commits, given back if it aborts."""

    async def commit(self, transaction: str) -> None:
        """Everything of the transaction counts. TransactionStateError where it ended otherwise, or its time is over."""

    async def abort(self, transaction: str) -> None:
        """Nothing of the transaction counts. TransactionStateError where it was committed."""
