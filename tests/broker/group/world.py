"""A simulated node with groups, and what tests of groups say often, in few words."""

import asyncio
from typing import Any

from tests.broker.node import Node

from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.groups import NodeGroups
from headrace.broker.group.port import Caller, Join, OffsetCommit, Outcomes, Sync
from headrace.folds.group.machine import Joined
from headrace.testing.clock import settle

CONFIG = GroupsConfig(partitions=2, initial_rebalance_delay_ms=0)
SESSION_MS = 10_000


class GroupNode(Node):
    """A node whose groups come and go with it."""

    def __init__(self, config: GroupsConfig = CONFIG, **options: Any) -> None:
        super().__init__(**options)
        self.groups_config = config

    async def start(self) -> "GroupNode":
        await super().start()
        self.groups = NodeGroups(
            broker=self.broker,
            logs=self.logs,
            clock=self.clock,
            rand=self.rand,
            threads=self.sync_threads,
            config=self.groups_config,
        )
        await self.groups.start()
        self._expiry = asyncio.create_task(self.groups.run())
        return self

    async def restart(self) -> None:
        self._stop_groups()
        await super().restart()

    def abandon(self) -> None:
        self._stop_groups()
        super().abandon()

    def _stop_groups(self) -> None:
        self._expiry.cancel()
        self.groups.send_home()

    # What clients do.

    async def join(self, member_id: str = "", *, group: str = "g", **options: Any) -> Joined:
        return await self.groups.join(join(member_id, group=group, **options))

    async def become_stable(self, *, group: str = "g") -> Joined:
        """One member with everything assigned to it."""
        joined = await self.join(group=group)
        caller = Caller(group_id=group, member_id=joined.member_id, generation=joined.generation)
        await self.groups.sync(Sync(caller=caller, assignments=((joined.member_id, b"all"),)))
        return joined

    async def commit(
        self, offset: int, *, topic: str = "t", partition: int = 0, group: str = "g", who: Joined | None = None
    ) -> Outcomes:
        caller = Caller(group_id=group)
        if who is not None:
            caller = Caller(group_id=group, member_id=who.member_id, generation=who.generation)
        return await self.groups.commit(caller, [OffsetCommit(topic, partition, offset)])

    async def committed(self, *, topic: str = "t", partition: int = 0, group: str = "g") -> int:
        (found,) = await self.groups.committed(Caller(group_id=group), [(topic, partition)])
        return found.offset


def join(member_id: str = "", *, group: str = "g", **options: Any) -> Join:
    settings: dict[str, Any] = {
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": 30_000,
        "protocol_type": "consumer",
        "protocols": (("range", b"\0\0\0\0\0\1\0\1t"),),
        "is_id_required": False,
        **options,
    }
    return Join(group_id=group, member_id=member_id, **settings)


async def parked(task: "asyncio.Task[Any]") -> None:
    """Let a call go as far as it goes; it must not have been answered."""
    await settle()
    assert not task.done()
