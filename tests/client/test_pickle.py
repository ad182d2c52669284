"""What goes to other processes, and what says that it cannot."""

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.client.serving import serving_fake

import headrace
from headrace.model.message import Sent

ERRORS = [
    headrace.Retry(),
    headrace.Retry(timedelta(seconds=3)),
    headrace.Reject("no such tea"),
    headrace.Reject(ValueError("no such tea")),
    headrace.TimedOutError("no answer"),
    headrace.UnreachableError("nobody there"),
    headrace.PartlySentError([Sent("0-1", 0, 1, False), headrace.QueueFullError("full")]),
]


@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_error_comes_out_of_another_process_as_it_was(error: Any, again: Callable[[Any], Any]) -> None:
    copied = again(error)
    assert type(copied) is type(error)
    assert str(copied) == str(error)
    assert repr(vars(copied)) == repr(vars(error))


@pytest.mark.parametrize("again", [pickle.dumps, copy.copy])
def test_what_belongs_to_a_client_says_that_it_stays_with_it(again: Callable[[Any], Any]) -> None:
    with serving_fake() as node, headrace.Client(node.server) as client:
        queue = client.queue("orders")
        queue.send("tea")
        (message,) = queue.receive(wait=5)
        for bound in (client, queue, message, headrace.AsyncClient(node.server)):
            with pytest.raises(TypeError, match="make a client in each process"):
                again(bound)
        message.ack()
