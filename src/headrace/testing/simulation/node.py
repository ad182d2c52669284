"""One node of a run: started again whenever it is down, until the run says otherwise."""

import asyncio
from collections.abc import Callable
from typing import Literal

from headrace.app.config import NodeConfig
from headrace.app.node import Node
from headrace.model.errors import HeadraceError
from headrace.testing.event_loop import Actor, VirtualLoop
from headrace.testing.host import SharedMetadata, SimulatedMachine
from headrace.testing.network import Network
from headrace.testing.rand import Chooser

State = Literal["down", "starting", "up", "stopping"]

_LOOK_S = 0.25
_START_AGAIN_S = 30.0
_STOP_S = 120.0


class SimulatedNode:
    """A machine, and the processes that run a node on it one after another."""

    def __init__(
        self,
        *,
        machine: SimulatedMachine,
        loop: VirtualLoop,
        network: Network,
        config: NodeConfig,
        metadata: SharedMetadata,
        chance: Chooser,
        fail: Callable[[str], None],
    ) -> None:
        self.machine = machine
        self.state: State = "down"
        self.node: Node | None = None
        self.actor: Actor = loop.world
        self.start_count = 0
        self.settled = asyncio.Event()  # clear while a process starts
        self.settled.set()
        self._failed_count = 0  # starts, one after another
        self.must_restart = False  # something failed for good in this process
        self.may_start = True
        self.disk_may_fail = False  # a failure is planted, and may strike a start too
        self._stop: asyncio.Task[None] | None = None
        self._loop = loop
        self._network = network
        self._config = config
        self._metadata = metadata
        self._chance = chance
        self._fail = fail

    async def supervise(self) -> None:
        """Start the node whenever it is down and may be up. The world's task."""
        while True:
            if self.state == "down" and self.may_start:
                # As a service manager does, which waits longer for a process that does not come up.
                await asyncio.sleep(min(_LOOK_S * 2**self._failed_count, _START_AGAIN_S) - _LOOK_S)
                if self.may_start:
                    self._start()
            await asyncio.sleep(_LOOK_S)

    def _start(self) -> None:
        if not self.machine.place.has_power or self.machine.boot_count == 0:
            self.machine.boot()
        self.start_count += 1
        self.must_restart = self.disk_may_fail
        self.state = "starting"
        self.settled.clear()
        self.actor = self._loop.make_actor(f"node-{self.start_count}")
        self._network.trace.note("start", self.start_count)
        self._loop.spawn(self.actor, self._run(self.actor))

    async def _run(self, actor: Actor) -> None:
        try:
            node = Node(self._config, self.machine.make_host(actor), metadata=self._metadata)
            await node.start()
        except (OSError, HeadraceError) as error:
            self._network.trace.note("start failed", type(error).__name__)
            self._loop.call_soon_for(self._loop.world, self._exited, actor)
            return
        except Exception as error:  # noqa: BLE001 -- the checker reports it
            self._fail(f"the node could not start: {error!r}")
            self._loop.call_soon_for(self._loop.world, self._exited, actor)
            return
        self.node, self.state, self._failed_count = node, "up", 0
        self.settled.set()
        node.failed.add_done_callback(self._node_failed)

    def _node_failed(self, failed: "asyncio.Future[None]") -> None:
        error = failed.exception()
        self._network.trace.note("node failed", type(error).__name__)
        if not isinstance(error, OSError | HeadraceError):
            self._fail(f"a task of the node failed: {error!r}")
        self.must_restart = True

    def _exited(self, actor: Actor) -> None:
        """A process that could not start is gone; what it had open is closed."""
        if actor is self.actor and self.state == "starting":
            self._failed_count += 1
            self.crash(loses_power=False)

    def crash(self, *, loses_power: bool) -> None:
        """End the process without a word: no `finally` block runs. Without power, unsynced data may be lost."""
        self._network.crash(self.machine.place, loses_power=loses_power)
        self._loop.kill(self.actor)
        if loses_power:
            self.machine.disk.crash(self._chance)
        self.state, self.node = "down", None
        self.settled.set()

    async def stop(self) -> None:
        """Stop as an operator does. A caller that is cancelled leaves the stop under way."""
        if self.state == "up" and self.node is not None:
            self.state = "stopping"
            self._stop = self._loop.create_task(self._stop_process(self.node, self.actor))
        if self.state == "stopping" and self._stop is not None:
            await asyncio.shield(self._stop)

    async def _stop_process(self, node: Node, actor: Actor) -> None:
        stopping = self._loop.spawn(actor, node.stop())
        done, _ = await asyncio.wait([stopping], timeout=_STOP_S)
        if self.actor is not actor or self.state != "stopping":
            return  # it crashed meanwhile
        if not done:
            self._fail(f"the node did not stop within {_STOP_S} s")
        elif (error := stopping.exception()) is not None and not isinstance(error, OSError | HeadraceError):
            self._fail(f"the node did not stop well: {error!r}")
        self.crash(loses_power=False)
