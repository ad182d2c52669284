"""Which partition a row goes to, for many rows at once.

By its key as Kafka's Java client does it (`client/partitioner.py` has the same for one key), so that rows of a key are
where other producers put them; for a queue as a send over HTTP does it. The node has no part in it: whoever wants the
messages of a key in order must use one way for all of them.
"""

from zlib import crc32

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.client.partitioner import murmur2

Partitions = npt.NDArray[np.int64]

NOWHERE = -1

_M = np.uint32(0x5BD1E995)
_SEED = 0x9747B28C
_POSITIVE = 0x7FFFFFFF
# Above this a key is hashed by itself: the loop over the words of all keys would go on for one of them.
_KEY_BYTES_MAX = 1024


def partitions_by_key(keys: pa.Array, partition_count: int) -> Partitions:
    """For each key its partition, and NOWHERE where it is null."""
    if keys.null_count == len(keys):
        return np.full(len(keys), NOWHERE, dtype=np.int64)
    places = (murmur2_all(keys).astype(np.int64) & _POSITIVE) % partition_count
    return _without_nulls(places, keys)


def partitions_of_queue(keys: pa.Array, partition_count: int) -> Partitions:
    """The same for a queue. Its deduplication ids are keys where a message has none."""
    places = [NOWHERE if key is None else crc32(key) % partition_count for key in keys.to_pylist()]
    return np.array(places, dtype=np.int64)


def murmur2_all(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """MurmurHash2 with Kafka's seed of each key of a binary array; anything where it is null."""
    starts, data = _bytes_of(keys)
    lengths = np.diff(starts)
    starts = starts[:-1]
    state = (_SEED ^ lengths).astype(np.uint32)
    is_short = lengths <= _KEY_BYTES_MAX
    words = np.where(is_short, lengths // 4, 0)
    for at in range(int(words.max(initial=0))):
        rows = np.flatnonzero(words > at)
        state[rows] = state[rows] * _M ^ _mixed(_word(data, starts[rows] + 4 * at))
    _mix_rest(state, data, starts, lengths)
    state ^= state >> np.uint32(13)
    state *= _M
    state ^= state >> np.uint32(15)
    for row in np.flatnonzero(~is_short):
        state[row] = murmur2(data[starts[row] : starts[row] + lengths[row]].tobytes())
    return state


def _bytes_of(keys: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """Where each key begins, and the bytes of all. A null has no bytes, or some that do not matter."""
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, dtype=np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return starts, np.frombuffer(data if data is not None else b"", dtype=np.uint8)


def _word(data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64]) -> npt.NDArray[np.uint32]:
    word = data[at].astype(np.uint32)
    for byte in (1, 2, 3):
        word |= data[at + byte].astype(np.uint32) << np.uint32(8 * byte)
    return word


def _mixed(word: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    word = word * _M
    return (word ^ word >> np.uint32(24)) * _M


def _mix_rest(
    state: npt.NDArray[np.uint32],
    data: npt.NDArray[np.uint8],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> None:
    """The one to three bytes after the last whole word, the last first."""
    for byte in (2, 1, 0):
        rows = np.flatnonzero(lengths % 4 > byte)
        state[rows] ^= data[starts[rows] + lengths[rows] // 4 * 4 + byte].astype(np.uint32) << np.uint32(8 * byte)
    rows = np.flatnonzero(lengths % 4 > 0)
    state[rows] *= _M


def _without_nulls(places: Partitions, keys: pa.Array) -> Partitions:
    if keys.null_count:
        places[pc.is_null(keys).to_numpy(zero_copy_only=False)] = NOWHERE
    return places
