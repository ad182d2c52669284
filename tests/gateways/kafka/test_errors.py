"""The table from headrace's errors to Kafka's codes has every class."""

from collections.abc import Iterator

import headrace.gateways.kafka.gateway  # noqa: F401 - so that every class that the gateway can meet is defined
from headrace.gateways.kafka.errors import CODES, ErrorCode, code_of, message_of, read_code_of
from headrace.model.errors import HeadraceError, NotLeaderError, OverloadedError


def every_class(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from every_class(child)


def test_every_error_class_has_its_own_entry() -> None:
    # Those of the rooms above never reach a gateway; which of them are imported depends on the tests that ran before.
    above = ("headrace.client.", "headrace.app.", "headrace.spark.", "headrace.cli.", "headrace.testing.")
    every = {kind for kind in every_class(HeadraceError) if kind.__module__.startswith("headrace.")}
    ours = {kind for kind in every if not kind.__module__.startswith(above)}
    assert ours - set(CODES) == set()


def test_a_class_that_a_test_or_a_plug_in_derives_takes_the_code_of_its_parent() -> None:
    class ElsewhereError(NotLeaderError):
        pass

    assert code_of(ElsewhereError("node 2 leads")) == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unexpected_exception_does_not_show_its_words_to_clients() -> None:
    error = KeyError("/secret/path")
    assert code_of(error) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "secret" not in message_of(error)


def test_no_reader_is_told_the_error_that_only_producers_retry() -> None:
    told = {kind: read_code_of(kind.__new__(kind)) for kind in CODES}
    assert ErrorCode.NOT_ENOUGH_REPLICAS not in told.values()
    assert told[OverloadedError] == ErrorCode.KAFKA_STORAGE_ERROR
    assert all(told[kind] == CODES[kind] for kind in CODES if CODES[kind] != ErrorCode.NOT_ENOUGH_REPLICAS)
