"""A network in memory: listeners, connections with latency, resets, cut links and half-open connections.

Theory of operation. A connection is two `SimulatedTransport`s (`transport.py`). A cut link holds what is on its way
until it is healed, as retransmission does. A machine without power takes and answers nothing; one that came back
answers what it does not know with a reset.
"""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from headrace.testing.event_loop import Actor, VirtualLoop
from headrace.testing.rand import Chooser
from headrace.testing.transport import Machine, SimulatedTransport, Trace

P = TypeVar("P", bound=asyncio.BaseProtocol)

_PIECES_MAX = 4
_RETRANSMIT_S = 1.0


class SimulatedListener:
    """A `headrace.host.transport.Listener`."""

    def __init__(
        self, network: "Network", machine: Machine, port: int, factory: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        self.machine = machine
        self.actor = machine.actor
        self.port = port
        self.factory = factory
        self._network = network

    @property
    def address(self) -> tuple[str, int]:
        return self.machine.host, self.port

    async def close(self) -> None:
        self._network.stop_listening(self)


class NetworkTransport:
    """A `headrace.host.transport.Transport`: the network as one machine sees it."""

    def __init__(self, network: "Network", machine: Machine) -> None:
        self._network = network
        self._machine = machine

    async def listen(self, host: str, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> SimulatedListener:
        return self._network.listen(self._machine, port, factory)

    async def connect(self, host: str, port: int, factory: Callable[[], P]) -> tuple[asyncio.Transport, P]:
        return await self._network.connect(self._machine, host, port, factory)


class Network:
    def __init__(self, loop: VirtualLoop, choose: Chooser, trace: Trace, *, window_bytes: int = 256 * 1024) -> None:
        self.loop = loop
        self.trace = trace
        self.window_bytes = window_bytes
        self.actor = loop.make_actor("network")
        self.latency_ms = (0.05, 0.5)
        self.machines: dict[str, Machine] = {}
        self._choose = choose
        self._listeners: dict[tuple[str, int], SimulatedListener] = {}
        self._ends: dict[int, SimulatedTransport] = {}
        self._end_count = 0
        self._cut: dict[tuple[str, str], list[Callable[[], None]]] = {}

    def add_machine(self, host: str, actor: Actor) -> Machine:
        machine = self.machines[host] = Machine(host, actor)
        return machine

    # Delays.

    def latency_s(self) -> float:
        low, high = self.latency_ms
        return (low + (high - low) * self._choose.random()) / 1000

    def split(self, data: bytes) -> list[bytes]:
        """The pieces in which the bytes arrive: mostly one."""
        if len(data) < 2 or self._choose.random() < 0.9:
            return [data]
        places = sorted(self._choose.randint(1, len(data) - 1) for _ in range(self._choose.randint(1, _PIECES_MAX - 1)))
        return [
            part for begin, end in zip([0, *places], [*places, len(data)], strict=True) if (part := data[begin:end])
        ]

    # Listening and connecting.

    def listen(self, machine: Machine, port: int, factory: Callable[[], asyncio.BaseProtocol]) -> SimulatedListener:
        if port == 0:
            port, machine.next_port = machine.next_port, machine.next_port + 1
        if (machine.host, port) in self._listeners:
            raise OSError(98, "Address already in use")
        listener = SimulatedListener(self, machine, port, factory)
        self._listeners[machine.host, port] = listener
        return listener

    def stop_listening(self, listener: SimulatedListener) -> None:
        self._listeners.pop(listener.address, None)

    async def connect(
        self, machine: Machine, host: str, port: int, factory: Callable[[], P]
    ) -> tuple[asyncio.Transport, P]:
        while True:
            await asyncio.sleep(self.latency_s())
            target = self.machines.get(host)
            if target is not None and target.has_power and not self.is_cut(machine.host, host):
                break
            await asyncio.sleep(_RETRANSMIT_S)  # until the caller gives up
        listener = self._listeners.get((host, port))
        if listener is None:
            raise ConnectionRefusedError(111, f"Connect call failed ('{host}', {port})")
        own = (machine.host, machine.next_port)
        machine.next_port += 1
        near = self._make_end(machine, (own, (host, port)))
        far = self._make_end(listener.machine, ((host, port), own))
        near.peer, far.peer = far, near
        protocol = factory()
        self.trace.note("connected", machine.host, host, port, near.number)
        self.loop.call_soon_for(far.actor, self._accept, listener, far)
        near.start(protocol)
        return near, protocol

    def _accept(self, listener: SimulatedListener, end: SimulatedTransport) -> None:
        end.start(listener.factory())

    def _make_end(self, machine: Machine, addresses: tuple[Any, Any]) -> SimulatedTransport:
        self._end_count += 1
        end = SimulatedTransport(self, machine, self._end_count, addresses)
        self._ends[self._end_count] = end
        return end

    def forget(self, end: SimulatedTransport) -> None:
        self._ends.pop(end.number, None)

    # Carrying.

    def carry(self, sender: SimulatedTransport, piece: bytes | None) -> None:
        receiver = sender.peer
        if self._held(sender, lambda: self.carry(sender, piece)):
            return
        if not receiver.machine.has_power:
            if not sender.is_lost:
                at = self.loop.time() + _RETRANSMIT_S
                self.loop.call_at_for(self.actor, at, self.carry, sender, piece)
        elif receiver.actor.is_dead:
            # The machine runs, and no process there knows this connection.
            self.refuse(sender)
        else:
            receiver.arrive(piece)

    def refuse(self, sender: SimulatedTransport) -> None:
        """Tell a sender that no connection is there any more."""
        at = self.loop.time() + self.latency_s()
        self.loop.call_at_for(self.actor, at, self.loop.call_soon_for, sender.actor, sender.reset)

    def carry_reset(self, sender: SimulatedTransport) -> None:
        if self._held(sender, lambda: self.carry_reset(sender)) or not sender.peer.machine.has_power:
            return
        self.loop.call_soon_for(sender.peer.actor, sender.peer.reset)

    def _held(self, sender: SimulatedTransport, again: Callable[[], None]) -> bool:
        waiting = self._cut.get((sender.machine.host, sender.peer.machine.host))
        if waiting is None:
            return False
        waiting.append(again)
        return True

    # Faults.

    def is_cut(self, host: str, other: str) -> bool:
        return (host, other) in self._cut or (other, host) in self._cut

    def cut(self, sender: str, receiver: str) -> None:
        """Let nothing through in one direction."""
        self._cut.setdefault((sender, receiver), [])

    def heal(self) -> None:
        cut, self._cut = self._cut, {}
        for waiting in cut.values():
            for again in waiting:
                again()

    def reset_some(self, share: float) -> int:
        """Break some connections at both ends."""
        ends = [end for end in self._ends.values() if end.number % 2 and self._choose.random() < share]
        for end in ends:
            self.loop.call_soon_for(end.actor, end.reset)
            self.loop.call_soon_for(end.peer.actor, end.peer.reset)
        return len(ends)

    def crash(self, machine: Machine, *, loses_power: bool) -> None:
        """A process is gone. Its kernel says so to its peers, unless it is gone as well."""
        self._listeners = {at: one for at, one in self._listeners.items() if one.machine is not machine}
        ends = [end for end in self._ends.values() if end.machine is machine]
        for end in ends:
            if not loses_power:
                end._reset_peer()
            self._ends.pop(end.number, None)
        machine.has_power = not loses_power
