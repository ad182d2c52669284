"""Which partition a message goes to: by its key as Kafka's Java client does it, so that all clients agree on a key."""

from headrace.host.rand import Rand

_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """Austin Appleby's MurmurHash2, 32 bits, with Kafka's seed, unsigned."""
    length = len(data)
    state = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        word = (word ^ word >> 24) * _M & _MASK
        state = (state * _M & _MASK) ^ word
    if length & 3:
        state = (state ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    state = (state ^ state >> 13) * _M & _MASK
    return state ^ state >> 15


def partition_for_key(key: bytes, partition_count: int) -> int:
    return (murmur2(key) & _POSITIVE) % partition_count


class Partitioner:
    """Keys by hash; messages without a key stay on one partition for a batch and then move on, so that batches fill."""

    def __init__(self, rand: Rand) -> None:
        self._rand = rand
        self._sticky: dict[str, int] = {}

    def choose(self, topic: str, key: bytes | None, partition_count: int) -> int:
        if key is not None:
            return partition_for_key(key, partition_count)
        partition = self._sticky.get(topic)
        if partition is None:
            # Where a client begins is left to chance, so that many do not begin at one place; then it goes round.
            partition = self._sticky[topic] = int(self._rand.uniform(0, partition_count))
        return partition % partition_count

    def batch_filled(self, topic: str) -> None:
        """A batch of messages without keys is full: the next one goes elsewhere."""
        partition = self._sticky.get(topic)
        if partition is not None:
            self._sticky[topic] = partition + 1
