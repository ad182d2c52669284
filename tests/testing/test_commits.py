"""Commits that come late come all the same, and never above what one node would say."""

import asyncio
import random

from headrace.model.ids import Offset
from headrace.model.topic import Durability
from headrace.testing.clock import settle
from headrace.testing.commits import LateCommits


def test_a_late_commit_is_an_earlier_one_and_catches_up_by_itself() -> None:
    async def main() -> None:
        told: list[Offset] = []
        durable = Offset(0)

        def ask() -> None:
            told.append(rule(Durability.FSYNC, durable, Offset(durable + 100)))

        rule = LateCommits(random.Random(1), wake=ask)
        late_count = 0
        for step in range(1, 60):
            durable = Offset(3 * step)
            ask()
            assert told[-1] <= durable
            assert told[-1] % 3 == 0, "never inside of a batch"
            late_count += told[-1] < durable
            for _ in range(3):
                await settle()
            assert max(told) == durable
        assert 10 < late_count < 59

    asyncio.run(main())


def test_a_held_rule_answers_with_its_last_word_until_it_is_released() -> None:
    told: list[Offset] = []
    rule = LateCommits(random.Random(1), wake=lambda: told.append(Offset(-1)), is_held=True)
    assert rule(Durability.MEMORY, Offset(0), Offset(9)) == 0
    assert rule(Durability.MEMORY, Offset(0), Offset(12)) == 0
    rule.release()
    assert told == [-1]
    assert not rule.is_held
