"""A client of a simulated run: one actor on a machine of its own, which notes what it asked and what it was told."""

import asyncio
import random  # noqa: TID251 -- seeded by the run
from contextlib import suppress
from dataclasses import dataclass

from headrace.client.router import ClientConfig, Router
from headrace.host.clock import Clock
from headrace.host.transport import Transport
from headrace.model.address import Address
from headrace.testing.clock import LoopClock
from headrace.testing.event_loop import Actor, VirtualLoop
from headrace.testing.history import History
from headrace.testing.network import Network, NetworkTransport
from headrace.testing.rand import SeededRand
from headrace.testing.simulation.trace import Trace

_LONG_PAUSE_S = 5.0
_QUIET_PAUSE_S = 0.2


class Phase:
    """How far a run has come."""

    def __init__(self) -> None:
        self.is_sending = True
        self.is_working = True
        self.quiet = asyncio.Event()  # set once no more is sent

    def end_sending(self) -> None:
        self.is_sending = False
        self.quiet.set()


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the clients of a run share."""

    loop: VirtualLoop
    network: Network
    trace: Trace
    history: History
    kafka: Address
    http: Address
    phase: Phase
    pause_ms: float  # between two calls of a client, on average
    seed: int


class LoadClient:
    """Goes on until it is told to stop, whatever happens to the node. `main` is its task."""

    def __init__(self, name: str, world: World, number: int) -> None:
        self.name = name
        self.world = world
        self.history = world.history
        self.host = f"10.0.1.{number}"
        self.actor: Actor = world.loop.make_actor(name)
        self.chance = random.Random(f"{world.seed}/{name}")
        self.clock: Clock = LoopClock(world.loop)
        self.rand = SeededRand(self.chance.getrandbits(32))
        self.transport: Transport = NetworkTransport(world.network, world.network.add_machine(self.host, self.actor))
        self.main: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.main = self.world.loop.spawn(self.actor, self._guarded())

    async def run(self) -> None:
        raise NotImplementedError

    async def _guarded(self) -> None:
        try:
            await self.run()
        except Exception as error:  # noqa: BLE001 -- the checker reports it
            self.history.fail(f"{self.name}: {error!r}")

    @property
    def is_sending(self) -> bool:
        return self.world.phase.is_sending

    @property
    def is_working(self) -> bool:
        return self.world.phase.is_working

    async def rest(self) -> None:
        """Think for a while: a moment only, once the load ends."""
        pause_s = self.chance.expovariate(1.0) * self.world.pause_ms / 1000
        quiet = self.world.phase.quiet
        if quiet.is_set():
            await asyncio.sleep(min(pause_s, _QUIET_PAUSE_S))
        elif pause_s < _LONG_PAUSE_S:
            await asyncio.sleep(pause_s)
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await quiet.wait()

    def router(self, *, deadline_ms: int = 10_000) -> Router:
        config = ClientConfig(client_id=self.name, connect_timeout_ms=2_000, deadline_ms=deadline_ms)
        return Router([self.world.kafka], config, clock=self.clock, rand=self.rand, transport=self.transport)

    def told(self, *what: object) -> None:
        """Answers are part of the trace: a run is the same only if every client heard the same."""
        self.world.trace.note(self.name, *what)
