"""Answers may be made while the disk is waited for. They are given when it has done its part, and not otherwise."""

import asyncio
import threading

import pytest
from tests.broker.node import Node, run
from tests.broker.queue.world import NAME, QueueWorld

from headrace.broker.promise import Promise
from headrace.host.threads import PoolThreads
from headrace.model.errors import HeadraceError
from headrace.model.message import Message, Sent
from headrace.testing.clock import settle
from headrace.testing.disk import SimulatedDisk
from headrace.testing.fault import Operation

SENDS = 20
DEADLINE_S = 20.0


class World:
    """A queue on a slow disk, with messages that were sent to it one by one, and what was said of them."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.disk.on_call = self._wait_to_sync
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.threads = PoolThreads(name="sync", count_max=2)
        self.foreseen: list[Sent] = []
        self.done: list[Promise[Sent]] = []
        self._said = asyncio.Event()

    async def start(self) -> "World":
        self.queue = await QueueWorld(Node(disk=self.disk, sync_threads=self.threads)).start()
        self.may_sync.clear()
        return self

    def _wait_to_sync(self, operation: Operation, path: str) -> None:
        if operation == "fdatasync" and path.endswith(".journal"):
            assert self.may_sync.wait(DEADLINE_S)

    def send(self, count: int) -> None:
        for number in range(count):
            sent = self.queue.queues.send_one(NAME, Message(b"%d" % number))
            sent.then(self._finished, self._foreseen)

    def _finished(self, sent: Promise[Sent]) -> None:
        self.done.append(sent)
        self._said.set()

    def _foreseen(self, sent: Sent) -> None:
        self.foreseen.append(sent)
        self._said.set()

    async def wait(self, what: list[Sent] | list[Promise[Sent]], count: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while len(what) < count:
                self._said.clear()
                await self._said.wait()

    def stop(self) -> None:
        self.may_sync.set()
        self.threads.close()


def test_where_messages_are_is_foreseen_while_the_disk_is_waited_for_and_told_when_it_is_certain() -> None:
    async def main() -> None:
        world = await World().start()
        world.send(SENDS)
        await world.wait(world.foreseen, SENDS)
        assert not world.done, "nothing is durable yet"
        world.may_sync.set()
        await world.wait(world.done, SENDS)
        assert [sent.result() for sent in world.done] == world.foreseen
        assert [sent.offset for sent in world.foreseen] == list(range(world.foreseen[0].offset, SENDS))
        world.stop()

    run(main())


def test_what_was_foreseen_is_not_told_if_the_disk_fails() -> None:
    async def main() -> None:
        world = await World().start()
        world.disk.fail("fdatasync", path_part=".journal")
        world.send(SENDS)
        await world.wait(world.foreseen, SENDS)
        world.may_sync.set()
        await world.wait(world.done, SENDS)
        for sent in world.done:
            with pytest.raises(HeadraceError):
                sent.result()
        world.stop()

    run(main())


def test_a_lone_message_wakes_nobody_while_the_disk_is_waited_for() -> None:
    async def main() -> None:
        world = await World().start()
        world.send(1)
        await settle()
        world.may_sync.set()
        await world.wait(world.done, 1)
        assert world.foreseen == []
        world.stop()

    run(main())
