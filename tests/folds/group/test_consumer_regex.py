"""Expressions over topic names: the same answers as Python's own, and never a long wait."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.folds.group.consumer_regex import STATES_MAX, Regex
from headrace.model.errors import InvalidRegexError

ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "[a-c]", r"\.", r"\d", r"\w", "_", "^", "$", r"[\d-]"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
        inner.map(lambda text: f"(?:{text})"),
    ),
    max_leaves=8,
)


@given(expression=EXPRESSIONS, name=st.text("abc1._-", max_size=8))
def test_an_expression_matches_what_pythons_own_would_match(expression: str, name: str) -> None:
    assert Regex(expression).matches(name) is (re.fullmatch(expression, name) is not None)


@pytest.mark.parametrize(
    ("expression", "name", "is_match"),
    [
        ("orders.*", "orders-eu", True),
        ("orders", "orders-eu", False),
        ("(^a.*)|(^b.*)", "bc", True),
        ("(?i)Orders", "oRDERS", True),
        ("(?P<region>eu|us)-orders", "us-orders", True),
        ("(?<region>eu|us)", "us", True),
        (r"\Aa\z", "a", True),
        (r"[^\w.]", "-", True),
        ("[]a]", "a", True),
        (r"a\-b", "a-b", True),
        ("", "a", False),
        ("ä", "a", False),
    ],
)
def test_what_clients_write(expression: str, name: str, is_match: bool) -> None:
    assert Regex(expression).matches(name) is is_match


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "[a", "a{", "a{2,1}", "a{x}", "*a", "a**", "(?=a)", "(?<=a)", "(?P=a)", r"(a)\1", r"\b", "a\\"),
        *("[z-a]", "[[:alpha:]]", r"[\b]", "a{2000}", "(" * 60, "a" * 1001, "(?<name", "(a{100}){100}"),
    ],
)
def test_what_cannot_be_read_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRegexError):
        Regex(expression)


@pytest.mark.parametrize("expression", ["(a+)+b", "(a|a)*b", "(a?){200}a{200}b", "(.*)(.*)(.*)(.*)(.*)b"])
def test_expressions_that_ruin_others_cost_no_more_than_their_size(expression: str) -> None:
    regex = Regex(expression)
    assert not regex.matches("a" * 249)
    assert regex.work <= 250 * STATES_MAX


def test_repetitions_of_nothing_end() -> None:
    with pytest.raises(InvalidRegexError):
        Regex("((((){900}){900}){900}){900}")
    assert Regex("(a*)*b").matches("aab")
