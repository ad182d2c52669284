"""The assignors: everything that is wanted is given out once, evenly, and little moves."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.folds.group.assignor import Assignor, Subscriber, share_by_range
from headrace.folds.group.assignor_uniform import share_uniformly
from headrace.model.ids import PartitionId

T, U, V = (UUID(int=number) for number in (1, 2, 3))
COUNTS = st.dictionaries(st.sampled_from([T, U, V]), st.integers(1, 8), min_size=1)


def subscribers(*topics: frozenset[UUID]) -> list[Subscriber]:
    return [Subscriber(f"m{at}", None, wanted, frozenset()) for at, wanted in enumerate(topics)]


def with_previous(known: list[Subscriber], shares: dict[str, set[PartitionId]]) -> list[Subscriber]:
    return [one._replace(previous=frozenset(shares.get(one.member_id, ()))) for one in known]


@pytest.mark.parametrize("assign", [share_uniformly, share_by_range])
@given(counts=COUNTS, data=st.data())
def test_every_partition_that_is_wanted_is_given_to_one_who_wants_it(
    assign: Assignor, counts: dict[UUID, int], data: st.DataObject
) -> None:
    topics = st.frozensets(st.sampled_from(sorted(counts)))
    known = subscribers(*data.draw(st.lists(topics, min_size=1, max_size=6)))
    wanted = frozenset[UUID]().union(*(one.topics for one in known))
    counts = {topic_id: count for topic_id, count in counts.items() if topic_id in wanted}
    shares = assign(known, counts)
    given_out = [partition for share in shares.values() for partition in share]
    assert len(given_out) == len(set(given_out))
    assert set(given_out) == {PartitionId(topic, at) for topic, count in counts.items() for at in range(count)}
    for one in known:
        assert {partition.topic_id for partition in shares[one.member_id]} <= one.topics
    again = assign(with_previous(known, shares), counts)
    assert again == shares, "what is balanced stays"


@given(counts=COUNTS, before=st.integers(1, 6), after=st.integers(1, 6))
def test_uniform_shares_differ_by_one_and_no_more_moves_than_must(
    counts: dict[UUID, int], before: int, after: int
) -> None:
    everything = frozenset(counts)
    old = share_uniformly(subscribers(*[everything] * before), counts)
    new = share_uniformly(with_previous(subscribers(*[everything] * after), old), counts)
    sizes = sorted(len(share) for share in new.values())
    assert sizes[-1] - sizes[0] <= 1
    for member_id in old.keys() & new.keys():
        lost, gained = old[member_id] - new[member_id], new[member_id] - old[member_id]
        assert not (lost and gained), "nobody gives up one partition to be given another"


def test_members_with_little_choice_do_not_starve() -> None:
    known = subscribers(frozenset({T, U}), frozenset({T}))
    shares = share_uniformly(known, {T: 2, U: 4})
    assert len(shares["m1"]) == 2


def test_topics_that_are_partitioned_alike_have_the_same_owners_by_range() -> None:
    shares = share_by_range(subscribers(*[frozenset({T, U})] * 2), {T: 3, U: 3})
    assert shares["m0"] == {PartitionId(topic, at) for topic in (T, U) for at in (0, 1)}


def test_static_members_keep_their_ranges_under_another_member_id() -> None:
    topics = frozenset({T})
    before = share_by_range(
        [Subscriber("x", "a", topics, frozenset()), Subscriber("y", "b", topics, frozenset())], {T: 4}
    )
    after = share_by_range(
        [Subscriber("z", "a", topics, frozenset()), Subscriber("y", "b", topics, frozenset())], {T: 4}
    )
    assert before["x"] == after["z"]
