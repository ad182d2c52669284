"""When a turn is written: after a look at the sockets, and after more of them as long as each brings something."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.broker.turn import Turn


class Desk:
    """What waits to be written, and what was written when."""

    def __init__(self) -> None:
        self.waiting = 0
        self.written: list[int] = []
        self.turn = Turn(write=self._write, count=lambda: self.waiting)

    def _write(self) -> None:
        self.turn.begin_next()
        self.written.append(self.waiting)
        self.waiting = 0

    def send(self) -> None:
        self.waiting += 1
        self.turn.write_after_reading()


def run(main: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def begin() -> None:
        await main(Desk())

    asyncio.run(begin())


async def look(count: int = 1) -> None:
    """Let the loop look at its sockets so many times."""
    for _ in range(count):
        await asyncio.sleep(0)


def test_a_lone_message_is_written_after_one_look() -> None:
    async def main(desk: Desk) -> None:
        desk.send()
        await look()
        assert desk.written == []
        await look(2)
        assert desk.written == [1]
        assert not desk.turn.is_due

    run(main)


def test_what_comes_look_after_look_is_written_together() -> None:
    async def main(desk: Desk) -> None:
        for _ in range(4):
            desk.send()
            await look()
        assert desk.written == []
        await look(5)
        assert desk.written == [4]

    run(main)


def test_what_comes_without_end_is_written_all_the_same() -> None:
    async def main(desk: Desk) -> None:
        for _ in range(100):
            desk.send()
            await look()
        assert len(desk.written) >= 3
        assert max(desk.written) <= 30

    run(main)


def test_who_cannot_wait_has_everything_written_at_the_end_of_the_look() -> None:
    async def main(desk: Desk) -> None:
        for _ in range(3):
            desk.send()
            await look()
        desk.send()
        desk.turn.write_soon()
        desk.send()
        await look(2)
        assert desk.written == [5]

    run(main)


def test_a_turn_that_was_written_early_is_not_written_again_by_the_look_that_was_under_way() -> None:
    async def main(desk: Desk) -> None:
        desk.send()
        desk._write()
        assert desk.written == [1]
        await look(4)
        assert desk.written == [1]
        desk.send()
        await look(4)
        assert desk.written == [1, 1]

    run(main)
