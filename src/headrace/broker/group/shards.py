"""The internal topic of groups on this node: made on first use, a shard for each of its partitions."""

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.shard import Shard
from headrace.broker.partition import Partition
from headrace.broker.shards import InternalShards
from headrace.broker.state_log import StateLog, restore_state
from headrace.folds.group.codec import encode_op
from headrace.folds.group.consumer_topics import KnownTopic, TopicView
from headrace.folds.group.fold import GroupFold
from headrace.folds.group.op import GroupOp
from headrace.folds.group.state import FOLD_NAME
from headrace.host.clock import Clock
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import InvalidGroupIdError
from headrace.model.names import GROUPS_TOPIC, INTERNAL_NAMES

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


def check_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("a group must have an id; set group.id")


class Shards(InternalShards[Shard]):
    def __init__(self, *, broker: Broker, logs: LogStore, clock: Clock, threads: Threads, config: GroupsConfig) -> None:
        super().__init__(
            broker=broker,
            topic=GROUPS_TOPIC,
            what="groups",
            partition_count=config.partitions,
            settings=_SETTINGS,
        )
        self._logs = logs
        self._clock = clock
        self._threads = threads
        self._config = config
        self._broker = broker
        self._view = TopicView(-1, {})

    async def find(self, name: str) -> Shard:
        """The shard of a group."""
        check_group_id(name)
        return await super().find(name)

    def _place(self, name: str, count: int) -> int:
        return shard_index(name, count)

    async def _open_shard(self, partition: Partition) -> Shard:
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
        return Shard(log, clock=self._clock, config=self._config, view=self.topics)

    def topics(self) -> TopicView:
        """The topics that groups may read."""
        catalog = self._broker.catalog
        if self._view.revision != catalog.revision:
            topics = {
                name: KnownTopic(topic.id, topic.partition_count)
                for name, topic in catalog.topics.items()
                if name not in INTERNAL_NAMES
            }
            self._view = TopicView(catalog.revision, topics)
        return self._view

    def close(self) -> None:
        super().close()
        for shard in self:
            shard.close()
