"""Which assignor a classic group uses, and which topics its members read."""

from collections import Counter
from collections.abc import Collection

from headrace.folds.group.member import Member
from headrace.wire.kafka.primitives import MalformedError, Reader

CONSUMER_PROTOCOL_TYPE = "consumer"


def candidates(members: Collection[Member]) -> set[str]:
    """Protocols that every member knows."""
    counts = Counter(name for member in members for name in {name for name, _ in member.protocols})
    return {name for name, count in counts.items() if count == len(members)}


def choose(members: Collection[Member]) -> str:
    """Each member votes for the first of its own that all know. A tie goes to the one that was voted for first."""
    known = candidates(members)
    assert known, "members that have nothing in common are not let in"
    votes = Counter(next(name for name, _ in member.protocols if name in known) for member in members)
    return votes.most_common(1)[0][0]


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """The topics in a consumer's metadata; None where it cannot be read, and may be any."""
    try:
        reader = Reader(metadata)
        reader.int16()  # the version: every one begins with the topics
        return set(reader.string_array())
    except MalformedError:
        return None
