"""The memory for answers, by itself: who gets it, in which order, and who is refused."""

import asyncio

from headrace.gateways.answers import AnswerBudget, AnswersConfig, Share, Untaken

MIB = 1024 * 1024
TOTAL = 64 * MIB
# Of that, answers up to 1 MiB are modest, and larger ones may have 48 MiB.
LARGE = 16 * MIB


class Asker:
    """A request that asks, and what it is told."""

    def __init__(self, budget: AnswerBudget, size: int, *, is_next: bool = True) -> None:
        self.share = Share(budget)
        self.told: list[bool] = []
        if is_next:
            self.share.next()
        self.share.ask(size, self.told.append)


def small_budget(**more: int) -> AnswerBudget:
    return AnswerBudget(AnswersConfig(bytes_max=TOTAL, **more))


def test_what_fits_is_granted_at_once_and_the_rest_in_turn() -> None:
    budget = small_budget()
    askers = [Asker(budget, LARGE) for _ in range(6)]
    assert [one.told for one in askers] == [[True]] * 3 + [[]] * 3
    assert (budget.used_bytes, budget.waiting_count, budget.waited_count) == (3 * LARGE, 3, 3)
    askers[1].share.give()
    assert [one.told for one in askers] == [[True]] * 4 + [[]] * 2
    askers[0].share.give()
    askers[2].share.give()
    assert all(one.told == [True] for one in askers)
    for one in askers:
        one.share.give()
    assert budget.used_bytes == 0


def test_a_request_of_modest_size_is_served_beside_large_ones_that_wait() -> None:
    budget = small_budget()
    large = [Asker(budget, LARGE) for _ in range(4)]
    assert not large[3].told
    modest = [Asker(budget, MIB) for _ in range(17)]
    assert [one.told for one in modest] == [[True]] * 16 + [[]]
    assert not budget.has_room(1)
    modest[0].share.give()
    assert modest[16].told == [True]


def test_a_later_request_does_not_pass_an_earlier_one_of_its_kind() -> None:
    budget = small_budget()
    held = Asker(budget, 2 * LARGE)
    first, second = Asker(budget, 2 * LARGE), Asker(budget, LARGE)
    assert not first.told
    assert not second.told, "it would fit, and the first would wait for ever behind others like it"
    held.share.give()
    assert first.told == second.told == [True]


def test_an_answer_larger_than_the_whole_budget_is_served_alone() -> None:
    budget = small_budget()
    held = Asker(budget, LARGE)
    huge = Asker(budget, 2 * TOTAL)
    after = Asker(budget, LARGE)
    assert not huge.told
    held.share.give()
    assert huge.told == [True]
    assert not after.told
    huge.share.give()
    assert after.told == [True]


def test_a_request_asks_only_once_nothing_is_ahead_of_it() -> None:
    budget = small_budget()
    asker = Asker(budget, LARGE, is_next=False)
    assert (asker.told, budget.used_bytes, budget.waiting_count) == ([], 0, 0)
    asker.share.next()
    assert asker.told == [True]


def test_what_waited_too_long_is_refused_and_those_behind_it_go_on_waiting() -> None:
    budget = small_budget(wait_ms_max=1_000)
    held = Asker(budget, 3 * LARGE)
    budget.sweep(10_000)
    first = Asker(budget, LARGE)
    budget.sweep(10_500)
    second = Asker(budget, LARGE)
    budget.sweep(11_000)
    assert (first.told, second.told) == ([], [])
    budget.sweep(11_500)
    assert (first.told, second.told, budget.refused_count) == ([False], [], 1)
    held.share.give()
    assert second.told == [True]


def test_who_leaves_the_line_gives_its_place_to_the_next() -> None:
    budget = small_budget()
    held = Asker(budget, 2 * LARGE)
    gone, next_one = Asker(budget, 2 * LARGE), Asker(budget, LARGE)
    gone.share.give()
    assert gone.told == []
    assert next_one.told == [True]
    held.share.give()
    next_one.share.give()
    assert budget.used_bytes == 0


def test_a_request_that_ends_as_soon_as_it_begins_lets_the_whole_line_through() -> None:
    budget = small_budget()
    held = Asker(budget, 3 * LARGE)
    served = []
    shares = [Share(budget) for _ in range(2_000)]
    for number, share in enumerate(shares):

        def begin(granted: bool, number: int = number, share: Share = share) -> None:
            served.append(number)
            share.give()

        share.next()
        share.ask(LARGE, begin)
    assert not served
    held.share.give()
    assert served == list(range(2_000))
    assert budget.used_bytes == 0


def test_what_a_client_leaves_untaken_counts_and_is_given_back() -> None:
    budget = small_budget()
    untaken = Untaken(budget)
    untaken.pause(3 * LARGE)
    waiting = Asker(budget, LARGE)
    assert not waiting.told
    untaken.settle(LARGE, 5)  # a large buffer lives until its last byte is taken
    assert budget.used_bytes == 3 * LARGE + 5
    assert untaken.progress_bytes_min(16) == (3 * LARGE + 5) // 20
    untaken.resume()
    assert waiting.told == [True]
    assert budget.used_bytes == LARGE
    assert untaken.progress_bytes_min(16) == 16


def test_a_coroutine_waits_for_its_turn_and_is_told() -> None:
    async def main() -> None:
        budget = small_budget()
        share = Share(budget)
        assert await share.take(16 * 1024)
        assert budget.used_bytes == 0, "small ones need none"
        held = Asker(budget, 3 * LARGE)
        share.next()
        taking = asyncio.ensure_future(share.take(LARGE))
        await asyncio.sleep(0)
        assert not taking.done()
        held.share.give()
        assert await taking
        assert share.held == LARGE
        late = Share(budget)
        refused = asyncio.ensure_future(late.take(3 * LARGE))
        await asyncio.sleep(0)
        late.refuse()
        assert not await refused

    asyncio.run(main())
