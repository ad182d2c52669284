"""One run: a whole node under load and faults, healed at the end, and judged by what its clients were told.

Phases. The node starts and the places are made; clients send, receive and read along while faults happen; everything
heals; from then on, within a bounded virtual time, each sender has its last answer, each queue is worked off and each
topic is read to its end. Then the node stops, and the checker judges the history.
"""

import asyncio
import logging
import random  # noqa: TID251 -- seeded by the run
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from headrace.client.admin import Admin
from headrace.host.process import process_usage
from headrace.model.errors import HeadraceError, TopicExistsError
from headrace.testing.checker import Verdict, check
from headrace.testing.clock import LoopClock
from headrace.testing.event_loop import StuckError, VirtualLoop
from headrace.testing.history import History
from headrace.testing.host import SharedMetadata, SimulatedMachine
from headrace.testing.network import Network
from headrace.testing.simulation.client import LoadClient, Phase, World
from headrace.testing.simulation.door import CallRefusedError, UnclearError
from headrace.testing.simulation.fault import Delays, Faults
from headrace.testing.simulation.group_load import GroupMember
from headrace.testing.simulation.node import SimulatedNode
from headrace.testing.simulation.plan import NODE_HOST, FaultKind, Plan
from headrace.testing.simulation.queue_load import QUEUES, QueueSender, QueueWorker, door_of
from headrace.testing.simulation.stream_load import (
    IDEMPOTENT,
    PARTITIONS,
    SEND_BY,
    TOPICS,
    Follower,
    read_all,
)
from headrace.testing.simulation.trace import Trace
from headrace.testing.store import MemoryStore

_LIVENESS_S = 600.0
_LOOK_S = 0.5
_MEMBERS = 2
_LOG_LINES_MAX = 100


class _NotLiveError(Exception):
    """A wait did not end; what comes after it would not either."""


@dataclass(kw_only=True)
class Report:
    """What a run was and what came of it."""

    plan: Plan
    verdict: Verdict
    trace_hash: str
    event_count: int
    virtual_s: float
    cpu_s: float
    faults: Counter[FaultKind]
    starts: int
    log: list[str] = field(default_factory=list)

    @property
    def is_good(self) -> bool:
        return not self.verdict.violations

    @property
    def messages(self) -> int:
        return self.verdict.counts["messages sent to queues"] + self.verdict.counts["records sent"]


