"""A code in a problem document becomes the class of the tree that has this code."""

import inspect

import pytest

from headrace.client.http.problem import error_for
from headrace.model import errors
from headrace.model.errors import HeadraceError

CLASSES = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, HeadraceError)]


def needs_more_than_a_message(kind: type[HeadraceError]) -> bool:
    """Besides the instance and the message, which any of them takes."""
    of_any_number = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [one for one in inspect.signature(kind.__init__).parameters.values() if one.kind not in of_any_number]
    needed = [one for one in parameters[1:] if one.default is inspect.Parameter.empty]
    return len(needed) > 1 or any(one.kind is inspect.Parameter.KEYWORD_ONLY for one in needed)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_error_that_is_a_message_keeps_its_class_on_its_way_to_a_client(kind: type[HeadraceError]) -> None:
    error = error_for(kind.code, "what to do")
    if needs_more_than_a_message(kind):
        assert error is None or type(error) is not kind
    else:
        assert type(error) is kind
        assert str(error) == "what to do"
