"""A queue as SQS's clients see it: worked out once for each version of its configuration, since every message asks."""

from typing import NamedTuple

from headrace.broker.queue.port import Queues
from headrace.gateways.sqs.message_id import MessageIds
from headrace.model.errors import UnknownQueueError
from headrace.model.queue import Deduplication, Guarantee, Queue
from headrace.wire.sqs.check import MESSAGE_BYTES_MAX

NOTES = "sqs"  # our key in a queue's notes
ATTRIBUTES, TAGS = "attributes", "tags"


class QueueView(NamedTuple):
    queue: Queue
    ids: MessageIds
    name: str
    is_fifo: bool
    has_content_deduplication: bool
    # Deduplication ids count within a message group, not within the queue.
    is_deduplicated_by_group: bool
    # Nothing is leased: a message is acknowledged when it is handed out.
    is_at_most_once: bool
    message_bytes_max: int
    wait_ms: int  # of a receive that says nothing


def stored_attributes(queue: Queue) -> dict[str, str]:
    """Attributes that the queue itself does not have, as they were set."""
    found: dict[str, str] = queue.notes.get(NOTES, {}).get(ATTRIBUTES, {})
    return found


def stored_tags(queue: Queue) -> dict[str, str]:
    found: dict[str, str] = queue.notes.get(NOTES, {}).get(TAGS, {})
    return found


def view_of(queue: Queue) -> QueueView:
    attributes, config = stored_attributes(queue), queue.config
    return QueueView(
        queue=queue,
        ids=MessageIds(queue.id),
        name=queue.name,
        is_fifo=config.ordered,
        has_content_deduplication=config.deduplication is Deduplication.CONTENT,
        is_deduplicated_by_group=attributes.get("DeduplicationScope") == "messageGroup",
        is_at_most_once=config.guarantee is Guarantee.AT_MOST_ONCE,
        message_bytes_max=int(attributes.get("MaximumMessageSize", MESSAGE_BYTES_MAX)),
        wait_ms=int(attributes.get("ReceiveMessageWaitTimeSeconds", 0)) * 1000,
    )


class Views:
    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._views: dict[str, QueueView] = {}

    def of(self, name: str) -> QueueView:
        """UnknownQueueError where there is none."""
        try:
            queue = self._queues.find(name)
        except UnknownQueueError:
            self._views.pop(name, None)
            raise
        view = self._views.get(name)
        if view is None or view.queue is not queue:
            view = self._views[name] = view_of(queue)
        return view
