"""What is done with leases: acknowledged, held longer, given back, rejected. Each kind goes out in batches."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headrace.client.deadline import Deadline, Patience
from headrace.client.http.caller import MSGPACK, Caller
from headrace.client.http.problem import read
from headrace.client.queue.batcher import Batcher, Transmit, carry_apart
from headrace.client.queue.sender import failure
from headrace.client.queue.wire import (
    AcknowledgeRequest,
    ExtendRequest,
    Extension,
    Rejection,
    RejectRequest,
    Release,
    ReleaseRequest,
    Result,
    decode_results,
    encode,
)
from headrace.model.errors import HeadraceError, StaleReceiptError, TimedOutError

Item = TypeVar("Item")
_RECEIPT_BYTES = 100


class Leases:
    """The leases that one client holds of one queue."""

    def __init__(self, caller: Caller, path: str) -> None:
        self._caller = caller
        self.path = path
        self._acknowledge = self._transmit("acknowledgements", AcknowledgeRequest)
        self._acknowledgements = Batcher(self._acknowledge, caller.config, clock=caller.clock)
        self._extensions = self._batcher("extensions", ExtendRequest)
        self._releases = self._batcher("releases", ReleaseRequest)
        self._rejections = self._batcher("rejections", RejectRequest)

    async def close(self) -> None:
        for batcher in (self._acknowledgements, self._extensions, self._releases, self._rejections):
            await batcher.close()

    async def acknowledge(self, receipt: str) -> None:
        self._caller.check_loop()
        await self._acknowledgements.submit(receipt, _RECEIPT_BYTES)

    async def extend(self, receipt: str, lease_s: float) -> None:
        self._caller.check_loop()
        await self._extensions.submit(Extension(receipt, lease_s), _RECEIPT_BYTES)

    async def release(self, receipt: str, delay_s: float | None, error: str = "") -> None:
        self._caller.check_loop()
        await self._releases.submit(Release(receipt, delay_s, error=error), _RECEIPT_BYTES + len(error))

    async def give_back(self, receipt: str) -> None:
        """Nobody has begun with the message: the attempt does not count."""
        self._caller.check_loop()
        await self._releases.submit(Release(receipt, unbegun=True), _RECEIPT_BYTES)

    async def reject(self, receipt: str, reason: str) -> None:
        self._caller.check_loop()
        await self._rejections.submit(Rejection(receipt, reason), _RECEIPT_BYTES + len(reason))

    async def acknowledge_many(self, receipts: list[str]) -> list[HeadraceError | None]:
        """Those that are known together need no gathering: a future for each would cost more than all the rest."""
        outcomes: list[HeadraceError | None] = []
        clock, config = self._caller.clock, self._caller.config
        patience, begun_ms = Patience(clock, config.deadline_ms), clock.monotonic_ms()
        for start in range(0, len(receipts), config.batch_count_max):
            batch = receipts[start : start + config.batch_count_max]
            outcomes += await carry_apart(self._acknowledge, batch, patience, begun_ms=begun_ms)
        return outcomes

    def _batcher(self, route: str, request: Callable[[list[Item]], Any]) -> Batcher[Item, None]:
        return Batcher(self._transmit(route, request), self._caller.config, clock=self._caller.clock)

    def _transmit(self, route: str, request: Callable[[list[Item]], Any]) -> "Transmit[Item, None]":
        target = f"{self.path}/{route}"
        # An extension counts from its call, so a second one is as good as the first. The others end the lease.
        ends_lease = request is not ExtendRequest

        async def transmit(items: list[Item], deadline: Deadline) -> Sequence[HeadraceError | None]:
            body = encode(request(items))
            answer = await self._caller.call("POST", target, body, form=MSGPACK, deadline=deadline)
            in_doubt = ends_lease and answer.follows_doubt
            return [_outcome(result, in_doubt=in_doubt) for result in read(decode_results, answer).results]

        return transmit


def _outcome(result: Result, *, in_doubt: bool) -> HeadraceError | None:
    if result.error is None:
        return None
    error = failure(result.error)
    if in_doubt and isinstance(error, StaleReceiptError):
        return TimedOutError(
            f"the first answer was lost and the receipt is over now ({error}): it was carried out then, or the lease "
            "had expired"
        )
    return error
