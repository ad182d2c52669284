"""What must hold of a queue's state at any time. Tests ask after every step; nothing on the road of a message does."""

from pyroaring import BitMap64

from headrace.folds.queue.fold import QueueFold


def check_invariants(fold: QueueFold) -> None:
    """Assert that every message is accounted for (invariant 6), and is in one place."""
    counts = fold.counts
    done_count = counts.acknowledged + counts.dead_lettered + counts.expired + counts.dropped + counts.purged
    done_count += counts.withdrawn
    live_count = fold.visible_count + fold.leased_count + fold.delayed_count
    assert counts.sent == live_count + done_count, f"{counts}, and {live_count} live"
    visible = BitMap64()
    for priority, offsets in fold.shelf.visible_sets():
        for offset in offsets:
            assert fold.shelf.priority_of(offset) == priority, f"{offset} is not of priority {priority}"
        assert visible.isdisjoint(offsets), "a message is visible twice"
        visible |= offsets
    leased, dying = BitMap64(fold.leases.values), BitMap64(fold.dying_reasons)
    places = (leased, fold.delayed, dying, fold.overdue, fold.undecided, BitMap64(fold.held))
    elsewhere = BitMap64()
    for place in (visible, *places):
        assert elsewhere.isdisjoint(place), f"{list(elsewhere & place)} are in two places"
        elsewhere |= place
    assert elsewhere <= fold.live, f"{list(elsewhere - fold.live)} are placed and done"
    if not fold.config.ordered:
        assert elsewhere == fold.live, f"{list(fold.live - elsewhere)} are in no place"
    for name, values in (("attempts", fold.attempts), ("unused", fold.unused), ("lives", fold.lives.values)):
        assert BitMap64(values) <= fold.live, f"{name} of messages that are done"
    assert BitMap64(fold.rests.values) <= fold.delayed | fold.undecided, "a message rests and is not delayed"
    assert BitMap64(fold.late_dues.values) == fold.late <= fold.live, "a long delay of a message that is done"
    tried = BitMap64(fold.attempts)
    assert fold.late.isdisjoint(fold.overdue & tried), "retention spares a message that somebody had and nobody gets"
    sent = BitMap64()
    for transaction in fold.transactions.values():
        sent |= transaction.offsets
    assert fold.undecided <= sent, "a message is undecided and of no transaction"
    assert fold.overdue <= fold.lapsed <= fold.live, "a message is overdue and its life is not over"
    for members in fold.shelf.others.values():
        assert members <= fold.live, "a priority is remembered of a message that is done"
    _check_lanes(fold, elsewhere - visible)


def _check_lanes(fold: QueueFold, unready: BitMap64) -> None:
    """Invariant of order: of a key's messages only the first live one may be visible."""
    seen = BitMap64()
    for key, _, offsets in fold.shelf.lanes():
        assert offsets == sorted(offsets)
        assert seen.isdisjoint(BitMap64(offsets)), f"a message has the key {key!r} and another one"
        seen.update(offsets)
        if fold.config.ordered:
            assert offsets, f"{key!r} has nothing live and costs memory"
            assert not any(map(fold.shelf.is_visible, offsets[1:])), f"{key!r} is out of order"
            assert fold.shelf.is_visible(offsets[0]) == (offsets[0] not in unready), f"the front of {key!r}"
    assert seen <= fold.live
