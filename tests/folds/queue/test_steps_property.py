"""However little of what is due is done at a time: nothing impossible is seen, and it ends where the model does."""

import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from tests.folds.queue.test_fold_property import QueueMachine

from headrace.folds.queue.fold import QueueFold
from headrace.folds.queue.invariant import check_invariants
from headrace.model.errors import StaleReceiptError


class SteppingMachine(QueueMachine):
    """A fold that changes one message at a time, so that it is behind most of the time."""

    def prepared(self, fold: QueueFold) -> QueueFold:
        fold.step_count = 1
        return fold

    def rightly_chosen(self, offsets: list[int], expected: list[int], upto: int) -> None:
        """Behind, it may be less than there is, and something else; but it is ready, and no key is out of order."""
        if not self.fold.is_behind:
            assert offsets == expected
            return
        for offset in offsets:
            message = self.model.messages[offset]
            assert message.state == "ready"
            assert offset < upto
            if self.model.config.ordered and message.key is not None:
                earlier = [one.offset for one in self.model.live() if one.key == message.key and one.offset < offset]
                assert set(earlier) <= set(offsets), "a message has passed an earlier one of its key"

    def held(self, first: int, count: int) -> list[int]:
        self.model.advance(self.now)
        held = [message.offset for message in self.model.live() if message.state == "leased"]
        return held[first % len(held) :][:count] if held else []

    @invariant()
    def the_fold_says_what_the_model_says(self) -> None:
        """As it is, with nothing more done of what is due."""
        if not hasattr(self, "fold"):
            return
        self.fold.advance(self.now, 0)
        check_invariants(self.fold)
        self.model.advance(self.now)
        assert [message.offset for message in self.model.live()] == list(self.fold.live)
        for ending in ("acknowledged", "dead_lettered", "expired", "dropped", "purged", "withdrawn"):
            assert getattr(self.fold.counts, ending) == self.model.count(ending), ending
        self.note_done()  # now, since a later entry would say a later moment

    @rule(which=st.integers(0, 30))
    def look_at_one(self, which: int) -> None:
        self.fold.keep_up(self.now)
        self.model.advance(self.now)
        messages = list(self.model.messages.values())
        self.agree(messages[which % len(messages)])

    @precondition(lambda self: self.receipts)
    @rule(which=st.integers(0, 30))
    def show_a_receipt(self, which: int) -> None:
        offset, attempt = self.receipts[which % len(self.receipts)]
        self.model.advance(self.now)
        message = self.model.messages[offset]
        try:
            self.fold.check(offset, attempt, now=self.now)
        except StaleReceiptError:
            assert message.state != "leased" or message.number != attempt
        else:
            assert (message.state, message.number) == ("leased", attempt)

    @rule()
    def catch_up(self) -> None:
        self.fold.advance(self.now)
        self.fold.catch_up()
        QueueMachine.the_fold_says_what_the_model_says(self)


TestSteppingMachine = SteppingMachine.TestCase
TestSteppingMachine.settings = settings(
    max_examples=5_000 if os.environ.get("HEADRACE_LONG") else 300,
    stateful_step_count=40,
    deadline=None,
)
