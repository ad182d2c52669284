"""An internal topic whose partitions each hold one fold: made on first use, opened once, found by a name.

Groups and transactions live so. A partition that cannot be opened takes its own names with it and no others.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.model.errors import CoordinatorUnavailableError, HeadraceError, TopicExistsError

_logger = logging.getLogger(__name__)


class OpenShard(Protocol):
    def check_open(self) -> None:
        """Raise if its log can no longer be written."""


ShardType = TypeVar("ShardType", bound=OpenShard)


class InternalShards(ABC, Generic[ShardType]):
    def __init__(
        self, *, broker: Broker, topic: str, what: str, partition_count: int, settings: Mapping[str, str]
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._what = what  # what lives in it, in the plural
        self._partition_count = partition_count
        self._settings = settings
        self._shards: list[ShardType | HeadraceError] = []
        self._opening = asyncio.Lock()
        self._is_closed = False

    @abstractmethod
    def _place(self, name: str, count: int) -> int:
        """In which of so many partitions a name lives."""

    @abstractmethod
    async def _open_shard(self, partition: Partition) -> ShardType:
        """Restore the fold of one partition."""

    def __iter__(self) -> Iterator[ShardType]:
        """Those that are open."""
        return (shard for shard in self._shards if not isinstance(shard, HeadraceError))

    async def start(self) -> None:
        """Open what is there. Where nothing is, the first who needs it makes it."""
        if self._topic in self._broker.catalog.topics:
            await self._open()

    async def find(self, name: str) -> ShardType:
        """The shard in which a name lives."""
        if not self._shards:
            # To its end, though who asked may go: a shard that is opened twice would hear of everything twice.
            await self._broker.under_way.carry_out(self._open())
        shard = self.peek(name)
        assert shard is not None
        return shard

    def peek(self, name: str) -> ShardType | None:
        """The same, without making anything: None while nothing was ever made."""
        if not self._shards:
            return None
        shard = self._shards[self._place(name, len(self._shards))]
        if isinstance(shard, HeadraceError):
            raise CoordinatorUnavailableError(f"the {self._what} of this partition could not be opened: {shard}")
        shard.check_open()
        return shard

    async def _open(self) -> None:
        async with self._opening:
            if self._shards:
                return
            if self._is_closed:
                raise CoordinatorUnavailableError("the node is stopping; look for the coordinator again")
            try:
                await self._open_all()
            except HeadraceError as error:
                raise CoordinatorUnavailableError(f"{self._topic} cannot be opened: {error}") from error

    async def _open_all(self) -> None:
        if self._topic not in self._broker.catalog.topics:
            try:
                await self._broker.create_topic(
                    self._topic, partition_count=self._partition_count, overrides=self._settings, is_internal=True
                )
            except TopicExistsError:
                _logger.info("somebody else makes the internal topic", extra={"topic": self._topic})
        await self._broker.settled(self._topic)
        topic = self._broker.topic(self._topic)
        await self._broker.complete_topic(topic)  # an earlier attempt may have got no further than the metadata
        shards: list[ShardType | HeadraceError] = []
        for index in range(topic.partition_count):
            try:
                shards.append(await self._open_one(index))
            except HeadraceError as error:
                _logger.critical(
                    "an internal partition cannot be opened",
                    extra={"topic": self._topic, "partition": index, "error": str(error)},
                )
                shards.append(error)
        self._shards = shards

    async def _open_one(self, index: int) -> ShardType:
        partition = self._broker.partition(self._topic, index)
        try:
            return await self._open_shard(partition)
        except HeadraceError as error:
            partition.take_offline(error)  # which health tells
            raise

    def close(self) -> None:
        """Open nothing more: the node is stopping."""
        self._is_closed = True