class Simulation:
    """Made for one plan and run once. `spoil` may change a node's machine before it starts: a planted mutant."""

    def __init__(self, plan: Plan, *, keep_trace: bool = False, spoil: Callable[[Any], None] | None = None) -> None:
        self.plan = plan
        chance = random.Random(f"run/{plan.seed}")
        self.loop = VirtualLoop(random.Random(f"turns/{plan.seed}"))
        self.trace = Trace(self.loop.time, keep_all=keep_trace)
        self.history = History(self.loop.time, queues=QUEUES, topics=TOPICS)
        self.loop.set_exception_handler(self._unhandled)
        self.network = Network(
            self.loop, random.Random(f"network/{plan.seed}"), self.trace, window_bytes=plan.window_bytes
        )
        self.delays = Delays(random.Random(f"delays/{plan.seed}"))
        self.machine = SimulatedMachine(
            NODE_HOST, seed=plan.seed, loop=self.loop, network=self.network, delays=self.delays
        )
        if spoil is not None:
            spoil(self.machine)
        self.store = MemoryStore(LoopClock(self.loop))
        self.node = SimulatedNode(
            machine=self.machine,
            loop=self.loop,
            network=self.network,
            config=plan.config,
            metadata=SharedMetadata(self.store, delays=self.delays),
            chance=chance,
            fail=self.history.fail,
        )
        self.world = World(
            loop=self.loop,
            network=self.network,
            trace=self.trace,
            history=self.history,
            kafka=plan.config.kafka.listen,
            http=plan.config.http.listen,
            phase=Phase(),
            pause_ms=plan.pause_ms,
            seed=plan.seed,
        )
        self.has_ended = False
        self.senders: list[LoadClient] = []
        self.workers: list[QueueWorker] = []
        self.followers: list[LoadClient] = []
        self.members: list[GroupMember] = []
        self._make_clients()
        hosts = [client.host for client in self._clients()]
        self.faults = Faults(
            plan=plan,
            node=self.node,
            network=self.network,
            delays=self.delays,
            store=self.store,
            hosts=hosts,
        )

    def run(self) -> Report:
        begun_s = process_usage().cpu_seconds
        with _captured_log(self.loop) as lines:
            main = self.loop.spawn(self.loop.world, self._main())
            try:
                self.loop.run_until_complete(main)
            except StuckError as error:
                self.history.fail(str(error))
            virtual_s = self.loop.time()
            self._note_end()
            self._end_everything()
        return Report(
            plan=self.plan,
            verdict=self._judge(),
            trace_hash=self.trace.digest(),
            event_count=self.trace.count,
            virtual_s=virtual_s,
            cpu_s=process_usage().cpu_seconds - begun_s,
            faults=self.faults.counts,
            starts=self.node.start_count,
            log=lines,
        )

    def _judge(self) -> Verdict:
        """A run that did not come to its end shows nothing but that: what is there was not read."""
        if self.has_ended:
            return check(self.history)
        return check(History(self.loop.time, trouble=self.history.trouble))

    def _make_clients(self) -> None:
        number = 1
        for queue in QUEUES:
            label = queue.name.partition(".")[0]
            self.senders.append(QueueSender(f"{label}-s", self.world, number, queue))
            self.workers.append(QueueWorker(f"{label}-w0", self.world, number + 1, queue))
            self.workers.append(QueueWorker(f"{label}-w1", self.world, number + 2, queue))
            number += 3
        for topic in TOPICS:
            self.senders.append(SEND_BY[topic](f"{topic.name}-s", self.world, number, topic))
            self.followers.append(Follower(f"{topic.name}-f", self.world, number + 1, topic))
            number += 2
        for place in range(_MEMBERS):
            self.members.append(GroupMember(f"member-{place}", self.world, number + place, IDEMPOTENT))

    def _clients(self) -> list[LoadClient]:
        return [*self.senders, *self.workers, *self.followers, *self.members]

    async def _main(self) -> None:
        supervisor = self.loop.create_task(self.node.supervise())
        setter = LoadClient("setter", self.world, 250)
        if not await self._within("the places are made", self._do(setter, self._make_places(setter))):
            return
        for client in self._clients():
            client.start()
        faults = self.loop.create_task(self.faults.run())
        await asyncio.sleep(self.plan.busy_s)
        faults.cancel()
        await asyncio.wait([faults])
        if not faults.cancelled() and (error := faults.exception()) is not None:
            raise error
        self.node.may_start = True
        await self.faults.heal()
        try:
            await self._become_quiet(setter)
        except _NotLiveError:
            return  # nobody has looked at what is there
        supervisor.cancel()
        self.trace.note("stopping")
        self.has_ended = True
        await self.node.stop()

    async def _become_quiet(self, reader: LoadClient) -> None:
        """Liveness: everything that was begun comes to its end."""
        self.world.phase.end_sending()
        await self._until("every sender has its last answer", lambda: _not_done(self.senders))
        await self._until("every queue is worked off", lambda: [one.name for one in self.workers if not one.is_empty])
        await self._until(
            "the group has read everything", lambda: [one.name for one in self.members if not one.is_empty]
        )
        self.world.phase.is_working = False
        await self._until(
            "every consumer comes home", lambda: _not_done([*self.workers, *self.followers, *self.members])
        )
        await self._within("every topic is read to its end", self._do(reader, self._read_topics(reader)))

    async def _until(self, what: str, left: Callable[[], list[str]]) -> None:
        """Wait until no client is left of which this is not true."""
        deadline_s = self.loop.time() + _LIVENESS_S
        while names := left():
            if self.loop.time() > deadline_s:
                self.history.fail(f"liveness: not within {_LIVENESS_S:.0f} s: {what}; left are {', '.join(names)}")
                raise _NotLiveError
            await asyncio.sleep(_LOOK_S)

    async def _within(self, what: str, task: "asyncio.Task[None]") -> bool:
        done, _ = await asyncio.wait([task], timeout=_LIVENESS_S)
        if done:
            task.result()
            return True
        self.history.fail(f"liveness: not within {_LIVENESS_S:.0f} s: {what}")
        return False

    def _do(self, client: LoadClient, work: Any) -> "asyncio.Task[None]":
        return self.loop.spawn(client.actor, work)

    async def _make_places(self, client: LoadClient) -> None:
        admin = Admin(client.router(deadline_ms=60_000))
        config = {"segment.bytes": str(self.plan.segment_bytes)}
        for topic in TOPICS:
            try:
                await admin.create_topic(topic.name, partition_count=PARTITIONS, config=config)
            except TopicExistsError:
                continue
        for queue in QUEUES:
            door = door_of(queue, self.world.http, client.clock, client.transport)
            while True:
                try:
                    await door.make()
                except (UnclearError, CallRefusedError) as error:
                    self.trace.note("could not make", queue.name, error)
                    await asyncio.sleep(1.0)
                else:
                    break

    async def _read_topics(self, client: LoadClient) -> None:
        router = client.router()
        for topic in TOPICS:
            while True:
                try:
                    self.history.final += await read_all(router, topic.name)
                except HeadraceError as error:
                    client.told("could not read", topic.name, error.code)
                    await asyncio.sleep(1.0)
                else:
                    break

    # The end.

    def _note_end(self) -> None:
        for path, data in sorted(self.machine.disk.files().items()):
            self.trace.note("file", path, len(data), blake2b(data, digest_size=16).hexdigest())

    def _end_everything(self) -> None:
        for client in self._clients():
            self.loop.kill(client.actor)
        self.loop.kill(self.node.actor)
        self.loop.kill(self.loop.world)
        self.loop.close()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        task = context.get("future") or context.get("task")
        if isinstance(task, asyncio.Task) and self.loop.is_buried(task):
            return
        error = context.get("exception")
        if "never retrieved" in context["message"] and isinstance(error, OSError | HeadraceError):
            return  # a call that its caller has given up
        self.history.fail(f"unhandled: {context['message']}: {error!r}")


def _not_done(clients: Sequence[LoadClient]) -> list[str]:
    return [client.name for client in clients if client.main is not None and not client.main.done()]


@contextmanager
def _captured_log(loop: VirtualLoop) -> Iterator[list[str]]:
    """The last warnings of the node, which go nowhere else."""
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            known = {"error", "reason", "file", "partition", "exc_info"}
            values = {name: value for name, value in record.__dict__.items() if name in known and value}
            lines.append(f"{loop.time():.3f} {record.levelname} {record.getMessage()} {values}")
            del lines[:-_LOG_LINES_MAX]

    logger = logging.getLogger("headrace")
    handler = Keep(level=logging.WARNING)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before
        logger.setLevel(before[0])
