"""The partitions of the internal topic that transactions live in: made on first use, opened once."""

import asyncio
import logging
from collections.abc import Iterator
from zlib import crc32

from headrace.broker.broker import Broker
from headrace.broker.state_log import StateLog, restore_state
from headrace.broker.transaction.config import TransactionsConfig
from headrace.broker.transaction.shard import Shard
from headrace.folds.transaction.codec import Op, encode_op
from headrace.folds.transaction.fold import FOLD_NAME, TransactionFold
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import CoordinatorUnavailableError, HeadraceError, TopicExistsError
from headrace.model.ids import Offset
from headrace.model.names import TRANSACTIONS_TOPIC
from headrace.model.topic import UNLIMITED

_logger = logging.getLogger(__name__)

# What is decided must outlast a crash whatever topics are told by default, and only the fold's snapshots let go of it.
_SETTINGS = {
    "headrace.durability": "fsync",
    "retention.ms": str(UNLIMITED),
    "retention.bytes": str(UNLIMITED),
    "cleanup.policy": "delete",
}


class Shards:
    def __init__(
        self, *, broker: Broker, logs: LogStore, clock: Clock, threads: Threads, config: TransactionsConfig
    ) -> None:
        self._broker = broker
        self._logs = logs
        self._clock = clock
        self._threads = threads
        self._config = config
        self._shards: list[Shard | HeadraceError] = []
        self._opening = asyncio.Lock()

    def __iter__(self) -> Iterator[Shard]:
        """Those that could be opened."""
        return (shard for shard in self._shards if isinstance(shard, Shard))

    async def start(self) -> None:
        """Open what is there. Where nothing is, the first transactional producer makes it."""
        if TRANSACTIONS_TOPIC in self._broker.catalog.topics:
            await self._open()

    async def find(self, transactional_id: str) -> Shard:
        if not self._shards:
            await self._open()
        shard = self.peek(transactional_id)
        assert shard is not None
        return shard

    def peek(self, transactional_id: str) -> Shard | None:
        """The same, without making anything: None while there are no transactions at all."""
        if not self._shards:
            return None
        shard = self._shards[crc32(transactional_id.encode()) % len(self._shards)]
        if isinstance(shard, HeadraceError):
            raise CoordinatorUnavailableError(f"the transactions of this partition could not be opened: {shard}")
        shard.check_open()
        return shard

    async def _open(self) -> None:
        async with self._opening:
            if self._shards:
                return
            try:
                await self._open_now()
            except HeadraceError as error:
                raise CoordinatorUnavailableError(f"{TRANSACTIONS_TOPIC} cannot be opened: {error}") from error

    async def _open_now(self) -> None:
        if TRANSACTIONS_TOPIC not in self._broker.catalog.topics:
            try:
                await self._broker.create_topic(
                    TRANSACTIONS_TOPIC, partition_count=self._config.partitions, overrides=_SETTINGS
                )
            except TopicExistsError:
                _logger.info("somebody else makes the internal topic", extra={"topic": TRANSACTIONS_TOPIC})
        await self._broker.settled(TRANSACTIONS_TOPIC)
        topic = self._broker.topic(TRANSACTIONS_TOPIC)
        await self._broker.complete_topic(topic)  # an earlier attempt may have got no further than the metadata
        shards: list[Shard | HeadraceError] = []
        for index in range(topic.partition_count):
            try:
                shards.append(await self._open_shard(index))
            except HeadraceError as error:
                # The transactions of the other partitions are none the worse.
                _logger.critical("transactions cannot be opened", extra={"partition": index, "error": str(error)})
                shards.append(error)
        self._shards = shards

    async def _open_shard(self, index: int) -> Shard:
        partition = self._broker.partition(TRANSACTIONS_TOPIC, index)
        fold = await restore_state(
            partition,
            name=FOLD_NAME,
            empty=_empty,
            restore=TransactionFold.restore,
            store=self._logs,
            threads=self._threads,
        )
        log: StateLog[TransactionFold, Op] = StateLog(
            partition, fold, name=FOLD_NAME, clock=self._clock, encode=encode_op
        )
        return Shard(log, clock=self._clock)


def _empty(end_offset: Offset) -> TransactionFold:
    return TransactionFold(end_offset=end_offset)
