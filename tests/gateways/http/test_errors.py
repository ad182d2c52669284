"""Every error of headrace has an HTTP status, and its own code in the answer."""

import json
from collections.abc import Iterator

import pytest

from headrace.gateways.http.errors import STATUSES, answer_to, problem_of, status_of
from headrace.gateways.http.message import RefusedError, Request, Response
from headrace.model.errors import DiskFullError, HeadraceError


def every(error: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield error
    for below in error.__subclasses__():
        yield from every(below)


@pytest.mark.parametrize("error", sorted(set(every(HeadraceError)), key=str))
def test_every_error_class_has_a_status_that_fits_it(error: type[HeadraceError]) -> None:
    if error.__module__ != "headrace.model.errors":
        pytest.skip("defined by a room above, which answers it itself")
    status = status_of(error)
    assert 400 <= status < 600
    if error is not HeadraceError:
        assert any(base in STATUSES for base in error.__mro__[: error.__mro__.index(HeadraceError)])


def test_an_answer_says_the_code_whether_to_retry_and_when() -> None:
    answer = answer_to(DiskFullError("the disk's reserve is reached; free space or add a disk, then retry"))
    assert answer.status == 507
    assert answer.headers == (("Retry-After", "1"),)
    value = json.loads(answer.body)
    assert (value["code"], value["retriable"]) == ("disk_full", True)
    assert value["type"] == "urn:headrace:problem:disk_full"


@pytest.mark.parametrize(("status", "retriable"), [(400, False), (404, False), (408, True), (422, False), (503, True)])
def test_a_refusal_of_the_servers_own_says_whether_to_retry_too(status: int, retriable: bool) -> None:
    answer = problem_of(Request("GET", "/", "", {}, b""), RefusedError(status, "code", "do something"))
    assert json.loads(answer.body)["retriable"] is retriable


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\x00b", "é"])
def test_a_header_that_would_split_the_answer_cannot_be_made(value: str) -> None:
    with pytest.raises(ValueError, match="header"):
        Response(headers=(("Location", value),))
