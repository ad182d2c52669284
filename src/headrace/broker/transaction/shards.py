"""The partitions of the internal topic that transactions live in: made on first use, opened once."""

from zlib import crc32

from headrace.broker.broker import Broker
from headrace.broker.partition import Partition
from headrace.broker.shards import InternalShards
from headrace.broker.state_log import StateLog, restore_state
from headrace.broker.transaction.config import TransactionsConfig
from headrace.broker.transaction.shard import Shard
from headrace.folds.transaction.codec import Op, encode_op
from headrace.folds.transaction.fold import FOLD_NAME, TransactionFold
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.ids import Offset
from headrace.model.names import TRANSACTIONS_TOPIC
from headrace.model.topic import UNLIMITED

# What is decided must outlast a crash whatever topics are told by default, and only the fold's snapshots let go of it.
_SETTINGS = {
    "headrace.durability": "fsync",
    "retention.ms": str(UNLIMITED),
    "retention.bytes": str(UNLIMITED),
    "cleanup.policy": "delete",
}


class Shards(InternalShards[Shard]):
    def __init__(
        self, *, broker: Broker, logs: LogStore, clock: Clock, threads: Threads, config: TransactionsConfig
    ) -> None:
        super().__init__(
            broker=broker,
            topic=TRANSACTIONS_TOPIC,
            what="transactions",
            partition_count=config.partitions,
            settings=_SETTINGS,
        )
        self._logs = logs
        self._clock = clock
        self._threads = threads

    def _place(self, name: str, count: int) -> int:
        return crc32(name.encode()) % count

    async def _open_shard(self, partition: Partition) -> Shard:
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
