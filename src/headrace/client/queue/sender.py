"""Sends of one queue, each message stored once however often its request is repeated.

With retries on, a request whose messages have no deduplication ids gets an id of its own, and the node answers a second
one with the places of the first. Where messages have ids, those count and the request's would not; so messages with
ids and messages without never travel in one request. A request is repeated as a whole and unchanged, because only
then does its id mean the same.

Order: two messages are stored in the order of their sends where the first send has returned before the second began.
Messages of one `send_many` are stored in their order where any of them has a key; otherwise batches go side by side.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count

from headrace.client.deadline import Deadline, Patience
from headrace.client.errors import PartlySentError
from headrace.client.http.caller import MSGPACK, Caller, Pauses, is_worth_repeating
from headrace.client.http.problem import error_for, read
from headrace.client.queue.batcher import Batcher, carry_apart
from headrace.client.queue.outgoing import OutgoingMessage, size_bytes, to_send
from headrace.client.queue.wire import Failure, Send, SendRequest, SendResult, decode_sent, encode
from headrace.client.settings import QueueClientConfig
from headrace.model.errors import HeadraceError
from headrace.model.message import Sent

Outcomes = list[Sent | HeadraceError]
_OWN_ID_BYTES = 12


class RequestIds:
    """What is random is drawn once, for a client; a count tells its requests apart."""

    def __init__(self, random: bytes) -> None:
        self._prefix = random.hex()
        self._numbers = count()

    def next(self) -> str:
        return f"{self._prefix}-{next(self._numbers)}"


def make_ids(caller: Caller) -> RequestIds:
    return RequestIds(caller.rand.bytes(_OWN_ID_BYTES))


def failure(refused: Failure) -> HeadraceError:
    return error_for(refused.code, refused.detail) or HeadraceError(f"{refused.code}: {refused.detail}")


def to_sends(messages: Sequence[object]) -> list[Send]:
    """Bodies or `OutgoingMessage`s as they go over the wire."""
    return [
        Send(message)
        if isinstance(message, bytes)
        else to_send(message if isinstance(message, OutgoingMessage) else OutgoingMessage(body=message))
        for message in messages
    ]


def in_batches(sends: Sequence[Send], config: QueueClientConfig) -> Iterator[list[Send]]:
    """Cut into requests, which are neither too large nor mix messages with ids and without."""
    batch: list[Send] = []
    size = 0
    have_ids = False
    for send in sends:
        more = size_bytes(send)
        has_id = send.deduplication_id is not None
        is_full = len(batch) >= config.batch_count_max or size + more > config.batch_bytes_max
        if batch and (is_full or has_id != have_ids):
            yield batch
            batch, size = [], 0
        have_ids = has_id
        batch.append(send)
        size += more
    if batch:
        yield batch


class Sender:
    def __init__(self, caller: Caller, path: str, ids: RequestIds) -> None:
        self._caller = caller
        self._target = f"{path}/messages"
        self._ids = ids
        self._with_ids: Batcher[Send, Sent] = Batcher(self._transmit, caller.config, clock=caller.clock)
        self._without_ids: Batcher[Send, Sent] = Batcher(self._transmit, caller.config, clock=caller.clock)
        self._places = asyncio.Semaphore(caller.config.batches_in_flight_max)
        self._patience = Patience(caller.clock, caller.config.deadline_ms)

    async def close(self) -> None:
        await self._with_ids.close()
        await self._without_ids.close()

    async def send(self, message: OutgoingMessage) -> Sent:
        self._caller.check_loop()
        send = to_send(message)
        batcher = self._without_ids if send.deduplication_id is None else self._with_ids
        return await batcher.submit(send, size_bytes(send))

    async def send_many(self, messages: Sequence[object]) -> list[Sent]:
        """Bodies or `OutgoingMessage`s, in as many requests as they need."""
        self._caller.check_loop()
        sends = to_sends(messages)
        begun_ms = self._caller.clock.monotonic_ms()
        outcomes: Outcomes = []
        if any(send.key is not None for send in sends):
            for batch in in_batches(sends, self._caller.config):
                outcomes += await self._carry(batch, begun_ms)
        else:
            for carried in await asyncio.gather(
                *(self._carry(batch, begun_ms) for batch in in_batches(sends, self._caller.config))
            ):
                outcomes += carried
        sent = [outcome for outcome in outcomes if isinstance(outcome, Sent)]
        if len(sent) < len(outcomes):
            raise PartlySentError(outcomes)
        return sent

    async def _carry(self, batch: list[Send], begun_ms: int) -> Outcomes:
        async with self._places:
            return await carry_apart(self._transmit, batch, self._patience, begun_ms=begun_ms)

    async def _transmit(self, sends: list[Send], deadline: Deadline) -> Outcomes:
        """Send a batch, and again while that can help some message of it, until the deadline."""
        caller = self._caller
        request = SendRequest(sends)
        if caller.config.retries and sends[0].deduplication_id is None:
            request.request_id = self._ids.next()
        body = encode(request)
        outcomes = await self._post(body, request, deadline)
        pauses = Pauses(caller.config, caller.rand)
        while caller.config.retries and any(map(_is_worth_repeating, outcomes)):
            pause_ms = pauses.next_ms()
            if pause_ms >= deadline.left_ms:
                break
            await caller.clock.sleep(pause_ms)
            try:
                repeated = await self._post(body, request, deadline)
            except HeadraceError:
                # Each message keeps the outcome that it has of its own.
                break
            outcomes = [
                again if isinstance(before, HeadraceError) else before
                for before, again in zip(outcomes, repeated, strict=True)
            ]
        return outcomes

    async def _post(self, body: bytes, request: SendRequest, deadline: Deadline) -> Outcomes:
        answer = await self._caller.call("POST", self._target, body, form=MSGPACK, deadline=deadline)
        results = read(decode_sent, answer).results
        if len(results) != len(request.messages):
            raise HeadraceError(f"the node answered {len(request.messages)} messages with {len(results)} results")
        # Known by the request's id, it is the same message whose first answer was lost.
        is_own = request.request_id is not None
        return [outcome_of(result, is_own=is_own) for result in results]


def _is_worth_repeating(outcome: Sent | HeadraceError) -> bool:
    return isinstance(outcome, HeadraceError) and is_worth_repeating(outcome, is_repeatable=True)


def outcome_of(result: SendResult, *, is_own: bool) -> Sent | HeadraceError:
    if result.error is not None:
        return failure(result.error)
    return Sent(result.id, result.partition, result.offset, result.duplicate and not is_own)
