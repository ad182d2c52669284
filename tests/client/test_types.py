"""What a type checker sees of the client: `make check` fails where one of these is wrong."""

from collections.abc import Coroutine
from typing import Any, assert_type

import headrace


@headrace.worker("orders")
def brew(message: headrace.Message) -> int:
    return message.attempt


@headrace.worker("orders")
async def pour(message: headrace.AsyncMessage) -> str:
    return message.text


def calls(message: headrace.Message, other: headrace.AsyncMessage) -> None:
    assert_type(brew(message), int)
    pouring = assert_type(pour(other), Coroutine[Any, Any, str])
    pouring.close()
    brew(other)  # type: ignore[arg-type]


def takes_no_message(number: int) -> None: ...


def waits_for_nothing(message: headrace.AsyncMessage) -> None: ...


def makes_workers_that_cannot_work() -> None:
    headrace.worker("orders")(takes_no_message)  # type: ignore[arg-type]
    headrace.worker("orders")(waits_for_nothing)  # type: ignore[arg-type]


def test_a_worker_is_called_as_its_handler_is() -> None:
    assert brew.handler.__name__ == "brew"
    assert pour.is_async
    assert not brew.is_async
