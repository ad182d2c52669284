"""Queues in memory, with one partition each and a clock that the test moves: what the gateway needs, and no more."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import msgspec
from tests.support.queues import SendsOne, kept

from headrace.broker.promise import Promise
from headrace.broker.queue.port import (
    DEFAULTS,
    EVERYTHING,
    BrowsePage,
    Explanation,
    Extension,
    MessageState,
    NewConfig,
    QueueCounts,
    QueueDescription,
    Reader,
    Redrive,
    RedriveFilter,
    RedriveState,
    Rejection,
    Release,
)
from headrace.model.errors import (
    HeadraceError,
    InvalidReceiptError,
    InvalidRequestError,
    QueueExistsError,
    StaleReceiptError,
    UnknownQueueError,
    UnknownRedriveError,
)
from headrace.model.message import Message, Received, Sent, message_id
from headrace.model.queue import LEASE_MS_MAX, Deduplication, Guarantee, Queue, QueueConfig
from headrace.testing.clock import SimulatedClock


@dataclass
class Stored:
    offset: int
    message: Message
    sent_ms: int
    due_ms: int
    attempt: int = 0
    until_ms: int = 0
    first_ms: int = 0


@dataclass
class Shelf:
    queue: Queue
    partition_count: int
    messages: dict[int, Stored] = field(default_factory=dict)
    sent: int = 0
    known: dict[str, Sent] = field(default_factory=dict)


class FakeReceive:
    def __init__(self) -> None:
        self.promise: Promise[list[Received]] = Promise()
        self.is_cancelled = False
        self.is_waiting = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeQueues(SendsOne):
    """A `Queues`. What it was asked last is kept, for tests that ask how it was asked."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.clock = clock
        self.shelves: dict[str, Shelf] = {}
        self.tasks: dict[str, list[Redrive]] = {}
        self.send_error: HeadraceError | None = None
        self.purge_error: HeadraceError | None = None
        self.create_errors: list[HeadraceError] = []  # of the next creations, one after the other
        self.last_wait_ms = -1
        self.last_receive: FakeReceive | None = None
        self.changed_meanwhile: QueueConfig | None = None  # what somebody else stores right before an update

    def shelf(self, name: str) -> Shelf:
        if name not in self.shelves:
            raise UnknownQueueError(f"no queue is called {name}")
        return self.shelves[name]

    # Messages.

    def send(
        self, queue: str, messages: Sequence[Message], *, request_id: str | None = None
    ) -> Promise[list[Sent | HeadraceError]]:
        shelf = self.shelf(queue)
        return kept([self.send_error or self._send(shelf, message) for message in messages])

    def _send(self, shelf: Shelf, message: Message) -> Sent:
        id = message.deduplication_id
        if id is None and shelf.queue.config.deduplication is Deduplication.CONTENT:
            id = message.body.hex()
        if id is not None and id in shelf.known:
            return shelf.known[id]._replace(is_duplicate=True)
        offset, now_ms = shelf.sent, self.clock.wall_ms()
        shelf.sent += 1
        delay_ms = shelf.queue.config.delay_ms if message.delay_ms is None else message.delay_ms
        shelf.messages[offset] = Stored(offset, message, now_ms, now_ms + delay_ms)
        sent = Sent(message_id(0, offset), 0, offset, False)
        if id is not None:
            shelf.known[id] = sent
        return sent

    def receive(
        self,
        queue: str,
        *,
        count_max: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        attempt_id: str | None = None,
    ) -> FakeReceive:
        shelf, now_ms = self.shelf(queue), self.clock.wall_ms()
        config = shelf.queue.config
        self.last_wait_ms = wait_ms
        receive = self.last_receive = FakeReceive()
        found = [one for one in shelf.messages.values() if max(one.due_ms, one.until_ms) <= now_ms][:count_max]
        for one in found:
            one.attempt += 1
            one.first_ms = one.first_ms or now_ms
            one.until_ms = now_ms + (config.lease_ms if lease_ms is None else lease_ms)
            if config.guarantee is Guarantee.AT_MOST_ONCE:
                del shelf.messages[one.offset]
        if found or not wait_ms:
            receive.promise.keep([self._received(one, shelf) for one in found])
        return receive

    def _received(self, one: Stored, shelf: Shelf) -> Received:
        message = one.message
        receipt = f"{shelf.queue.id}/{one.offset}/{one.attempt}"
        return Received(
            message_id(0, one.offset),
            message.body,
            message.key,
            message.headers,
            message.priority,
            message.deduplication_id,
            one.sent_ms,
            one.attempt,
            one.first_ms,
            "" if shelf.queue.config.guarantee is Guarantee.AT_MOST_ONCE else receipt,
            0,
            0,
            one.offset,
        )

    def _held(self, shelf: Shelf, receipt: str, *, may_be_late: bool = False, may_be_older: bool = False) -> Stored:
        queue_id, _, rest = receipt.partition("/")
        if queue_id != str(shelf.queue.id):
            raise InvalidReceiptError("not signed here")
        offset, attempt = map(int, rest.split("/"))
        one = shelf.messages.get(offset)
        if one is None:
            raise StaleReceiptError("the message is gone", is_gone=True)
        is_over = one.until_ms <= self.clock.wall_ms()
        if one.attempt == attempt and (may_be_late or may_be_older or not is_over):
            return one
        if may_be_older and is_over and one.attempt > attempt:
            return one
        raise StaleReceiptError("the lease is over")

    def acknowledge(
        self, queue: str, receipts: Sequence[str], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        shelf = self.shelf(queue)

        def act(one: Stored, at: int) -> None:
            del shelf.messages[one.offset]

        return self._each(shelf, receipts, act, may_be_late=may_be_late)

    def extend(
        self, queue: str, extensions: Sequence[Extension], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        def act(one: Stored, at: int) -> None:
            until_ms = self.clock.wall_ms() + extensions[at].lease_ms
            if until_ms - one.first_ms > LEASE_MS_MAX:
                raise InvalidRequestError("beyond 12 hours in total")
            one.until_ms = until_ms

        receipts = [extension.receipt for extension in extensions]
        return self._each(self.shelf(queue), receipts, act, may_be_older=may_be_late)

    def release(
        self, queue: str, releases: Sequence[Release], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        def act(one: Stored, at: int) -> None:
            one.until_ms = 0
            one.due_ms = self.clock.wall_ms() + (releases[at].delay_ms or 0)

        receipts = [release.receipt for release in releases]
        return self._each(self.shelf(queue), receipts, act, may_be_older=may_be_late)

    def _each(
        self, shelf: Shelf, receipts: Sequence[str], act: Any, **may_be: bool
    ) -> Promise[list[HeadraceError | None]]:
        outcomes: list[HeadraceError | None] = []
        for at, receipt in enumerate(receipts):
            try:
                act(self._held(shelf, receipt, **may_be), at)
                outcomes.append(None)
            except HeadraceError as error:
                outcomes.append(error)
        return kept(outcomes)

    def reject(self, queue: str, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]:
        raise NotImplementedError

    # Queues.

    def find(self, name: str) -> Queue:
        return self.shelf(name).queue

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.shelves if name.startswith(prefix))

    def describe(self, name: str) -> QueueDescription:
        shelf, now_ms = self.shelf(name), self.clock.wall_ms()
        leased = sum(one.until_ms > now_ms for one in shelf.messages.values())
        delayed = sum(one.due_ms > now_ms for one in shelf.messages.values())
        counts = QueueCounts(visible=len(shelf.messages) - leased - delayed, leased=leased, delayed=delayed)
        partition_count = max(shelf.partition_count, 1)
        return QueueDescription(queue=shelf.queue, partition_count=partition_count, durability="fsync", counts=counts)

    def describe_listed(self, name: str) -> QueueDescription:
        return self.describe(name)

    async def create(
        self,
        name: str,
        config: QueueConfig = DEFAULTS,
        *,
        partition_count: int = -1,
        durability: str | None = None,
        notes: Mapping[str, dict[str, Any]] = {},
        convert: bool = False,
    ) -> Queue:
        if self.create_errors:
            raise self.create_errors.pop(0)
        if name in self.shelves:
            raise QueueExistsError(f"{name} is there")
        now_ms = self.clock.wall_ms()
        id = UUID(int=uuid4().int)
        queue = Queue(
            name=name, topic_id=id, id=id, config=config, created_ms=now_ms, modified_ms=now_ms, notes=dict(notes)
        )
        self.shelves[name] = Shelf(queue, partition_count)
        return queue

    async def ensure(self, name: str) -> Queue:
        return self.find(name)

    async def update(
        self, name: str, config: NewConfig | None = None, *, notes: Mapping[str, dict[str, Any]] | None = None
    ) -> Queue:
        shelf = self.shelf(name)
        if self.changed_meanwhile is not None:
            shelf.queue = msgspec.structs.replace(shelf.queue, config=self.changed_meanwhile)
        new = config(shelf.queue.config) if callable(config) else config
        shelf.queue = msgspec.structs.replace(
            shelf.queue,
            config=new or shelf.queue.config,
            notes={**shelf.queue.notes, **(notes or {})},
            modified_ms=self.clock.wall_ms(),
        )
        return shelf.queue

    async def delete(self, name: str) -> None:
        del self.shelves[name]

    async def purge(self, name: str) -> int:
        if self.purge_error is not None:
            raise self.purge_error
        shelf = self.shelf(name)
        count = len(shelf.messages)
        shelf.messages.clear()
        return count

    # Looking.

    async def browse(
        self, name: str, *, state: MessageState | None = None, count_max: int = 10, after: str | None = None
    ) -> BrowsePage:
        raise NotImplementedError

    async def explain(self, name: str, *, id: str | None = None, key: bytes | None = None) -> Explanation:
        raise NotImplementedError

    # Dead letters.

    def dead_letter_sources(self, name: str) -> Sequence[str]:
        return sorted(other for other, shelf in self.shelves.items() if shelf.queue.dead_letter_name == name)

    async def redrive(
        self,
        name: str,
        *,
        target: str | None = None,
        filter: RedriveFilter = EVERYTHING,
        rate_per_second: int | None = None,
    ) -> Redrive:
        redrive = Redrive(
            id=f"redrive-{len(self.tasks.get(name, []))}",
            queue=name,
            target=target,
            filter=filter,
            rate_per_second=rate_per_second,
            state=RedriveState.RUNNING,
            moved=1,
            skipped=0,
            total=3,
            started_ms=self.clock.wall_ms(),
        )
        self.tasks.setdefault(name, []).insert(0, redrive)
        return redrive

    def redrives(self, name: str) -> Sequence[Redrive]:
        return self.tasks.get(name, [])

    async def cancel_redrive(self, name: str, id: str) -> Redrive:
        tasks = self.tasks.get(name, [])
        for at, redrive in enumerate(tasks):
            if redrive.id == id and redrive.state is RedriveState.RUNNING:
                tasks[at] = msgspec.structs.replace(redrive, state=RedriveState.CANCELLED)
                return tasks[at]
        raise UnknownRedriveError(f"no redrive {id} runs")

    # Named readers.

    async def move_reader(self, name: str, reader: str, positions: Mapping[int, int]) -> Reader:
        raise NotImplementedError

    def readers(self, name: str) -> Sequence[Reader]:
        return []

    async def remove_reader(self, name: str, reader: str) -> None:
        raise NotImplementedError
