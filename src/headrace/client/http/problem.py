"""A node's refusals as headrace's own errors: one table from the code in a problem document to a class of the tree."""

import inspect
from collections.abc import Callable
from typing import TypeVar

import msgspec

from headrace.client.http.connection import Answer
from headrace.model import errors as tree
from headrace.model.errors import (
    HeadraceError,
    InvalidRequestError,
    NotAQueueError,
    OverloadedError,
    TimedOutError,
    TopicHasRecordsError,
)

T = TypeVar("T")

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_UNAVAILABLE = 503
_GATEWAY_TIMEOUT = 504


class Problem(msgspec.Struct):
    """RFC 9457, as far as headrace uses it."""

    code: str = ""
    detail: str = ""
    topic: str = ""
    changes: str = ""


_DECODER = msgspec.json.Decoder(Problem)


def _takes_detail_alone(kind: type[HeadraceError]) -> bool:
    try:
        inspect.signature(kind.__init__).bind(None, "")
    except TypeError:
        return False
    return True


# Classes that need more arguments say more than a problem document carries; no queue's call ends in one of them.
_BY_CODE: dict[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in vars(tree).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError) and _takes_detail_alone(kind)
}


def error_for(code: str, detail: str) -> HeadraceError | None:
    """The error of a code; None where this client does not know it."""
    kind = _BY_CODE.get(code)
    return None if kind is None else kind(detail)


def refusal(answer: Answer) -> HeadraceError:
    """Why a request was not carried out, or may not have been."""
    try:
        problem = _DECODER.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = Problem()
    known = _of_topic(problem) or error_for(problem.code, problem.detail)
    if known is not None:
        return known
    text = problem.detail or answer.body[:200].decode(errors="backslashreplace") or "no reason was given"
    said = f"the node answered {answer.status} {problem.code}".rstrip() + f": {text}"
    if answer.status in (_TOO_MANY_REQUESTS, _UNAVAILABLE):
        return OverloadedError(said)
    if answer.status == _GATEWAY_TIMEOUT:
        return TimedOutError(said)
    return HeadraceError(said) if answer.status >= _SERVER_ERRORS else InvalidRequestError(said)


def _of_topic(problem: Problem) -> HeadraceError | None:
    """What a node says about a topic that is not a queue, with advice in terms of Python."""
    match problem.code:
        case NotAQueueError.code if problem.topic:
            return NotAQueueError.of(
                problem.topic,
                f'client.queue("{problem.topic}").create(convert=True) makes it one, after which a message is deleted '
                "once it is acknowledged",
            )
        case TopicHasRecordsError.code if problem.changes:
            return TopicHasRecordsError.of(problem.changes, "To confirm, call create(convert=True).")
    return None


def read(decode: Callable[[bytes], T], answer: Answer) -> T:
    """An answer's document."""
    try:
        return decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HeadraceError(
            f"the node's answer cannot be read ({error}); do the client and the node have the same version?"
        ) from None
