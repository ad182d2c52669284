"""The consumers' own protocol inside the classic one: what members say with a join, and what a sync gives them.

A classic group passes both on unread, but for the topics. The coordinator reads and writes them where members of the
classic protocol are in a consumer group (`consumer_classic.py`).
"""

from collections.abc import Iterable
from typing import NamedTuple

from headrace.wire.kafka.messages import consumer_protocol_assignment, consumer_protocol_subscription
from headrace.wire.kafka.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from headrace.wire.kafka.primitives import INT16, MalformedError, Reader, Writer

CONSUMER_PROTOCOL_TYPE = "consumer"
_VERSION_MAX = 3
# The clients' own assignors. What librdkafka's put into an assignment beside the partitions has no reader.
_ASSIGNORS = frozenset({"range", "roundrobin", "sticky", "cooperative-sticky"})
_ASSIGNMENT_VERSION = 0  # every client reads it; later versions are the same

NamedPartition = tuple[str, int]


class Subscription(NamedTuple):
    topics: tuple[str, ...]
    owned: tuple[NamedPartition, ...]  # what the member still reads; nothing for one that stops before it joins
    rack_id: str | None


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's metadata; None where it cannot be read, and may be any."""
    try:
        reader = Reader(metadata)
        reader.int16()  # the version: every one begins with the topics
        return set(reader.string_array())
    except MalformedError:
        return None


def read_subscription(metadata: bytes) -> Subscription | None:
    """What a consumer says of itself when it joins; None where it cannot be read."""
    try:
        reader = Reader(metadata)
        version = reader.int16()
        found = consumer_protocol_subscription.read_data(reader, min(version, _VERSION_MAX))
    except MalformedError:
        return None
    owned = tuple((one.topic, index) for one in found.owned_partitions for index in one.partitions)
    return Subscription(found.topics, owned, found.rack_id)


def read_assignment(data: bytes, assignor: str) -> tuple[NamedPartition, ...] | None:
    """The partitions that a leader gave a member; None where the coordinator cannot give the like.

    That is where they cannot be read, and where an assignor of the users' own has put more into it.
    """
    if not data:
        return ()
    try:
        reader = Reader(data)
        version = reader.int16()
        found = consumer_protocol_assignment.read_data(reader, min(version, _VERSION_MAX))
    except MalformedError:
        return None
    if found.user_data and assignor not in _ASSIGNORS:
        return None
    return tuple((one.topic, index) for one in found.assigned_partitions for index in one.partitions)


def write_assignment(partitions: Iterable[NamedPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    assigned = tuple(TopicPartition(topic, tuple(indexes)) for topic, indexes in topics.items())
    writer = Writer()
    writer.put(INT16.pack(_ASSIGNMENT_VERSION))
    consumer_protocol_assignment.write_data(writer, ConsumerProtocolAssignment(assigned, b""), _ASSIGNMENT_VERSION)
    return writer.getvalue()
