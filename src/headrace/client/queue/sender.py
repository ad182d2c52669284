"""Sends of one queue, each message stored once however often its request is repeated.

With retries on, a message without a deduplication id gets one that nobody else uses; the node then knows a repeated
request. A queue that knows duplicates by their content needs no ids, and must not be given any: they would hide the
equality of two bodies. Which kind a queue is, is asked once, before its first send.

Order: two messages are stored in the order of their sends where the first send has returned before the second began.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import count
from typing import Any

from headrace.client.deadline import Deadline
from headrace.client.errors import PartlySentError
from headrace.client.http.caller import MSGPACK, Caller, Pauses, is_worth_repeating
from headrace.client.http.problem import error_for, read
from headrace.client.queue.batcher import Batcher
from headrace.client.queue.outgoing import OutgoingMessage, size_bytes, to_send
from headrace.client.queue.wire import Failure, Send, SendRequest, SendResult, decode_sent, encode
from headrace.model.errors import HeadraceError
from headrace.model.message import Sent

Outcomes = list[Sent | HeadraceError]
_OWN_ID_BYTES = 12


class Ids:
    """Deduplication ids: what is random is drawn once, for a client; a count tells its messages apart."""

    def __init__(self, random: bytes) -> None:
        self._prefix = random.hex()
        self._numbers = count()

    def next(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"

    def has_made(self, id: str | None) -> bool:
        return id is not None and id.startswith(self._prefix)


def make_ids(caller: Caller) -> Ids:
    return Ids(caller.rand.bytes(_OWN_ID_BYTES))


def failure(refused: Failure) -> HeadraceError:
    return error_for(refused.code, refused.detail) or HeadraceError(f"{refused.code}: {refused.detail}")


class Sender:
    def __init__(
        self, caller: Caller, path: str, ids: Ids, *, knows_by_content: Callable[[], Coroutine[Any, Any, bool]]
    ) -> None:
        self._caller = caller
        self._target = f"{path}/messages"
        self._ids = ids
        self._knows_by_content = knows_by_content
        self._by_content: bool | None = None
        self._learning: asyncio.Task[bool] | None = None
        self._batcher: Batcher[Send, Sent] = Batcher(self._transmit, caller.config, clock=caller.clock)
        self._places = asyncio.Semaphore(caller.config.batches_in_flight_max)

    async def close(self) -> None:
        await self._batcher.close()

    async def send(self, message: OutgoingMessage) -> Sent:
        send = to_send(message)
        await self._identify((send,))
        return await self._batcher.submit(send, size_bytes(send))

    async def send_many(self, messages: Sequence[object]) -> list[Sent]:
        """Bodies or `OutgoingMessage`s, in as many requests as they need."""
        sends = [
            Send(message)
            if isinstance(message, bytes)
            else to_send(message if isinstance(message, OutgoingMessage) else OutgoingMessage(body=message))
            for message in messages
        ]
        await self._identify(sends)
        outcomes: Outcomes = []
        for batch in await asyncio.gather(*(self._carry(batch) for batch in self._batches(sends))):
            outcomes += batch
        sent = [outcome for outcome in outcomes if isinstance(outcome, Sent)]
        if len(sent) < len(outcomes):
            raise PartlySentError(outcomes)
        return sent

    async def _identify(self, sends: Sequence[Send]) -> None:
        if not self._caller.config.retries:
            return
        if self._by_content is None:
            await self._learn()
        if not self._by_content:
            for send in sends:
                if send.deduplication_id is None:
                    send.deduplication_id = self._ids.next()

    async def _learn(self) -> None:
        """Ask once, for all who wait; again only where nobody got an answer."""
        if self._learning is None or (self._learning.done() and self._by_content is None):
            self._learning = asyncio.get_running_loop().create_task(self._knows_by_content())
        self._by_content = await asyncio.shield(self._learning)

    def _batches(self, sends: list[Send]) -> Iterator[list[Send]]:
        config = self._caller.config
        batch: list[Send] = []
        size = 0
        for send in sends:
            more = size_bytes(send)
            if batch and (len(batch) >= config.batch_count_max or size + more > config.batch_bytes_max):
                yield batch
                batch, size = [], 0
            batch.append(send)
            size += more
        if batch:
            yield batch

    async def _carry(self, batch: list[Send]) -> Outcomes:
        async with self._places:
            try:
                return await self._transmit(batch)
            except HeadraceError as error:
                return [error] * len(batch)

    async def _transmit(self, sends: list[Send]) -> Outcomes:
        """Send a batch, and again what a retry can help of it, until the deadline."""
        caller = self._caller
        deadline = Deadline(caller.clock, caller.config.deadline_ms)
        outcomes = await self._post(sends, deadline)
        pauses = Pauses(caller.config, caller.rand)
        while caller.config.retries:
            again = [
                index
                for index, outcome in enumerate(outcomes)
                if isinstance(outcome, HeadraceError)
                and is_worth_repeating(outcome, is_repeatable=self._is_repeatable(sends[index]))
            ]
            pause_ms = pauses.next_ms()
            if not again or pause_ms >= deadline.left_ms:
                break
            await caller.clock.sleep(pause_ms)
            try:
                repeated = await self._post([sends[index] for index in again], deadline)
            except HeadraceError:
                # Each message keeps the error that it has of its own.
                break
            for index, outcome in zip(again, repeated, strict=True):
                outcomes[index] = outcome
        return outcomes

    def _is_repeatable(self, send: Send) -> bool:
        return self._by_content is True or send.deduplication_id is not None

    async def _post(self, sends: list[Send], deadline: Deadline) -> Outcomes:
        answer = await self._caller.call(
            "POST",
            self._target,
            encode(SendRequest(sends)),
            form=MSGPACK,
            is_repeatable=all(map(self._is_repeatable, sends)),
            deadline=deadline,
        )
        results = read(decode_sent, answer).results
        return [self._outcome(send, result) for send, result in zip(sends, results, strict=True)]

    def _outcome(self, send: Send, result: SendResult) -> Sent | HeadraceError:
        if result.error is not None:
            return failure(result.error)
        # A duplicate of an id of our own is the same message, whose first answer was lost.
        is_duplicate = result.duplicate and not self._ids.has_made(send.deduplication_id)
        return Sent(result.id, result.partition, result.offset, is_duplicate)
