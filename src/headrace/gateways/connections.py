"""The connections of one listener: who gets a place, their deadlines while it serves, and their end when it stops.

Places. A listener has so many, and one address may have so many of them. Where none is left, a new connection gets the
place of one that does not work: of the oldest that has never completed a request, or else of the one that completed its
last request the longest ago, if that is more than DISPLACED_AFTER_MS. A connection with a request in progress keeps its
place. Where all work, the new connection is refused.

Deadlines are looked at once every `sweep_ms` for all connections, against a clock that is read once a sweep. A timer
for each request would cost more than the parsing of it.
"""

import asyncio
import ipaddress
from collections.abc import Callable, Iterator
from typing import Protocol

from headrace.broker.under_way import UnderWay
from headrace.gateways.answers import AnswerBudget
from headrace.host.clock import Clock, Timer

# A connection whose client has just been served is about to be used again.
DISPLACED_AFTER_MS = 5_000
# A network of IPv6 has more addresses than can be counted one by one.
_IPV6_NETWORK_BITS = 64


class Connection(Protocol):
    @property
    def address(self) -> str:
        """Of its client, as `counted_address` has it."""

    @property
    def completed_ms(self) -> int | None:
        """When it last completed a request; None: never."""

    @property
    def is_busy(self) -> bool:
        """Whether a request is in progress, or its answer on the way."""

    def displace(self) -> None:
        """Close: another one needs the place."""

    def check_deadlines(self, now_ms: int) -> None: ...

    def drain(self) -> None: ...

    def abort(self) -> None: ...


class Connections:
    """What the connections of every gateway share.

    `on_empty` is called when the last has gone.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        sweep_ms: int,
        connections_max: int,
        for_address_max: int,
        answers: AnswerBudget | None = None,
    ) -> None:
        self.clock = clock
        self._connections_max = connections_max
        self._for_address_max = for_address_max
        self._by_address: dict[str, int] = {}
        # Those that have never completed a request, the oldest first.
        self._unproven: dict[Connection, None] = {}
        # Shared with the node's other listeners.
        self.answers = answers or AnswerBudget()
        self.connections: set[Connection] = set()
        self.under_way = UnderWay()
        # The time of the last sweep: late by sweep_ms at most, and free to read.
        self.now_ms = clock.monotonic_ms()
        self.on_empty: Callable[[], None] | None = None
        self._sweep_ms = sweep_ms
        self._timer: Timer | None = None

    def admit(self, connection: Connection) -> bool:
        """Take a connection in, if need be in the place of another one. False: there is no place for it."""
        address = connection.address
        of_address = self._by_address.get(address, 0)
        if of_address >= self._for_address_max or len(self.connections) >= self._connections_max:
            loser = self._idlest(address if of_address >= self._for_address_max else None)
            if loser is None:
                return False
            loser.displace()
            self.remove(loser)
            of_address = self._by_address.get(address, 0)
        self.connections.add(connection)
        self._unproven[connection] = None
        self._by_address[address] = of_address + 1
        return True

    def _idlest(self, address: str | None) -> Connection | None:
        """The connection whose place is given away, of one address or of any."""

        def candidates(connections: "dict[Connection, None] | set[Connection]") -> Iterator[Connection]:
            return (one for one in connections if (address is None or one.address == address) and not one.is_busy)

        unproven = next(candidates(self._unproven), None)
        if unproven is not None:
            return unproven
        idlest = min(candidates(self.connections), key=lambda one: one.completed_ms or 0, default=None)
        if idlest is None or self.now_ms - (idlest.completed_ms or 0) < DISPLACED_AFTER_MS:
            return None
        return idlest

    def prove(self, connection: Connection) -> None:
        """A connection has completed its first request."""
        self._unproven.pop(connection, None)

    def remove(self, connection: Connection) -> None:
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        self._unproven.pop(connection, None)
        address = connection.address
        of_address = self._by_address[address] - 1
        if of_address:
            self._by_address[address] = of_address
        else:
            del self._by_address[address]
        if not self.connections and self.on_empty is not None:
            self.on_empty()

    def start_sweeping(self) -> None:
        self.now_ms = self.clock.monotonic_ms()
        self._timer = self.clock.call_later(self._sweep_ms, self._sweep)

    def stop_sweeping(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def write_deadline_ms(self, usual_ms: int) -> int:
        """How long a peer may leave its answers untaken: less while others wait for the memory that they hold."""
        return min(usual_ms, self.answers.config.stalled_ms_max) if self.answers.is_wanted else usual_ms

    def _sweep(self) -> None:
        self.start_sweeping()
        for connection in list(self.connections):
            connection.check_deadlines(self.now_ms)
        self.answers.sweep(self.now_ms)

    async def drain(self, *, deadline_ms: int, on_cut: Callable[[int, int], None]) -> None:
        """Answer what is in flight, then close. What is left at the deadline is cut, and told.

        `on_cut` hears how many connections, and how many requests, also of clients that have left.
        """
        empty = asyncio.Event()
        self.on_empty = empty.set
        for connection in list(self.connections):
            connection.drain()
        timer = self.clock.call_later(deadline_ms, lambda: self._cut(on_cut))
        if self.connections:
            await empty.wait()
        await self.under_way.finished()
        timer.cancel()
        self.stop_sweeping()

    def _cut(self, on_cut: Callable[[int, int], None]) -> None:
        connections = list(self.connections)
        on_cut(len(connections), self.under_way.count)
        for connection in connections:
            connection.abort()
        self.under_way.cancel()


def counted_address(peer: object) -> str:
    """The address of a transport's peer, as it counts: of IPv6, its network."""
    host = str(peer[0]) if isinstance(peer, tuple) else str(peer)
    if ":" not in host:
        return host
    try:
        address = ipaddress.IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, _IPV6_NETWORK_BITS), strict=False))
