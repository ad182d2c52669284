"""The bytes of a queue's entries."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.folds.queue.script import SUBSCRIPTION, Script

from headrace.folds.queue.codec import KINDS, decode_op, encode_op
from headrace.folds.queue.instant import Instant
from headrace.folds.queue.op import (
    Acked,
    Configured,
    DeadLettered,
    Dropped,
    Expired,
    ExpiryCause,
    Extended,
    Leased,
    Moved,
    Op,
    Purged,
    ReaderMoved,
    ReaderRemoved,
    Rejected,
    Released,
    Repeated,
    Returned,
    Ticked,
)
from headrace.model.errors import CorruptBatchError
from headrace.model.queue import Backoff, Guarantee, QueueConfig

offset = st.integers(0, 2**63 - 1)
instants = st.builds(Instant, offset, offset)
runs = st.builds(lambda first, count: tuple(range(first, first + count)), st.integers(0, 2**40), st.integers(0, 200))
offsets = st.one_of(runs, st.lists(offset, max_size=20).map(tuple), runs.flatmap(st.permutations).map(tuple))
span = st.integers(0, 2**50)
configs = st.builds(
    QueueConfig,
    ordered=st.booleans(),
    guarantee=st.sampled_from(Guarantee),
    backoff=st.none() | st.builds(Backoff),
    dead_letter=st.none() | st.just("elsewhere"),
)
ops: st.SearchStrategy[Op] = st.one_of(
    st.builds(Leased, offsets, span, instants),
    st.builds(Extended, offsets, span, instants),
    st.builds(Acked, offsets, instants),
    st.builds(Released, offsets, st.none() | span, instants),
    st.builds(Returned, offsets, instants),
    st.builds(Rejected, offset, st.text(), instants),
    st.builds(DeadLettered, offsets, st.text(), instants),
    st.builds(Moved, offsets, instants),
    st.builds(Expired, offsets, offset, st.sampled_from(ExpiryCause), instants),
    st.builds(Dropped, offsets, instants),
    st.builds(Repeated, offsets, instants),
    st.builds(Purged, offset, instants),
    st.builds(Configured, configs, instants),
    st.builds(ReaderMoved, st.text(), offset, instants),
    st.builds(ReaderRemoved, st.text(), instants),
    st.builds(Ticked, instants),
)


@given(op=ops, owner=st.uuids())
def test_every_entry_reads_back_as_it_was_written(op: Op, owner: UUID) -> None:
    assert decode_op(*encode_op(owner, op)) == (owner, op)


def test_every_kind_of_entry_has_its_own_control_type_above_those_of_kafka() -> None:
    assert len(set(KINDS.values())) == len(KINDS)
    assert min(KINDS.values()) == 100


def test_a_run_of_offsets_takes_as_many_bytes_as_two() -> None:
    _, run = encode_op(SUBSCRIPTION, Acked(tuple(range(7, 1007)), Instant(1, 2)))
    _, pair = encode_op(SUBSCRIPTION, Acked((7, 9), Instant(1, 2)))
    assert len(run) == len(pair)


def test_a_kind_that_a_newer_version_wrote_is_passed_over() -> None:
    assert decode_op(99, b"") is None
    assert decode_op(199, b"whatever") is None


@pytest.mark.parametrize("kind", KINDS.values())
def test_bytes_that_are_no_entry_are_an_error_and_not_a_guess(kind: int) -> None:
    with pytest.raises(CorruptBatchError, match=str(kind)):
        decode_op(kind, b"too short")


@pytest.mark.parametrize("tail", [b"", b"\x02", b"\x01\x00", b"\x00\x01\x02"])
def test_offsets_that_are_cut_off_are_an_error(tail: bytes) -> None:
    kind, value = encode_op(SUBSCRIPTION, Acked((), Instant(1, 2)))
    with pytest.raises(CorruptBatchError):
        decode_op(kind, value[:-1] + tail)


def test_what_an_entry_says_of_messages_that_are_gone_is_passed_over() -> None:
    script = Script()
    script.send(count=1)
    script.acknowledge(*script.receive())
    at = script.now
    before = script.fold.counts
    for op in (
        Leased((0, 7), 10, at),
        Acked((0, 7), at),
        Extended((0, 7), 10, at),
        Released((0, 7), None, at),
        Returned((0, 7), at),
        Rejected(7, "", at),
        DeadLettered((7,), "", at),
        Expired((7,), 0, ExpiryCause.TIME_TO_LIVE, at),
    ):
        script.fold.apply(op)
    assert script.fold.counts == before
    assert script.receive() == []
