"""The operations on whole queues: make, find, list, look at, change, purge, delete.

Purges and deletions of the last minute are remembered by this gateway alone: SQS spaces them out, and a node that has
just started has no reason to.
"""

import asyncio
from base64 import b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.broker.queue.port import Queues
from headrace.gateways.sqs.config import SqsConfig
from headrace.gateways.sqs.errors import with_topic
from headrace.gateways.sqs.pending import Caller
from headrace.gateways.sqs.place import Places, name_of_url
from headrace.gateways.sqs.policy import parse_redrive_allow_policy, parse_redrive_policy
from headrace.gateways.sqs.queue_attribute import (
    COMPUTED,
    SETTABLE,
    attributes_of,
    check_attributes,
    config_with,
    find_difference,
    new_config,
    notes_with,
)
from headrace.gateways.sqs.tag import check_tags
from headrace.gateways.sqs.view import ATTRIBUTES, NOTES, TAGS, Views, stored_attributes, stored_tags
from headrace.host.clock import Clock
from headrace.model.errors import QueueExistsError, UnknownQueueError, UnknownTopicError
from headrace.model.queue import Queue, QueueConfig
from headrace.wire.sqs.answer import NOTHING, Answer, QueueAttributes, QueueUrl, QueueUrls, SourceQueueUrls
from headrace.wire.sqs.check import RESULTS_MAX, check_max_results, check_queue_name
from headrace.wire.sqs.error import (
    ACCESS_DENIED,
    INVALID_ATTRIBUTE_NAME,
    INVALID_ATTRIBUTE_VALUE,
    INVALID_VALUE,
    PURGE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    QUEUE_NAME_EXISTS,
    UNSUPPORTED,
    SqsError,
    invalid,
    invalid_value,
    missing,
)
from headrace.wire.sqs.request import (
    CreateQueue,
    DeleteQueue,
    GetQueueAttributes,
    GetQueueUrl,
    ListDeadLetterSourceQueues,
    ListQueues,
    PurgeQueue,
    SetQueueAttributes,
)

_ANY_PARTITIONS = -1
_CREATE_TRIES = 3
_SHOWN_MAX = 200  # characters of an address in an error


