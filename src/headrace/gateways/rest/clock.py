"""The node's clock over HTTP: `GET /clock` shows it, `POST /clock/confirm` believes it.

What is confirmed decides what retention deletes, so it is taken on the administrator's listener only.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from headrace.gateways.http.message import Request, Response, json_response, problem
from headrace.gateways.http.router import Route


class ClockState(Protocol):
    @property
    def wall_ms(self) -> int: ...

    @property
    def trusted_ms(self) -> int: ...

    @property
    def jump_ahead_ms(self) -> int | None: ...

    @property
    def believed_in_ms(self) -> int: ...


def clock_routes(
    *,
    state: Callable[[], ClockState],
    confirm: Callable[[], Awaitable[ClockState]],
    is_admin: bool,
    admin_address: Callable[[], str],
) -> list[Route]:
    def get_clock(request: Request) -> Response:
        return json_response(_described(state()))

    async def confirm_clock(request: Request) -> Response:
        if not is_admin:
            return problem(
                403,
                "administrators_only",
                f"the clock is confirmed on the administrator's listener only, which is {admin_address()}; send the "
                "same request there",
            )
        return json_response(_described(await confirm()))

    return [Route("GET", "/clock", get_clock), Route("POST", "/clock/confirm", confirm_clock)]


def _described(state: ClockState) -> dict[str, int | bool]:
    return {
        "is_believed": state.jump_ahead_ms is None,
        "wall_ms": state.wall_ms,
        "trusted_ms": state.trusted_ms,
        "ahead_ms": state.wall_ms - state.trusted_ms,
        "believed_in_ms": state.believed_in_ms,
    }
