from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.folds.snapshot import FoldState, decode_snapshot, encode_in_pieces, encode_snapshot, joined
from headrace.model.errors import CorruptLogError, UnsupportedError
from headrace.model.ids import Offset

states = st.builds(
    FoldState,
    fold=st.from_regex(r"[a-z][a-z0-9_-]{0,30}", fullmatch=True),
    version=st.integers(0, 65535),
    end_offset=st.integers(0, 2**63 - 1).map(Offset),
    payload=st.binary(max_size=200),
)


def decoded(data: bytes, fold: str = "f") -> FoldState:
    return decode_snapshot(data, fold=fold, version_max=65535, file="f-7.snapshot")


@given(states)
def test_what_was_framed_is_read_back(state: FoldState) -> None:
    assert decoded(encode_snapshot(state), state.fold) == state


@given(states, st.lists(st.integers(0, 200), max_size=5))
def test_in_pieces_it_is_the_same_bytes(state: FoldState, cuts: list[int]) -> None:
    payload = bytes(state.payload)
    bounds = [0, *sorted(min(cut, len(payload)) for cut in cuts), len(payload)]
    parts = [payload[start:end] for start, end in pairwise(bounds)]
    pieces = encode_in_pieces(state.fold, state.version, state.end_offset, len(payload), parts)
    assert joined(pieces) == encode_snapshot(state)


def test_a_payload_of_another_size_than_was_announced_is_no_snapshot() -> None:
    with pytest.raises(AssertionError, match="announced as 5"):
        list(encode_in_pieces("f", 1, Offset(7), 5, [b"some", b"thing"]))


DATA = encode_snapshot(FoldState("f", 1, Offset(7), b"some state of a fold"))


def test_any_flipped_bit_is_found() -> None:
    for bit in range(len(DATA) * 8):
        damaged = bytearray(DATA)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptLogError, match=r"f-7\.snapshot"):
            decoded(bytes(damaged))


def test_a_snapshot_cut_anywhere_is_found() -> None:
    for size in range(len(DATA)):
        with pytest.raises(CorruptLogError):
            decoded(DATA[:size])


def test_bytes_after_the_end_are_found() -> None:
    with pytest.raises(CorruptLogError):
        decoded(DATA + b"\0")


def test_the_snapshot_of_another_fold_is_not_taken_for_this_one() -> None:
    with pytest.raises(CorruptLogError, match="fold name"):
        decoded(DATA, fold="g")


def test_a_newer_version_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="newer headrace"):
        decode_snapshot(DATA, fold="f", version_max=0, file="x")
