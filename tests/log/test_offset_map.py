"""The map of last offsets: a dict in bounded memory."""

from hypothesis import given
from hypothesis import strategies as st

from headrace.log.offset_map import ENTRY_BYTES, OffsetMap

SALT = b"s" * 16


@given(st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**62)), max_size=200))
def test_it_holds_the_highest_offset_of_each_key(puts: list[tuple[bytes, int]]) -> None:
    offsets = OffsetMap(count_max=10, bytes_max=10_000, salt=SALT)
    model: dict[bytes, int] = {}
    for key, offset in puts:
        offsets.put(key, offset)
        model[key] = max(offset, model.get(key, -1))
    assert len(offsets) == len(model)
    assert {key: offsets.get(key) for key in model} == model
    assert offsets.get(b"none of them") == -1


def test_it_takes_no_more_keys_than_its_bytes_allow() -> None:
    offsets = OffsetMap(count_max=1_000_000, bytes_max=ENTRY_BYTES * 1000, salt=SALT)
    assert 600 <= offsets.capacity < 1000
    assert offsets.has_room(offsets.capacity)
    assert not offsets.has_room(offsets.capacity + 1)
    for number in range(offsets.capacity):
        offsets.put(b"%d" % number, number)
    assert not offsets.has_room(1)


def test_it_is_no_larger_than_what_is_to_go_in() -> None:
    offsets = OffsetMap(count_max=100, bytes_max=1 << 40, salt=SALT)
    assert 100 <= offsets.capacity < 120
