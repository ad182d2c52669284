"""What the coordinator reads of a member's metadata, which is otherwise the clients' own."""

from headrace.wire.kafka.primitives import MalformedError, Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's metadata; None where it cannot be read, and may be any."""
    try:
        reader = Reader(metadata)
        reader.int16()  # the version: every one begins with the topics
        return set(reader.string_array())
    except MalformedError:
        return None
