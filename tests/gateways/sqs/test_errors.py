"""The table from headrace's errors to SQS's has every class."""

import headrace.gateways.sqs.gateway  # noqa: F401 - so that every class that the gateway can meet is defined
from headrace.gateways.http.message import RefusedError
from headrace.gateways.sqs.errors import KINDS, kind_of, to_sqs
from headrace.model import errors
from headrace.model.errors import HeadraceError, NotLeaderError
from headrace.security.sigv4 import Failure, SignatureRefusedError
from headrace.wire.sqs.error import UNAVAILABLE


def test_every_error_class_has_its_own_entry() -> None:
    every = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadraceError)}
    assert every - set(KINDS) == set()


def test_a_class_that_is_derived_elsewhere_takes_the_kind_of_its_parent() -> None:
    class ElsewhereError(NotLeaderError):
        pass

    assert kind_of(ElsewhereError) is UNAVAILABLE


def test_an_unexpected_exception_does_not_show_its_words_to_clients() -> None:
    refusal = to_sqs(KeyError("/secret/path"))
    assert refusal.kind.status == 500
    assert "secret" not in refusal.message


def test_every_failure_of_a_signature_keeps_its_name() -> None:
    for failure in Failure:
        assert to_sqs(SignatureRefusedError(failure, "no")).kind.code == failure.value


def test_what_the_server_refuses_keeps_its_status() -> None:
    for status in (400, 408, 413, 500, 503):
        assert to_sqs(RefusedError(status, "code", "detail")).kind.status == status
