"""Which entries of a partition are committed. Pure: a rule looks at offsets and answers with one."""

from collections.abc import Callable

from headrace.model.ids import Offset
from headrace.model.topic import Durability

# Of the topic's durability, what is durable on this node, and where its log ends.
CommitRule = Callable[[Durability, Offset, Offset], Offset]


def alone(durability: Durability, durable: Offset, end: Offset) -> Offset:
    """The rule of a node without replicas: an entry is committed once it is as safe as its topic asks for."""
    return durable if durability is Durability.FSYNC else end
