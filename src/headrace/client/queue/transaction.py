"""Transactions: sends to queues and topics, and acknowledgements, that count together or not at all.

    async with client.transaction() as tx:
        await tx.queue("invoices").send(invoice)
        await tx.ack(message)

Theory of operation. The node keeps the transaction; here is its id and the knowledge whether everything asked of it has
a clear end. A send or an acknowledgement is repeated only where its error says *no*. One that ends in *maybe* (a lost
connection, a time-out, a task that was cancelled meanwhile) spoils the transaction: its commit is refused here, and the
node is told to abort. Begin, commit and abort may be repeated, and are.

How a commit ends: it returns, and everything counts; it raises TransactionStateError, and nothing does; or it raises
UnknownOutcomeError. That is so where no answer came in time, and where an answer was lost and the node then says that
the transaction is over: a node forgets before long how one ended, so this proves nothing about a commit that it may
have carried out. Calling `commit` again asks again.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from types import TracebackType
from typing import Self
from urllib.parse import quote

import msgspec

from headrace.client.deadline import Deadline
from headrace.client.errors import PartlySentError, UnknownOutcomeError
from headrace.client.http.caller import JSON, MSGPACK, Caller, is_maybe
from headrace.client.http.connection import Answer
from headrace.client.http.problem import read
from headrace.client.queue.administration import queue_path
from headrace.client.queue.message import AsyncMessage
from headrace.client.queue.outgoing import HeaderValues, Key, OutgoingMessage, Span, seconds, several
from headrace.client.queue.sender import failure, in_batches, outcome_of, to_sends
from headrace.client.queue.wire import (
    AcknowledgeRequest,
    Send,
    SendRequest,
    decode_results,
    decode_sent,
    encode,
)
from headrace.model.errors import HeadraceError, InvalidRequestError, TransactionStateError, UnknownTransactionError
from headrace.model.message import Sent
from headrace.model.queue import PRIORITY_DEFAULT

_LOGGER = logging.getLogger(__name__)
# An abort is only a courtesy: without it the transaction ends when its time is over.
_ABORT_MS_MAX = 5_000


class Begun(msgspec.Struct):
    id: str
    timeout: float


_decode_begun = msgspec.json.Decoder(Begun).decode


class State(Enum):
    NEW = auto()
    OPEN = auto()
    COMMITTED = auto()
    ABORTED = auto()


class AsyncTransaction:
    """Made by `AsyncClient.transaction`. Use it as a context manager: it commits at the end, and aborts on an error."""

    def __init__(self, caller: Caller, timeout: Span | None = None) -> None:
        self._caller = caller
        self._timeout_s = seconds(timeout)
        self._state = State.NEW
        self._path = ""
        self._may_be_committed = False  # an answer to a commit was lost
        self._unclear_count = 0  # calls that are under way, or whose end will never be known

    @property
    def is_committed(self) -> bool:
        return self._state is State.COMMITTED

    # Its life.

    async def begin(self) -> Self:
        """Begin. The context manager does this."""
        if self._state is not State.NEW:
            raise InvalidRequestError("a transaction is used once; make another with client.transaction()")
        document = {} if self._timeout_s is None else {"timeout": self._timeout_s}
        # One that was begun and never heard of ends by itself.
        answer = await self._caller.call("POST", "/transactions", msgspec.json.encode(document), form=JSON)
        self._path = f"/transactions/{quote(read(_decode_begun, answer).id, safe='')}"
        self._state = State.OPEN
        return self

    async def commit(self) -> None:
        """Let everything count. The context manager does this; after UnknownOutcomeError it may be called again."""
        if self._state is State.COMMITTED:
            return
        self._check_open()
        if self._unclear_count:
            await self._abort_quietly()
            raise TransactionStateError(
                "a send or an acknowledgement of this transaction has no clear end, so it was aborted; begin anew"
            )
        deadline = Deadline(self._caller.clock, self._caller.config.deadline_ms)
        try:
            await self._end("commit", deadline, is_repeatable=False)
        except HeadraceError as error:
            if not (self._may_be_committed or is_maybe(error)):
                if isinstance(error, TransactionStateError | UnknownTransactionError):
                    self._state = State.ABORTED
                raise
            self._may_be_committed = True
            await self._commit_in_doubt(error, deadline)
        self._state = State.COMMITTED

    async def _commit_in_doubt(self, last: HeadraceError, deadline: Deadline) -> None:
        """An answer was lost, now or at an earlier call. Success is an answer; no error is one."""
        if is_maybe(last) and self._caller.config.retries:
            try:
                await self._end("commit", deadline, is_repeatable=True)
                return
            except HeadraceError as error:
                last = error
        raise UnknownOutcomeError(
            f"whether the transaction was committed is not known ({last}); call commit again to ask, or look at the "
            "queues before you repeat its work"
        ) from last

    async def abort(self) -> None:
        """Let nothing count: what was acknowledged is visible again. The context manager does this on an error."""
        if self._state is State.ABORTED:
            return
        self._check_open()
        deadline_ms = min(self._caller.config.deadline_ms, _ABORT_MS_MAX)
        await self._end("abort", Deadline(self._caller.clock, deadline_ms), is_repeatable=True)
        self._state = State.ABORTED

    async def _end(self, how: str, deadline: Deadline, *, is_repeatable: bool) -> None:
        await self._caller.call("POST", f"{self._path}/{how}", deadline=deadline, is_repeatable=is_repeatable)

    async def _abort_quietly(self) -> None:
        try:
            await self.abort()
        except HeadraceError as error:
            _LOGGER.warning("transaction not aborted; it ends when its time is over", extra={"reason": str(error)})
        self._state = State.ABORTED

    def _check_open(self) -> None:
        match self._state:
            case State.NEW:
                raise InvalidRequestError("the transaction has not begun; use it as a context manager, or begin() it")
            case State.COMMITTED | State.ABORTED:
                raise TransactionStateError(f"the transaction is over ({self._state.name.lower()}); begin another")

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._state is not State.OPEN:
            return
        if error is None:
            await self.commit()
        elif isinstance(error, Exception):
            await self._abort_quietly()
        else:
            await asyncio.shield(self._abort_quietly())

    # What belongs to it.

    def queue(self, name: str) -> "AsyncTransactionQueue":
        """A queue, or a topic that is no queue, to send to."""
        return AsyncTransactionQueue(name, self)

    async def ack(self, message: AsyncMessage) -> None:
        """Acknowledge a message with the transaction: it is done if this commits, and visible again if it aborts."""
        await message.ack(self)

    async def ack_all(self, messages: Iterable[AsyncMessage]) -> None:
        """Acknowledge many together. The first error is raised when all of them have been tried."""
        receipts: dict[str, list[str]] = defaultdict(list)
        for message in messages:
            if receipt := message.settled_by_others():
                receipts[message.queue_path].append(receipt)
        for path, own in receipts.items():
            await self.acknowledge(path, own)

    async def acknowledge(self, path: str, receipts: Sequence[str]) -> None:
        """By receipts, of the queue at a path. The first error is raised when all of them have been tried."""
        errors: list[HeadraceError] = []
        count_max = self._caller.config.batch_count_max
        for start in range(0, len(receipts), count_max):
            request = AcknowledgeRequest(list(receipts[start : start + count_max]))
            answer = await self._carry(f"{path}/acknowledgements", encode(request))
            results = read(decode_results, answer).results
            errors += [failure(result.error) for result in results if result.error is not None]
        if errors:
            raise errors[0]

    async def send(self, path: str, sends: Sequence[Send]) -> list[Sent | HeadraceError]:
        """To the queue at a path, in order, in as many requests as they need."""
        outcomes: list[Sent | HeadraceError] = []
        for batch in in_batches(sends, self._caller.config):
            answer = await self._carry(f"{path}/messages", encode(SendRequest(batch)))
            outcomes += [outcome_of(result, is_own=False) for result in read(decode_sent, answer).results]
        if len(outcomes) != len(sends):
            raise HeadraceError(f"the node answered {len(sends)} messages with {len(outcomes)} results")
        return outcomes

    async def _carry(self, target: str, body: bytes) -> Answer:
        self._check_open()
        self._unclear_count += 1
        try:
            answer = await self._caller.call("POST", self._path + target, body, form=MSGPACK, is_repeatable=False)
        except HeadraceError as error:
            if not is_maybe(error):
                self._unclear_count -= 1
            raise
        self._unclear_count -= 1
        return answer


class AsyncTransactionQueue:
    """A queue inside a transaction. What is sent is there for others once the transaction commits."""

    def __init__(self, name: str, transaction: AsyncTransaction) -> None:
        self.name = name
        self._transaction = transaction
        self._path = queue_path(name)

    async def send(
        self,
        body: object,
        *,
        key: Key | None = None,
        priority: int = PRIORITY_DEFAULT,
        delay: Span | None = None,
        ttl: Span | None = None,
        headers: HeaderValues | None = None,
        deduplication_id: str | None = None,
    ) -> Sent:
        """Send one message; the place that it has if the transaction commits. The options are those of a queue."""
        message = OutgoingMessage(
            body=body,
            key=key,
            priority=priority,
            delay=delay,
            ttl=ttl,
            headers=headers,
            deduplication_id=deduplication_id,
        )
        (outcome,) = await self._transaction.send(self._path, to_sends([message]))
        if isinstance(outcome, HeadraceError):
            raise outcome
        return outcome

    async def send_many(self, messages: Iterable[object]) -> list[Sent]:
        """Send many in their order: bodies, or `OutgoingMessage`s. PartlySentError has every outcome if some failed."""
        outcomes = await self._transaction.send(self._path, to_sends(several(messages)))
        sent = [outcome for outcome in outcomes if isinstance(outcome, Sent)]
        if len(sent) < len(outcomes):
            raise PartlySentError(outcomes)
        return sent
