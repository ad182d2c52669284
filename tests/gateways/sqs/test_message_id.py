"""Ids of messages as SQS shows them."""

from uuid import UUID

import pytest

from headrace.gateways.sqs.message_id import MessageIds, uuid_of

QUEUE = UUID("6f2b6a52-3a1d-4f9e-9c57-3d1f6a2b7c80")


def test_an_id_that_headrace_gave_is_shown_as_the_one_that_its_sender_was_told() -> None:
    assert uuid_of(QUEUE, "3-17") == MessageIds(QUEUE).at(3, 17)


@pytest.mark.parametrize("id", ["", "x", "3-", "-17", "3-x", "x-17", "3-17-4", "03-17", "3-\u0661", "3-17 "])
def test_an_id_that_somebody_else_gave_is_shown_as_it_is(id: str) -> None:
    assert uuid_of(QUEUE, id) == id
