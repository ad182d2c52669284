"""How queues come to be: by name and configuration, on first use, and out of a topic that is there already.

A queue is a topic and a subscription of the same name, made in one transaction of the metadata. What would make a queue
of somebody's topic, or of one whose past is not whole, is refused.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from headrace.broker.broker import Broker
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.port import DEFAULTS
from headrace.broker.queue.registry import Registry
from headrace.cluster.catalog import Catalog
from headrace.cluster.queue_admin import QueueAdmin
from headrace.model.errors import (
    HeadraceError,
    InvalidConfigError,
    InvalidNameError,
    InvalidRequestError,
    NotAQueueError,
    QueueExistsError,
    TopicExistsError,
    TopicHasRecordsError,
    UnknownQueueError,
)
from headrace.model.names import INTERNAL_NAMES, check_topic_name
from headrace.model.queue import Guarantee, Queue, QueueConfig, check_queue_config
from headrace.model.setting import text_of
from headrace.model.topic import DAY_MS, DELETE, UNLIMITED, Topic
from headrace.model.topic_setting import CONFIG_KEYS

# The log must not drop by age what nobody has acknowledged: a queue's own retention writes down what it drops.
# A message of 1 MiB, which SQS allows, goes in with its headers and envelope. A queue hands out every message, so its
# topic is never compacted, whatever topics are by default.
_TOPIC_OVERRIDES = {
    "retention.ms": str(UNLIMITED),
    "max.message.bytes": str(1024 * 1024 + 64 * 1024),
    "cleanup.policy": DELETE,
}


class Creation:
    """Makes the queues of one node."""

    def __init__(
        self, *, broker: Broker, admin: QueueAdmin, catalog: Catalog, live: Registry, auto_create: bool
    ) -> None:
        self._broker = broker
        self._admin = admin
        self._catalog = catalog
        self._live = live
        self._auto_create = auto_create

    async def create(
        self,
        name: str,
        config: QueueConfig = DEFAULTS,
        *,
        partition_count: int = -1,
        durability: str | None = None,
        notes: Mapping[str, dict[str, Any]] = {},
        is_internal: bool = False,
        convert: bool = False,
    ) -> Queue:
        check_topic_name(name)
        if name in INTERNAL_NAMES:
            raise InvalidNameError(f"{name} is headrace's own; choose another name")
        check_queue_config(name, config)
        self.check_dead_letter(name, config)
        overrides = dict(_TOPIC_OVERRIDES)
        if durability is not None:
            overrides["headrace.durability"] = durability
        await self._broker.settled(name)
        if name in self._catalog.queues:
            await self._opened(name)
            raise QueueExistsError(f"queue {name} exists; change it, or choose another name")
        topic = self._catalog.topics.get(name)
        try:
            if topic is None:
                await self._broker.create_topic(
                    name,
                    partition_count=partition_count,
                    overrides=overrides,
                    beside=self._admin.draw(name, config, notes),
                    is_internal=is_internal,
                )
            else:
                if partition_count not in (-1, topic.partition_count):
                    raise InvalidRequestError(
                        f"topic {name} has {topic.partition_count} partitions already; leave the number out"
                    )
                self._check_whole(topic)
                if config.ordered:
                    self._check_vacant(topic)
                elif not convert and not topic.config.is_compacted:  # a compacted one is refused below
                    self._check_confirmed(topic, config, overrides)
                await self._admin.attach(topic, config, notes)
                await self._broker.alter_config(name, {**topic.overrides, **overrides})
        except TopicExistsError:
            await self._opened(name)
            raise QueueExistsError(f"queue {name} is being created or deleted; retry") from None
        await self._live.open(name)
        return self._live.queue(name)

    async def _opened(self, name: str) -> None:
        """Wait for who makes a queue at this moment: whoever is told that it exists may look at it."""
        with suppress(HeadraceError):
            await self._live.open(name)

    def _check_whole(self, topic: Topic) -> None:
        """A queue's state follows from all that was ever written, so nothing of that may have been compacted away."""
        for index in range(topic.partition_count):
            if self._broker.partition(topic.name, index).log.cleaned_entries and not topic.config.is_compacted:
                raise InvalidRequestError(
                    f"topic {topic.name} was compacted once, and messages are missing; choose another name"
                )

    def _check_vacant(self, topic: Topic) -> None:
        """Nobody has looked at the keys of what is there."""
        for index in range(topic.partition_count):
            partition = self._broker.partition(topic.name, index)
            if partition.start_offset < partition.end_offset:
                raise InvalidConfigError(
                    f"topic {topic.name} holds records, and only what is sent to an ordered queue is in order; delete "
                    "them and stop its producers first, leave out ordered, or choose another name"
                )

    def _check_confirmed(self, topic: Topic, config: QueueConfig, overrides: Mapping[str, str]) -> None:
        """Refuse a topic that holds records, and say what becoming a queue would change."""
        partitions = [self._broker.partition(topic.name, index) for index in range(topic.partition_count)]
        count = sum(partition.end_offset - partition.start_offset for partition in partitions)
        if not count:
            return
        retention = (
            "keeps it until then, however long that takes"
            if config.retention_ms is None
            else f"drops an unacknowledged one after {config.retention_ms / DAY_MS:g} days"
        )
        changes = [
            f"{key} from {text_of(getattr(topic.config, field))} to {value}"
            for key, value in overrides.items()
            if (field := CONFIG_KEYS[key].field) is not None and value != text_of(getattr(topic.config, field))
        ]
        settings = f" Its settings change: {', '.join(changes)}." if changes else ""
        raise TopicHasRecordsError.of(
            f"{topic.name} is a topic that holds {count} record{'s' * (count != 1)}, so nothing was changed. As a "
            "queue it hands out each record as a message, deletes a message once it is acknowledged, and "
            f"{retention}. Consumers that read the topic by offset then miss what was deleted.{settings}"
        )

    async def ensure_live(self, name: str) -> LiveQueue:
        if name not in self._catalog.queues:
            check_topic_name(name)
            await self.check_no_topic(name)
            if name not in self._catalog.queues:
                if not self._auto_create:
                    raise UnknownQueueError(
                        f"there is no queue {name}, and queues are not created on first use here; create it first"
                    )
                with suppress(QueueExistsError):  # somebody else was first
                    await self.create(name)
                await self._broker.settled(name)
        return await self._live.open(name)

    async def create_for_dead_letters(self, name: str, source: Queue) -> None:
        """Make a queue for what fails in another one: of its kind, as whoever named a FIFO queue in SQS expects."""
        await self.check_no_topic(name)
        config, partition_count = QueueConfig(max_deliveries=None), -1
        if source.config.ordered:
            is_exact = source.config.guarantee is Guarantee.EXACTLY_ONCE
            guarantee = Guarantee.EXACTLY_ONCE if is_exact else Guarantee.AT_LEAST_ONCE  # none gets lost
            config = QueueConfig(max_deliveries=None, ordered=True, guarantee=guarantee)
            topic = self._catalog.topics.get(source.name)
            partition_count = -1 if topic is None else topic.partition_count
        with suppress(QueueExistsError):
            await self.create(name, config, partition_count=partition_count, is_internal=True)

    async def check_no_topic(self, name: str) -> None:
        """Refuse what would make a queue of somebody's topic, which nobody has asked for."""
        if name in self._catalog.topics:
            await self._broker.settled(name)
        if name in self._catalog.topics and name not in self._catalog.queues:
            raise NotAQueueError.of(name)

    def check_dead_letter(self, queue: str, config: QueueConfig) -> None:
        """Refuse a dead-letter queue that is a topic and no queue, unless it is the one that is being made a queue."""
        name = config.dead_letter
        is_topic = name != queue and name in self._catalog.topics and name not in self._catalog.queues
        if name in INTERNAL_NAMES or is_topic:
            raise InvalidConfigError(f"dead_letter is {name}, which is a topic and not a queue; name a queue")
