"""One queue, for asynchronous programs.

    tasks = client.queue("tasks")
    await tasks.send({"tea": 1}, key="alice")
    for message in await tasks.receive(max=10):
        async with message:
            brew(message.json())

Single sends and acknowledgements that are under way together leave in one request (see `batcher`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from typing import Unpack
from urllib.parse import urlencode

from headrace.client.deadline import Deadline
from headrace.client.http.caller import MSGPACK, Caller
from headrace.client.http.problem import read
from headrace.client.process_bound import ProcessBound
from headrace.client.queue.administration import Administration, queue_path
from headrace.client.queue.description import (
    BrowsePage,
    Description,
    Explanation,
    Reader,
    Redrive,
    RedriveFilter,
    Settings,
    State,
)
from headrace.client.queue.leases import Leases
from headrace.client.queue.message import AsyncMessage
from headrace.client.queue.outgoing import (
    HeaderValues,
    Key,
    OutgoingMessage,
    Span,
    needed_seconds,
    seconds,
    several,
)
from headrace.client.queue.sender import RequestIds, Sender
from headrace.client.queue.wire import decode_received
from headrace.model.errors import HeadraceError, InvalidRequestError
from headrace.model.message import Sent
from headrace.model.queue import PRIORITY_DEFAULT

# One request waits no longer than this; a longer wait is several requests. Proxies cut what is silent for long.
_WAIT_MS_MAX = 20_000


class AsyncQueue(ProcessBound):
    """Made by `AsyncClient.queue`."""

    def __init__(self, name: str, caller: Caller, administration: Administration, ids: RequestIds) -> None:
        self.name = name
        self._caller = caller
        self._administration = administration
        self._path = queue_path(name)
        self._sender = Sender(caller, self._path, ids)
        self._leases = Leases(caller, self._path)

    async def close(self) -> None:
        """Send what is pending. The client does this when it is closed."""
        await self._sender.close()
        await self._leases.close()

    # Messages.

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
        """Store one message and say where. Bytes and text are sent as they are, anything else as JSON."""
        return await self._sender.send(
            OutgoingMessage(
                body=body,
                key=key,
                priority=priority,
                delay=delay,
                ttl=ttl,
                headers=headers,
                deduplication_id=deduplication_id,
            )
        )

    async def send_many(self, messages: Iterable[object]) -> list[Sent]:
        """Store many: bodies, or `OutgoingMessage`s. PartlySentError has every outcome where some failed."""
        return await self._sender.send_many(several(messages))

    async def receive(self, max: int = 10, wait: Span = 20, lease: Span | None = None) -> list[AsyncMessage]:
        """Lease up to so many messages, waiting up to so long for the first; an empty list when the time is over."""
        asked: object = max
        if not isinstance(asked, int) or asked < 1:
            raise InvalidRequestError(f"max is {max!r}; ask for a whole number of messages, at least one")
        wait_s = needed_seconds(wait)
        deadline = Deadline(self._caller.clock, wait_s * 1000)
        left_ms = int(wait_s * 1000)
        while True:
            found = await self._receive(max, min(left_ms, _WAIT_MS_MAX), seconds(lease))
            if found or deadline.is_past:
                return found
            left_ms = deadline.left_ms

    async def _receive(self, max: int, wait_ms: int, lease_s: float | None) -> list[AsyncMessage]:
        query: dict[str, object] = {"batch_size": max, "wait": wait_ms / 1000}
        if lease_s is not None:
            query["lease"] = lease_s
        target = f"{self._path}/messages?{urlencode(query)}"
        answer = await self._caller.call("GET", target, form=MSGPACK, wait_ms=wait_ms)
        leases = self._leases
        return [AsyncMessage(delivery, leases) for delivery in read(decode_received, answer).messages]

    async def messages(
        self, *, batch: int = 10, wait: Span = 20, lease: Span | None = None, until_empty: bool = False
    ) -> AsyncIterator[AsyncMessage]:
        """Messages as they come, without end; or until none came for the length of a wait.

        They are leased in batches, and the lease of one runs while those before it are handled. What was leased and
        not yet given out when the loop is left is released.
        """
        left: list[AsyncMessage] = []
        try:
            while True:
                left = (await self.receive(batch, wait, lease))[::-1]
                if not left and until_empty:
                    return
                while left:
                    yield left.pop()
        finally:
            await self.release_all(left)

    async def acknowledge_all(self, messages: Iterable[AsyncMessage]) -> None:
        """Acknowledge many together. The first error is raised when all of them have been tried."""
        receipts = [receipt for message in messages if (receipt := message.settled_by_others())]
        for outcome in await self._leases.acknowledge_many(receipts):
            if outcome is not None:
                raise outcome

    async def release_all(self, messages: Iterable[AsyncMessage]) -> None:
        """Give back, at once, what was leased and not looked at: it costs no attempt.

        A failure only means that the lease runs out.
        """

        async def give_back(receipt: str) -> None:
            with suppress(HeadraceError):
                await self._leases.give_back(receipt)

        receipts = [receipt for message in messages if (receipt := message.settled_by_others(acknowledged=False))]
        await asyncio.gather(*map(give_back, receipts))

    # The queue itself.

    async def create(
        self,
        *,
        partitions: int | None = None,
        durability: str | None = None,
        convert: bool = False,
        **settings: Unpack[Settings],
    ) -> Description:
        """Make the queue. One that exists with the same settings is fine; with others, QueueExistsError.

        A topic of this name becomes a queue: at once if it holds no records, else only with `convert`. Without it,
        TopicHasRecordsError says what would change.
        """
        return await self._administration.create(
            self.name, settings, partitions=partitions, durability=durability, convert=convert
        )

    async def describe(self) -> Description:
        return await self._administration.describe(self.name)

    async def update(self, **settings: Unpack[Settings]) -> Description:
        """Change some settings; the others stay as they are."""
        return await self._administration.update(self.name, settings)

    async def delete(self) -> None:
        """Delete the queue and its messages. Nodes allow it on their administrator's address only."""
        await self._administration.delete(self.name)

    async def purge(self) -> int:
        """Drop every message that is there now, and say how many that were."""
        return await self._administration.purge(self.name)

    async def browse(self, *, state: State | None = None, limit: int = 10, after: str | None = None) -> BrowsePage:
        """Look at messages without taking them."""
        return await self._administration.browse(self.name, state=state, limit=limit, after=after)

    async def explain(self, *, id: str | None = None, key: str | None = None) -> Explanation:
        """Where a message is, or why a key stands still: give one of the two."""
        return await self._administration.explain(self.name, id=id, key=key)

    async def redrive(
        self, *, target: str | None = None, filter: RedriveFilter | None = None, rate: int | None = None
    ) -> Redrive:
        """Send this queue's dead letters back to where they came from, or to a target; so many a second."""
        return await self._administration.redrive(self.name, target=target, filter=filter, rate=rate)

    async def redrives(self) -> list[Redrive]:
        """The last redrives and how far they are, newest first."""
        return await self._administration.redrives(self.name)

    async def cancel_redrive(self, id: str) -> Redrive:
        return await self._administration.cancel_redrive(self.name, id)

    async def readers(self) -> list[Reader]:
        return await self._administration.readers(self.name)

    async def move_reader(self, reader: str, positions: Mapping[int, int]) -> Reader:
        """Register a reader by offset, or note how far it has read."""
        return await self._administration.move_reader(self.name, reader, positions)

    async def remove_reader(self, reader: str) -> None:
        await self._administration.remove_reader(self.name, reader)
