"""Where rows go: the same partitions as other clients choose, many at once."""

from zlib import crc32

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.client.partitioner import murmur2, partition_for_key
from headrace.spark.sink.place import NOWHERE, murmur2_all, partitions_by_key, partitions_of_queue

KEYS = st.lists(st.none() | st.binary(max_size=40) | st.binary(min_size=1020, max_size=1030), max_size=30)


@settings(deadline=None)
@given(KEYS, st.integers(0, 5))
def test_every_key_is_hashed_as_by_itself(keys: list[bytes | None], skipped: int) -> None:
    array = pa.array(keys, pa.binary())[skipped:]
    hashes = murmur2_all(array)
    for key, found in zip(keys[skipped:], hashes.tolist(), strict=True):
        assert key is None or murmur2(key) == found


@settings(deadline=None)
@given(KEYS, st.integers(1, 50))
def test_rows_of_a_key_go_where_other_producers_put_them(keys: list[bytes | None], count: int) -> None:
    array = pa.array(keys, pa.binary())
    by_kafka = [NOWHERE if key is None else partition_for_key(key, count) for key in keys]
    assert partitions_by_key(array, count).tolist() == by_kafka
    by_http = [NOWHERE if key is None else crc32(key) % count for key in keys]
    assert partitions_of_queue(array, count).tolist() == by_http
