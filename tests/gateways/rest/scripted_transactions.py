"""Transactions that answer as a test says, and note what they were asked."""

from collections.abc import Sequence
from typing import Any

from headrace.broker.transaction.port import Begun
from headrace.model.errors import HeadraceError, TransactionStateError, UnknownTransactionError
from headrace.model.message import Message, Sent, message_id


class ScriptedTransactions:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.ended: dict[str, str | None] = {}  # how each ended; None while it is open
        # The errors of the next entries, in their order; what is left over is done.
        self.errors: list[HeadraceError | None] = []

    def _open(self, transaction: str) -> None:
        if transaction not in self.ended:
            raise UnknownTransactionError("no transaction has this id; begin one")
        if self.ended[transaction] is not None:
            raise TransactionStateError(f"the transaction is over ({self.ended[transaction]}); begin another")

    def _next_error(self) -> HeadraceError | None:
        return self.errors.pop(0) if self.errors else None

    async def begin(self, *, timeout_ms: int | None = None) -> Begun:
        id = f"t{len(self.ended) + 1}"
        self.ended[id] = None
        return Begun(id, 60_000 if timeout_ms is None else timeout_ms)

    async def send(self, transaction: str, queue: str, messages: Sequence[Message]) -> list[Sent | HeadraceError]:
        self._open(transaction)
        self.asked.append(("send", transaction, queue, list(messages)))
        return [self._next_error() or Sent(message_id(0, offset), 0, offset, False) for offset in range(len(messages))]

    async def acknowledge(self, transaction: str, queue: str, receipts: Sequence[str]) -> list[HeadraceError | None]:
        self._open(transaction)
        self.asked.append(("acknowledge", transaction, queue, list(receipts)))
        return [self._next_error() for _ in receipts]

    async def _end(self, transaction: str, how: str) -> None:
        if self.ended.get(transaction, "") != how:
            self._open(transaction)
        self.ended[transaction] = how

    async def commit(self, transaction: str) -> None:
        await self._end(transaction, "committed")

    async def abort(self, transaction: str) -> None:
        await self._end(transaction, "aborted")
