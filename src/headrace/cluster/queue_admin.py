"""Writes to the metadata of queues, by the rules of `admin.py`: read, decide, compare, and look for one's own write."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from headrace.cluster.admin import Admin
from headrace.cluster.catalog import Catalog
from headrace.cluster.record import (
    ReceiptKeyRecord,
    RedrivesRecord,
    SubscriptionRecord,
    decode,
    encode,
    queue_of,
    subscription_of,
)
from headrace.cluster.retry import retried
from headrace.cluster.store import ABSENT, Item, Revision, Store
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.model.errors import InvalidConfigError, QueueExistsError, UnknownQueueError
from headrace.model.queue import Queue, QueueConfig, check_queue_config
from headrace.model.topic import Topic

_RECEIPT_KEY_SIZE = 32

T = TypeVar("T")
Notes = Mapping[str, dict[str, Any]]


class QueueAdmin:
    """Changes the metadata of queues on behalf of one node."""

    def __init__(self, *, admin: Admin, store: Store, catalog: Catalog, clock: Clock, rand: Rand) -> None:
        self._admin = admin
        self._store = store
        self._catalog = catalog
        self._keys = catalog.keys
        self._clock = clock
        self._rand = rand

    def draw(self, name: str, config: QueueConfig, notes: Notes) -> Callable[[Topic], Mapping[str, bytes]]:
        """What to write beside a new topic so that it is a queue from its first moment on."""
        check_queue_config(name, config)
        id = self._rand.uuid()
        now_ms = self._clock.wall_ms()

        def beside(topic: Topic) -> Mapping[str, bytes]:
            queue = Queue(
                name=name,
                topic_id=topic.id,
                id=id,
                config=config,
                created_ms=now_ms,
                modified_ms=now_ms,
                notes=dict(notes),
            )
            return {self._keys.subscription(name): encode(subscription_of(queue))}

        return beside

    async def attach(self, topic: Topic, config: QueueConfig, notes: Notes) -> Queue:
        """Make a queue of a topic that exists."""
        ((key, value),) = self.draw(topic.name, config, notes)(topic).items()
        ours = decode(key, value, SubscriptionRecord)

        async def attempt() -> Revision:
            item = await self._store.get(key)
            if item is not None:
                if decode(key, item.value, SubscriptionRecord).uuid == ours.uuid:
                    return item.mod_revision  # an earlier attempt was carried out after all
                raise QueueExistsError(f"queue {topic.name} exists; change it, or choose another name")
            found = await self._admin.read_topic(topic.name)
            if found.topic.config.is_compacted:
                raise InvalidConfigError(
                    f"topic {topic.name} is compacted, so messages would be dropped that nobody has received; "
                    "set its cleanup.policy to delete first, or choose another name"
                )
            return await self._store.transact(compares={key: ABSENT, found.key: found.revision}, puts={key: value})

        await self._catalog.reached(await self._retried(attempt))
        return queue_of(key, topic.name, ours)

    async def change(self, name: str, config: QueueConfig | None, notes: Notes | None) -> Queue:
        """Replace a queue's configuration, or the notes of the gateways that are named."""
        key = self._keys.subscription(name)
        if config is not None:
            check_queue_config(name, config)

        async def attempt() -> tuple[Revision, Queue]:
            item, queue = await self._read(name)
            changed = msgspec.structs.replace(
                queue,
                config=queue.config if config is None else config,
                notes=queue.notes if notes is None else {**queue.notes, **notes},
            )
            if changed == queue:
                return item.mod_revision, queue
            changed = msgspec.structs.replace(changed, modified_ms=self._clock.wall_ms())
            puts = {key: encode(subscription_of(changed))}
            return await self._store.transact(compares={key: item.mod_revision}, puts=puts), changed

        revision, queue = await self._retried(attempt)
        await self._catalog.reached(revision)
        return queue

    async def save_redrives(self, queue: str, redrives: list[dict[str, Any]]) -> None:
        key = self._keys.redrives_of(queue)
        puts = {key: encode(RedrivesRecord(redrives=redrives))}
        await self._retried(lambda: self._store.transact(puts=puts))

    async def redrives(self) -> dict[str, list[dict[str, Any]]]:
        """What was saved, by queue."""
        listing = await self._retried(lambda: self._store.list(self._keys.redrives))
        return {
            item.key.removeprefix(self._keys.redrives): decode(item.key, item.value, RedrivesRecord).redrives
            for item in listing.items
        }

    async def receipt_key(self) -> bytes:
        """The secret of the cluster's receipts; drawn by whoever asks first, the same for ever after."""
        key = self._keys.receipt_key

        async def attempt() -> bytes:
            item = await self._store.get(key)
            if item is not None:
                return decode(key, item.value, ReceiptKeyRecord).key
            drawn = self._rand.bytes(_RECEIPT_KEY_SIZE)
            await self._store.transact(compares={key: ABSENT}, puts={key: encode(ReceiptKeyRecord(key=drawn))})
            return drawn

        return await self._retried(attempt)

    async def _read(self, name: str) -> tuple[Item, Queue]:
        key = self._keys.subscription(name)
        item = await self._store.get(key)
        if item is None:
            raise UnknownQueueError(f"there is no queue {name}; create it first")
        return item, queue_of(key, name, decode(key, item.value, SubscriptionRecord))

    async def _retried(self, attempt: Callable[[], Awaitable[T]]) -> T:
        return await retried(attempt, clock=self._clock, rand=self._rand)
