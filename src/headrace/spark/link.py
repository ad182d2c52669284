"""A cluster, for code without an event loop: what the driver asks before it plans.

The questions are the stream client's; the loop that asks them runs in a thread of its own. Nothing here is kept in
something that is pickled: a link is made where it is used.
"""

import asyncio
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from headrace.client.admin import Admin
from headrace.client.errors import UnreachableError
from headrace.client.fetcher import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Fetcher
from headrace.client.portal import BackgroundLoop
from headrace.client.router import ClientConfig, Router
from headrace.client.values import TopicInfo, TopicPartition
from headrace.host.clock import SystemClock
from headrace.host.rand import SystemRand
from headrace.host.transport import TcpTransport
from headrace.model.address import parse_address
from headrace.model.errors import UnknownTopicError

_NO_OFFSET = -1
# Enough to see whether there is a message: a node sends at least one whole batch.
_GLANCE_BYTES = 64 * 1024


def no_answer(servers: str) -> UnreachableError:
    """With advice for who writes DataFrames: the client's own is for the command line."""
    return UnreachableError(
        f"no node answers at {servers}; is one running there? "
        "name a node's Kafka address with the option kafka.bootstrap.servers"
    )


class Link:
    """Open until it is closed; use it as a context manager, or keep it as long as the process."""

    def __init__(self, servers: str, config: ClientConfig, *, waits: bool = False) -> None:
        self._servers = servers
        self._waits = waits
        self._loop = BackgroundLoop(name="headrace-link")
        self._router = Router(
            [parse_address(server) for server in servers.split(",")],
            config,
            clock=SystemClock(),
            rand=SystemRand(),
            transport=TcpTransport(),
        )
        self._fetcher = Fetcher(self._router)
        self._admin = Admin(self._router)

    def connect(self) -> None:
        """Reach one of the servers, without a retry: whoever begins with a wrong address should hear of it at once.

        One that `waits` knows that the address is right, and gives a node that restarts the time for it.
        """
        try:
            self._loop.run(self._router.reach(waits=self._waits))
        except UnreachableError:
            raise no_answer(self._servers) from None

    def __enter__(self) -> Self:
        try:
            self.connect()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._loop.run(self._router.close())
        self._loop.close()

    # Topics.

    def topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of the topics that there are now."""
        return self._loop.run(self._topics(list(names)))

    async def _topics(self, names: list[str]) -> dict[str, TopicInfo]:
        async def find(name: str) -> TopicInfo | None:
            try:
                return (await self._router.refresh((name,), deadline))[0]
            except UnknownTopicError:
                return None

        async def attempt() -> list[TopicInfo | None]:
            return await asyncio.gather(*(find(name) for name in names))

        deadline = self._router.deadline()
        return {topic.name: topic for topic in await self._router.retrying(names, attempt, deadline) if topic}

    def all_topics(self) -> list[TopicInfo]:
        """Every topic but headrace's own."""
        return [topic for topic in self._loop.run(self._admin.list_topics()) if not topic.is_internal]

    def topic_setting(self, topic: str, name: str) -> str | None:
        entries = self._loop.run(self._admin.describe_config(topic, (name,)))
        return next((entry.value for entry in entries if entry.name == name), None)

    def is_queue(self, topic: str) -> bool | None:
        """Whether a topic is a queue; None where there is no such topic, or its broker does not say."""
        try:
            said = self.topic_setting(topic, "headrace.queue")
        except UnknownTopicError:
            return None
        return None if said is None else said == "true"

    # Offsets.

    def start_offsets(self, ats: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that each partition still has."""
        return self._offsets(dict.fromkeys(ats, EARLIEST))

    def end_offsets(self, ats: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset up to which each partition can be read now."""
        isolation = READ_COMMITTED if committed else READ_UNCOMMITTED
        return self._offsets(dict.fromkeys(ats, LATEST), isolation=isolation)

    def offsets_for_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset at or after each partition's time; None where there is none yet."""
        found = self._offsets(times_ms)
        return {at: None if offset == _NO_OFFSET else offset for at, offset in found.items()}

    def _offsets(
        self, questions: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        found = self._loop.run(self._fetcher.list_offsets(questions, isolation=isolation))
        return {at: located.offset for at, located in found.items()}

    # Messages.

    def wait(self, positions: Mapping[TopicPartition, int], wait_ms: int) -> None:
        """Until something is at one of the positions, or the time is over."""
        if positions:
            self._loop.run(self._fetcher.fetch(positions, wait_ms=wait_ms, bytes_min=1, bytes_max=_GLANCE_BYTES))

    def first_message(self, at: TopicPartition, position: int, end: int) -> int:
        """The first offset from a position on that has a message and no control entry; `end` where there is none."""
        while position < end:
            fetching = self._fetcher.fetch({at: position}, wait_ms=0, bytes_min=1, bytes_max=_GLANCE_BYTES)
            (fetched,) = self._loop.run(fetching)
            if fetched.messages:
                return min(fetched.messages[0].offset, end)
            if fetched.next_offset <= position:
                return end
            position = fetched.next_offset
        return end