class Administration:
    def __init__(
        self,
        queues: Queues,
        views: Views,
        places: Places,
        *,
        clock: Clock,
        config: SqsConfig,
        may_delete: bool,
        changing: asyncio.Lock,
    ) -> None:
        self._queues = queues
        self._views = views
        self._places = places
        self._may_delete = may_delete
        # Held from reading a queue's notes to writing them.
        self._changing = changing
        self._purged = Lately(clock, config.purge_interval_ms)
        self._deleted = Lately(clock, config.deleted_name_ms)

    async def create_queue(self, request: CreateQueue, caller: Caller) -> Answer:
        is_fifo = request.attributes.get("FifoQueue", "false").lower() == "true"
        name = check_queue_name(request.queue_name, is_fifo=is_fifo)
        attributes = check_attributes(request.attributes, is_fifo=is_fifo)
        check_tags(name, request.tags, request.tags)
        url = QueueUrl(queue_url=self._places.url(caller.host, name))
        if self._find(name) is None:
            if self._deleted.has(name):
                raise SqsError(
                    QUEUE_DELETED_RECENTLY,
                    "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
                )
            self._check_dead_letter_queue(name, attributes, is_fifo=is_fifo)
            notes = {ATTRIBUTES: notes_with({}, attributes), TAGS: dict(request.tags)}
            config = config_with(new_config(is_fifo=is_fifo), attributes)
            is_spread = not is_fifo or notes[ATTRIBUTES].get("FifoThroughputLimit") == "perMessageGroupId"
            # A FIFO queue has one order, and one partition for it, unless it asks for an order by group alone.
            if await self._make(name, config, _ANY_PARTITIONS if is_spread else 1, {NOTES: notes}):
                return url
        self._check_same(self._queues.find(name), attributes, is_fifo=is_fifo)
        return url

    async def _make(
        self, name: str, config: QueueConfig, partition_count: int, notes: Mapping[str, dict[str, Any]]
    ) -> bool:
        """Whether the queue was made now; otherwise somebody else was quicker."""
        tries_left = _CREATE_TRIES
        while True:
            tries_left -= 1
            try:
                await self._queues.create(name, config, partition_count=partition_count, notes=notes)
                return True
            except (UnknownQueueError, UnknownTopicError):
                # It was made, and somebody has deleted it since.
                return True
            except QueueExistsError:
                if self._find(name) is not None:
                    return False
                # One of this name was being deleted; now there is none.
                if not tries_left:
                    raise

    def _find(self, name: str) -> Queue | None:
        try:
            return self._queues.find(name)
        except UnknownQueueError:
            return None

    def _check_same(self, queue: Queue, attributes: Mapping[str, str], *, is_fifo: bool) -> None:
        different = "FifoQueue" if is_fifo != queue.config.ordered else None
        different = different or find_difference(queue, attributes, self._places)
        if different is not None:
            raise SqsError(
                QUEUE_NAME_EXISTS,
                f"A queue already exists with the same name and a different value for attribute {different}",
            )

    def _check_dead_letter_queue(self, name: str, attributes: Mapping[str, str], *, is_fifo: bool) -> None:
        policy = parse_redrive_policy(attributes.get("RedrivePolicy", ""))
        if policy is None:
            return

        def refuse(reason: str) -> SqsError:
            return invalid_value(attributes["RedrivePolicy"], "RedrivePolicy", reason)

        try:
            target = self._queues.find(policy.target)
        except UnknownQueueError as error:
            raise refuse(with_topic("Dead letter target does not exist.", error)) from None
        if target.config.ordered != is_fifo:
            raise refuse("Dead-letter queue must be same type of queue as the source.")
        allowed = parse_redrive_allow_policy(stored_attributes(target).get("RedriveAllowPolicy", "")).sources
        if allowed is not None and name not in allowed:
            raise refuse("The dead-letter queue's RedriveAllowPolicy does not allow this queue.")

    async def delete_queue(self, request: DeleteQueue, caller: Caller) -> Answer:
        name = self._views.of(name_of_url(request.queue_url)).name
        if not self._may_delete:
            shown = request.queue_url[:_SHOWN_MAX]
            raise SqsError(
                ACCESS_DENIED, f"Access to the resource {shown} is denied. Only administrators delete queues."
            )
        await self._queues.delete(name)
        self._deleted.note(name)
        return NOTHING

    async def purge_queue(self, request: PurgeQueue, caller: Caller) -> Answer:
        queue = self._views.of(name_of_url(request.queue_url)).queue
        # By the id: a queue that is made again under the name of a purged one was never purged.
        name, key = queue.name, queue.id.hex
        if self._purged.has(key):
            raise SqsError(PURGE_IN_PROGRESS, f"Only one PurgeQueue operation on {name} is allowed every 60 seconds.")
        self._purged.note(key)
        try:
            await self._queues.purge(name)
        except BaseException:
            # Nothing was dropped, and SDKs try again by themselves: they must not be told that it is being done.
            self._purged.forget(key)
            raise
        return NOTHING

    def get_queue_url(self, request: GetQueueUrl, caller: Caller) -> Answer:
        if not request.queue_name:
            raise invalid("QueueName", "Must specify a queue name.")
        return QueueUrl(queue_url=self._places.url(caller.host, self._queues.find(request.queue_name).name))

    def list_queues(self, request: ListQueues, caller: Caller) -> Answer:
        names = self._queues.names(request.queue_name_prefix)
        page, token = _page(names, request.next_token, request.max_results)
        urls = [self._places.url(caller.host, name) for name in page]
        return QueueUrls(queue_urls=urls or None, next_token=token)

    def list_dead_letter_source_queues(self, request: ListDeadLetterSourceQueues, caller: Caller) -> Answer:
        name = self._views.of(name_of_url(request.queue_url)).name
        page, token = _page(self._queues.dead_letter_sources(name), request.next_token, request.max_results)
        return SourceQueueUrls(queue_urls=[self._places.url(caller.host, name) for name in page], next_token=token)

    def get_queue_attributes(self, request: GetQueueAttributes, caller: Caller) -> Answer:
        queue = self._queues.find(name_of_url(request.queue_url))
        wanted = set(request.attribute_names)
        for name in wanted - {"All"}:
            if name not in SETTABLE and name not in COMPUTED:
                raise SqsError(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")
        if not wanted:
            return QueueAttributes()
        if "All" in wanted:
            wanted = {*SETTABLE, *COMPUTED}
        found = attributes_of(queue, self._places)
        found["QueueArn"] = self._places.arn(queue.name)
        found["CreatedTimestamp"] = str(queue.created_ms // 1000)
        found["LastModifiedTimestamp"] = str(queue.modified_ms // 1000)
        if any(name.startswith("Approximate") for name in wanted):
            counts = self._queues.describe(queue.name).counts
            found["ApproximateNumberOfMessages"] = str(counts.visible)
            found["ApproximateNumberOfMessagesDelayed"] = str(counts.delayed)
            found["ApproximateNumberOfMessagesNotVisible"] = str(counts.leased)
        return QueueAttributes(attributes={name: value for name, value in found.items() if name in wanted} or None)

    async def set_queue_attributes(self, request: SetQueueAttributes, caller: Caller) -> Answer:
        async with self._changing:
            queue = self._queues.find(name_of_url(request.queue_url))
            is_fifo = queue.config.ordered
            attributes = check_attributes(request.attributes, is_fifo=is_fifo)
            if not attributes:
                raise missing("Attribute.Name")
            if attributes.get("FifoQueue") == "false":
                raise SqsError(
                    INVALID_ATTRIBUTE_VALUE,
                    "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported.",
                )
            self._check_dead_letter_queue(queue.name, attributes, is_fifo=is_fifo)
            self._check_scope(queue, attributes)
            notes = {
                ATTRIBUTES: notes_with(stored_attributes(queue), attributes),
                TAGS: stored_tags(queue),
            }
            # Somebody else may be changing the rest of it, through REST.
            await self._queues.update(queue.name, lambda old: config_with(old, attributes), notes={NOTES: notes})
        return NOTHING

    def _check_scope(self, queue: Queue, attributes: Mapping[str, str]) -> None:
        """Ids are looked up in the partition of their group, so a queue of several knows none of the others' ids."""
        if attributes.get("DeduplicationScope") != "queue":
            return
        count = self._queues.describe(queue.name).partition_count
        if count > 1:
            raise SqsError(
                UNSUPPORTED,
                f"{queue.name} was created with FifoThroughputLimit=perMessageGroupId, and so its DeduplicationScope "
                "stays messageGroup. Create a new queue for another scope.",
            )


class Lately:
    """Names that something was done to within a span of time."""

    def __init__(self, clock: Clock, span_ms: int) -> None:
        self._clock = clock
        self._span_ms = span_ms
        self._until_ms: dict[str, int] = {}  # in the order of time

    def note(self, name: str) -> None:
        now_ms = self._clock.monotonic_ms()
        self._until_ms.pop(name, None)
        self._until_ms[name] = now_ms + self._span_ms
        while (oldest := next(iter(self._until_ms))) != name and self._until_ms[oldest] <= now_ms:
            del self._until_ms[oldest]

    def forget(self, name: str) -> None:
        self._until_ms.pop(name, None)

    def has(self, name: str) -> bool:
        return self._until_ms.get(name, 0) > self._clock.monotonic_ms()


def _page(names: Sequence[str], token: str | None, count_max: int | None) -> tuple[Sequence[str], str | None]:
    """A page of sorted names, and what to ask for the next one. Without a limit SQS gives a thousand and no token."""
    check_max_results(count_max, RESULTS_MAX)
    start = bisect_right(names, _name_of_token(token)) if token else 0
    page = names[start : start + (count_max or RESULTS_MAX)]
    is_last = count_max is None or start + count_max >= len(names)
    return page, None if is_last or not page else urlsafe_b64encode(page[-1].encode()).decode()


def _name_of_token(token: str) -> str:
    try:
        return b64decode(token, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise SqsError(INVALID_VALUE, "Invalid or expired next token.") from None
