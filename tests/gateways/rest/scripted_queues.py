"""Queues that answer as a test says, and note what they were asked: what REST makes of a request is seen by that."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from tests.support.queues import SendsOne, kept

from headrace.broker.promise import Promise
from headrace.broker.queue.port import (
    DEFAULTS,
    EVERYTHING,
    Browsed,
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
    QueueExistsError,
    TopicHasRecordsError,
    UnknownQueueError,
    UnknownRedriveError,
)
from headrace.model.message import Message, Received, Sent, message_id
from headrace.model.queue import Queue, QueueConfig


class ScriptedReceive:
    def __init__(self) -> None:
        self.promise: Promise[list[Received]] = Promise()
        self.cancelled = 0
        self.is_waiting = False

    def cancel(self) -> None:
        self.cancelled += 1


class ScriptedQueues(SendsOne):
    def __init__(self) -> None:
        self.queues: dict[str, Queue] = {}
        self.sent: list[Message] = []
        self.asked: list[Any] = []
        # The errors of the next entries, in their order; what is left over is done.
        self.errors: list[HeadraceError | None] = []
        self.messages: list[Received] = []
        self.waits = False
        self.receives: list[ScriptedReceive] = []
        self.browsed: list[Browsed] = []
        self.redriven: list[Redrive] = []
        self.moved: dict[str, Reader] = {}
        self.unconverted = ""  # a topic that holds records

    def _next_error(self) -> HeadraceError | None:
        return self.errors.pop(0) if self.errors else None

    # Messages.

    def send(
        self, queue: str, messages: Sequence[Message], *, request_id: str | None = None
    ) -> Promise[list[Sent | HeadraceError]]:
        if request_id is not None:
            self.asked.append(("send", request_id))
        outcomes: list[Sent | HeadraceError] = []
        for message in messages:
            error = self._next_error()
            if error is None:
                offset = len(self.sent)
                self.sent.append(message)
                outcomes.append(Sent(message_id(0, offset), 0, offset, False))
            else:
                outcomes.append(error)
        return kept(outcomes)

    def receive(
        self,
        queue: str,
        *,
        count_max: int,
        lease_ms: int | None = None,
        wait_ms: int = 0,
        attempt_id: str | None = None,
    ) -> ScriptedReceive:
        self.asked.append((queue, count_max, lease_ms, wait_ms, attempt_id))
        receive = ScriptedReceive()
        self.receives.append(receive)
        if not self.waits:
            receive.promise.keep(self.messages[:count_max])
        return receive

    def _done(self, what: str, queue: str, entries: Sequence[Any]) -> Promise[list[HeadraceError | None]]:
        self.asked.append((what, queue, list(entries)))
        return kept([self._next_error() for _ in entries])

    def acknowledge(
        self, queue: str, receipts: Sequence[str], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        assert not may_be_late, "REST refuses a lease that is over"
        return self._done("acknowledge", queue, receipts)

    def extend(
        self, queue: str, extensions: Sequence[Extension], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        return self._done("extend", queue, extensions)

    def release(
        self, queue: str, releases: Sequence[Release], *, may_be_late: bool = False
    ) -> Promise[list[HeadraceError | None]]:
        return self._done("release", queue, releases)

    def reject(self, queue: str, rejections: Sequence[Rejection]) -> Promise[list[HeadraceError | None]]:
        return self._done("reject", queue, rejections)

    # Queues.

    def find(self, name: str) -> Queue:
        if name not in self.queues:
            raise UnknownQueueError(f"there is no queue {name}; create it, or check the name")
        return self.queues[name]

    def names(self, prefix: str = "") -> Sequence[str]:
        return sorted(name for name in self.queues if name.startswith(prefix))

    def describe(self, name: str) -> QueueDescription:
        return QueueDescription(
            queue=self.find(name), partition_count=1, durability="fsync", counts=QueueCounts(visible=3, sent=3)
        )

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
        if name == self.unconverted and not convert:
            raise TopicHasRecordsError.of(f"{name} holds 3 records.")
        if name in self.queues:
            raise QueueExistsError(f"there is a queue {name} with another configuration; change it, or delete it first")
        self.asked.append(("create", partition_count, durability))
        queue = self.queues[name] = Queue(name=name, topic_id=UUID(int=1), id=UUID(int=2), config=config)
        return queue

    async def ensure(self, name: str) -> Queue:
        return self.queues.get(name) or await self.create(name)

    async def update(
        self, name: str, config: NewConfig | None = None, *, notes: Mapping[str, dict[str, Any]] | None = None
    ) -> Queue:
        old = self.find(name)
        new = config(old.config) if callable(config) else config
        queue = self.queues[name] = Queue(
            name=name, topic_id=old.topic_id, id=old.id, config=new or old.config, modified_ms=1
        )
        return queue

    async def delete(self, name: str) -> None:
        self.find(name)
        del self.queues[name]

    async def purge(self, name: str) -> int:
        self.find(name)
        return 3

    # Looking.

    async def browse(
        self, name: str, *, state: MessageState | None = None, count_max: int = 10, after: str | None = None
    ) -> BrowsePage:
        self.asked.append(("browse", name, state, count_max, after))
        return BrowsePage(messages=self.browsed, next="0-7")

    async def explain(self, name: str, *, id: str | None = None, key: bytes | None = None) -> Explanation:
        self.asked.append(("explain", id, key))
        return Explanation(
            state=MessageState.LEASED,
            text="message 0-1 is leased",
            id="0-1",
            partition=0,
            offset=1,
            attempt=1,
            since_ms=None,
            until_ms=5,
        )

    # Dead letters.

    def dead_letter_sources(self, name: str) -> Sequence[str]:
        return []

    async def redrive(
        self,
        name: str,
        *,
        target: str | None = None,
        filter: RedriveFilter = EVERYTHING,
        rate_per_second: int | None = None,
    ) -> Redrive:
        redrive = Redrive(
            id="r1",
            queue=name,
            target=target,
            filter=filter,
            rate_per_second=rate_per_second,
            state=RedriveState.RUNNING,
            moved=0,
            skipped=0,
            total=5,
            started_ms=1,
        )
        self.redriven.append(redrive)
        return redrive

    def redrives(self, name: str) -> Sequence[Redrive]:
        return self.redriven

    async def cancel_redrive(self, name: str, id: str) -> Redrive:
        for redrive in self.redriven:
            if redrive.id == id:
                return redrive
        raise UnknownRedriveError(f"there is no redrive {id}; list them")

    # Named readers.

    async def move_reader(self, name: str, reader: str, positions: Mapping[int, int]) -> Reader:
        self.moved[reader] = Reader(name=reader, positions=dict(positions))
        return self.moved[reader]

    def readers(self, name: str) -> Sequence[Reader]:
        return list(self.moved.values())

    async def remove_reader(self, name: str, reader: str) -> None:
        self.moved.pop(reader, None)
