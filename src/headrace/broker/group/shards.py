"""The internal topic of groups on this node: made on first use, a shard for each of its partitions."""

import asyncio
import logging
from collections.abc import Iterator

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.shard import Shard
from headrace.broker.state_log import StateLog, restore_state
from headrace.folds.group.codec import encode_op
from headrace.folds.group.fold import GroupFold
from headrace.folds.group.op import GroupOp
from headrace.folds.group.state import FOLD_NAME
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import (
    CoordinatorUnavailableError,
    HeadraceError,
    InvalidGroupIdError,
    TopicExistsError,
)
from headrace.model.names import GROUPS_TOPIC

_logger = logging.getLogger(__name__)

# What a group has said must not be lost, and nothing but the fold's own snapshots says what may go.
_SETTINGS = {
    "headrace.durability": "fsync",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "segment.bytes": str(16 * 1024 * 1024),
}


def shard_index(group_id: str, count: int) -> int:
    """Where a group lives: Java's hash of its id, as Kafka has it, so that tools which reckon with it are right."""
    value = 0
    units = group_id.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        value = (31 * value + units[at] * 256 + units[at + 1]) & 0xFFFFFFFF
    signed = value - (1 << 32) if value >= 1 << 31 else value
    return 0 if signed == -(1 << 31) else abs(signed) % count


class Shards:
    def __init__(self, *, broker: Broker, logs: LogStore, clock: Clock, threads: Threads, config: GroupsConfig) -> None:
        self._broker = broker
        self._logs = logs
        self._clock = clock
        self._threads = threads
        self._config = config
        self._shards: list[Shard | HeadraceError] = []
        self._opening = asyncio.Lock()
        self._is_closed = False

    def __iter__(self) -> Iterator[Shard]:
        """Those that are open."""
        return (shard for shard in self._shards if isinstance(shard, Shard))

    async def start(self) -> None:
        """Open what is there. Where nothing is, the first group makes it."""
        if GROUPS_TOPIC in self._broker.catalog.topics:
            await self._open()

    async def find(self, group_id: str) -> Shard:
        """The shard of a group."""
        if not group_id:
            raise InvalidGroupIdError("a group must have an id; set group.id")
        if not self._shards:
            await self._open()
        return self._usable(self._shards[shard_index(group_id, len(self._shards))])

    def peek(self, group_id: str) -> Shard | None:
        """The same, without making anything: None while there are no groups at all."""
        if not self._shards:
            return None
        return self._usable(self._shards[shard_index(group_id, len(self._shards))])

    def _usable(self, shard: Shard | HeadraceError) -> Shard:
        if isinstance(shard, HeadraceError):
            raise CoordinatorUnavailableError(f"the groups of this partition could not be opened: {shard}")
        shard.check_open()
        return shard

    async def _open(self) -> None:
        async with self._opening:
            if self._shards:
                return
            if self._is_closed:
                raise CoordinatorUnavailableError("the node is stopping; look for the coordinator again")
            try:
                await self._open_now()
            except HeadraceError as error:
                raise CoordinatorUnavailableError(f"{GROUPS_TOPIC} cannot be opened: {error}") from error

    async def _open_now(self) -> None:
        if GROUPS_TOPIC not in self._broker.catalog.topics:
            try:
                await self._broker.create_topic(
                    GROUPS_TOPIC, partition_count=self._config.partitions, overrides=_SETTINGS
                )
            except TopicExistsError:
                await self._broker.settled(GROUPS_TOPIC)  # a client's curiosity was quicker
        await self._broker.settled(GROUPS_TOPIC)
        topic = self._broker.topic(GROUPS_TOPIC)
        await self._broker.complete_topic(topic)  # an earlier attempt may have got no further than the metadata
        shards: list[Shard | HeadraceError] = []
        for index in range(topic.partition_count):
            try:
                shards.append(await self._open_shard(index))
            except HeadraceError as error:
                # The groups of the other partitions are none the worse.
                _logger.critical("groups cannot be opened", extra={"partition": index, "error": str(error)})
                shards.append(error)
        self._shards = shards

    async def _open_shard(self, index: int) -> Shard:
        partition = self._broker.partition(GROUPS_TOPIC, index)
        fold = await restore_state(
            partition,
            name=FOLD_NAME,
            empty=GroupFold,
            restore=GroupFold.restore,
            store=self._logs,
            threads=self._threads,
        )
        log: StateLog[GroupFold, GroupOp] = StateLog(
            partition, fold, name=FOLD_NAME, clock=self._clock, encode=encode_op
        )
        return Shard(log, clock=self._clock, config=self._config)

    def close(self) -> None:
        self._is_closed = True
        for shard in self:
            shard.close()
