"""The faults of a run: each is planned by the seed, lasts for a while, and is counted by its kind."""

import asyncio
import errno
import random  # noqa: TID251 -- seeded by the run
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.testing.network import Network
from headrace.testing.simulation.node import SimulatedNode
from headrace.testing.simulation.plan import FaultKind, Plan
from headrace.testing.store import Failure, MemoryStore

_JUMPS_S = (1.0, 60.0, 3_600.0, 40 * 86_400.0)
_SYNC_CALLS = ("fdatasync", "sync_directory")
_WRITE_CALLS = ("pwritev", "rename", "open", "truncate")


class Delays:
    """A `headrace.testing.host.Delays`: how slow the node's machine is now."""

    def __init__(self, chance: random.Random) -> None:
        self.is_slow = False
        self._chance = chance

    def thread_s(self, pool: str) -> float:
        if self.is_slow and self._chance.random() < 0.1:
            return self._chance.uniform(0.1, 3.0)
        return self._chance.uniform(0.00002, 0.002)

    def store_s(self) -> float:
        return self._chance.uniform(0.0001, 0.003)


class Faults:
    def __init__(
        self,
        *,
        plan: Plan,
        node: SimulatedNode,
        network: Network,
        delays: Delays,
        store: MemoryStore,
        hosts: list[str],
    ) -> None:
        self.counts: Counter[FaultKind] = Counter()
        self._plan = plan
        self._node = node
        self._network = network
        self._delays = delays
        self._store = store
        self._hosts = hosts
        self._chance = random.Random(f"faults/{plan.seed}")
        self._kinds: dict[FaultKind, Callable[[], Coroutine[Any, Any, None]]] = {
            "kill": self._kill,
            "power": self._lose_power,
            "stop": self._stop,
            "pause": self._pause,
            "full_disk": self._fill_disk,
            "sync_error": self._fail_sync,
            "write_error": self._fail_write,
            "slow_disk": self._slow_disk,
            "short_writes": self._short_writes,
            "cold_cache": self._cold_cache,
            "write_back": self._write_back,
            "clock_jump": self._jump_clock,
            "reset": self._reset,
            "cut": self._cut,
            "slow_network": self._slow_network,
            "store": self._disturb_store,
        }

    async def run(self) -> None:
        """One fault after another, some of which last while others begin, until cancelled. The world's task."""
        lasting: list[asyncio.Task[None]] = [asyncio.create_task(self._restart_what_failed())]
        try:
            while self._plan.faults:
                await asyncio.sleep(self._chance.expovariate(1 / self._plan.fault_interval_s))
                kind = self._chance.choice(self._plan.faults)
                self.counts[kind] += 1
                self._network.trace.note("fault", kind)
                lasting.append(asyncio.create_task(self._kinds[kind]()))
        finally:
            for task in lasting:
                task.cancel()
            for outcome in await asyncio.gather(*lasting, return_exceptions=True):
                if isinstance(outcome, Exception):
                    raise outcome

    async def _restart_what_failed(self) -> None:
        """What a failed disk call has taken offline stays so until the node starts again."""
        while True:
            await self._rest(max(5.0, self._plan.fault_interval_s))
            if self._node.must_restart and self._node.state == "up":
                self._node.crash(loses_power=False)

    async def heal(self) -> None:
        """End every fault. What a failed disk call has taken offline needs a restart."""
        disk = self._node.machine.disk
        disk.heal()
        disk.capacity_bytes = None
        self._node.disk_may_fail = False
        self._delays.is_slow = False
        self._network.heal()
        self._network.latency_ms = (0.05, 0.5)
        self._store.disturb = None
        self._network.loop.resume(self._node.actor)
        await self._node.settled.wait()
        if self._node.must_restart or self._node.state == "stopping":
            await self._node.stop()
        self._network.trace.note("healed")

    async def _rest(self, longest_s: float) -> None:
        await asyncio.sleep(self._chance.uniform(0.0, longest_s))

    # Processes.

    async def _kill(self) -> None:
        await self._crash(loses_power=False)

    async def _lose_power(self) -> None:
        await self._crash(loses_power=True)

    async def _crash(self, *, loses_power: bool) -> None:
        self._node.may_start = False
        if self._node.state != "down":
            self._node.crash(loses_power=loses_power)
        await self._rest(3.0)
        self._node.may_start = True

    async def _stop(self) -> None:
        await self._node.stop()

    async def _pause(self) -> None:
        actor = self._node.actor
        self._network.loop.pause(actor)
        await self._rest(self._chance.choice((1.0, 20.0)))
        self._network.loop.resume(actor)

    # The disk.

    async def _fill_disk(self) -> None:
        disk = self._node.machine.disk
        used = sum(map(len, disk.files().values()))
        disk.capacity_bytes = used + self._chance.randint(0, 128 * 1024)
        await self._rest(20.0)
        disk.capacity_bytes = None

    async def _fail_sync(self) -> None:
        self._plant(_SYNC_CALLS)
        await self._rest(5.0)

    async def _fail_write(self) -> None:
        self._plant(_WRITE_CALLS)
        await self._rest(5.0)

    def _plant(self, calls: tuple[str, ...]) -> None:
        call = self._chance.choice(calls)
        number = self._chance.choice((errno.EIO, errno.EIO, errno.ENOSPC))
        disk = self._node.machine.disk
        disk.fail(call, nth=self._chance.randint(1, 10), error=number)  # type: ignore[arg-type]  # from the tables above
        self._node.disk_may_fail = self._node.must_restart = True

    async def _slow_disk(self) -> None:
        self._delays.is_slow = True
        await self._rest(10.0)
        self._delays.is_slow = False

    async def _short_writes(self) -> None:
        disk = self._node.machine.disk
        disk.short_writes = lambda size: self._chance.randint(1, size)
        await self._rest(10.0)
        disk.short_writes = None

    async def _cold_cache(self) -> None:
        disk = self._node.machine.disk
        disk.all_cold = True
        await self._rest(10.0)
        disk.all_cold = False

    async def _write_back(self) -> None:
        self._node.machine.disk.write_back(self._chance)

    # Clocks, network, store.

    async def _jump_clock(self) -> None:
        jump_s = self._chance.choice(_JUMPS_S) * self._chance.choice((-1, 1))
        clock = self._node.machine.clock
        clock.jump_wall(int(jump_s * 1000))
        await self._rest(20.0)
        if self._chance.random() < 0.5:
            self._node.machine.clock.jump_wall(-int(jump_s * 1000))

    async def _reset(self) -> None:
        self._network.reset_some(self._chance.choice((0.1, 1.0)))

    async def _cut(self) -> None:
        here = self._node.machine.host
        for host in self._hosts:
            if self._chance.random() < 0.3:
                self._network.cut(*self._chance.choice(((here, host), (host, here))))
        await self._rest(20.0)
        self._network.heal()

    async def _slow_network(self) -> None:
        self._network.latency_ms = (1.0, self._chance.choice((50.0, 1000.0)))
        await self._rest(20.0)
        self._network.latency_ms = (0.05, 0.5)

    async def _disturb_store(self) -> None:
        kinds: tuple[Failure | None, ...] = ("before", "after", None)
        self._store.disturb = lambda: self._chance.choice(kinds)
        await self._rest(5.0)
        self._store.disturb = None
