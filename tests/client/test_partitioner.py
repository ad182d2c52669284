"""Keys go where Kafka's own clients would send them."""

from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.partitioner import Partitioner, murmur2, partition_for_key
from headrace.host.rand import SystemRand


@given(st.binary(max_size=70))
def test_the_hash_is_that_of_another_client(data: bytes) -> None:
    assert murmur2(data) == reference(data) & 0xFFFFFFFF


def test_known_hashes_of_the_java_client() -> None:
    # From Kafka's UtilsTest.testMurmur2.
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    for data, value in known.items():
        assert murmur2(data) == value & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 100))
def test_a_key_always_goes_to_the_same_partition_and_to_one_that_exists(key: bytes, count: int) -> None:
    partitioner = Partitioner(SystemRand())
    chosen = partitioner.choose("orders", key, count)
    assert chosen == partition_for_key(key, count) == partitioner.choose("orders", key, count)
    assert 0 <= chosen < count


def test_messages_without_a_key_share_a_partition_until_a_batch_is_full() -> None:
    partitioner = Partitioner(SystemRand())
    first = partitioner.choose("orders", None, 3)
    assert partitioner.choose("orders", None, 3) == first
    seen = [first]
    for _ in range(5):
        partitioner.batch_filled("orders")
        seen.append(partitioner.choose("orders", None, 3))
    assert seen == [(first + number) % 3 for number in range(6)], "round all, and never the same twice in a row"
