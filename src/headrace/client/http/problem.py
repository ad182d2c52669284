"""A node's refusals as headrace's own errors: one table from the code in a problem document to a class of the tree."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from headrace.client.http.connection import Answer
from headrace.model import errors as tree
from headrace.model.errors import HeadraceError, InvalidRequestError, OverloadedError, TimedOutError

T = TypeVar("T")

_TOO_MANY_REQUESTS = 429
_SERVER_ERRORS = 500
_UNAVAILABLE = 503
_GATEWAY_TIMEOUT = 504


class Problem(msgspec.Struct):
    """RFC 9457, as far as headrace uses it."""

    code: str = ""
    detail: str = ""


_DECODER = msgspec.json.Decoder(Problem)

# Classes with arguments of their own say more than a problem document carries; no queue's call ends in one of them.
_BY_CODE: dict[str, type[HeadraceError]] = {
    kind.code: kind
    for kind in vars(tree).values()
    if isinstance(kind, type) and issubclass(kind, HeadraceError) and "__init__" not in vars(kind)
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
    known = error_for(problem.code, problem.detail)
    if known is not None:
        return known
    text = problem.detail or answer.body[:200].decode(errors="backslashreplace") or "no reason was given"
    said = f"the node answered {answer.status} {problem.code}".rstrip() + f": {text}"
    if answer.status in (_TOO_MANY_REQUESTS, _UNAVAILABLE):
        return OverloadedError(said)
    if answer.status == _GATEWAY_TIMEOUT:
        return TimedOutError(said)
    return HeadraceError(said) if answer.status >= _SERVER_ERRORS else InvalidRequestError(said)


def read(decode: Callable[[bytes], T], answer: Answer) -> T:
    """An answer's document."""
    try:
        return decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise HeadraceError(
            f"the node's answer cannot be read ({error}); do the client and the node have the same version?"
        ) from None
