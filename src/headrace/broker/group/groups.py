"""The groups of this node: `port.GroupPort`, made of shards (`shard.py`) and what is done with them.

A group lives in the partition of the internal topic that its id hashes to, and is coordinated by the node that leads
that partition: this one, as long as there is one node.
"""

import asyncio
from collections.abc import Mapping, Sequence

from headrace.broker.broker import Broker
from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.consumer_driver import ConsumerGroups
from headrace.broker.group.offsets import Offsets
from headrace.broker.group.port import (
    Caller,
    Committed,
    GroupDescription,
    GroupListing,
    GroupSettings,
    Join,
    OffsetCommit,
    Outcomes,
    PartitionLag,
    Sync,
    TopicPartition,
)
from headrace.broker.group.shard import Shard, refusal
from headrace.broker.group.shards import Shards, check_group_id
from headrace.cluster.catalog import CatalogChange, TopicDeleted
from headrace.folds.group.classic import ClassicGroup, ClassicState
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_classic import ClassicMembers
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import GroupMachine, Joined, Synced
from headrace.folds.group.request import JoinRequest, Leaving, SyncRequest
from headrace.host.clock import Clock
from headrace.host.rand import Rand
from headrace.host.threads import Threads
from headrace.log.driver import LogStore
from headrace.model.errors import (
    GroupNotEmptyError,
    HeadraceError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    UnknownGroupError,
    UnknownMemberError,
)
from headrace.model.group_setting import GROUP_KEYS, GroupConfig, parse_group_config
from headrace.model.ids import PartitionId
from headrace.model.setting import text_of

_GROUPS_A_TURN = 256

_Members = ClassicGroup | ClassicMembers


class NodeGroups:
    def __init__(
        self,
        *,
        broker: Broker,
        logs: LogStore,
        clock: Clock,
        rand: Rand,
        threads: Threads,
        config: GroupsConfig,
    ) -> None:
        self.config = config
        self._clock = clock
        self._rand = rand
        self._broker = broker
        self._shards = Shards(broker=broker, logs=logs, clock=clock, threads=threads, config=config)
        self.consumers = ConsumerGroups(shards=self._shards, broker=broker, clock=clock, rand=rand, config=config)
        self._offsets = Offsets(broker=broker, clock=clock, config=config)

    async def start(self) -> None:
        await self._shards.start()
        self._broker.catalog.on_change(self._topic_changed)

    async def run(self) -> None:
        """Let offsets expire, for as long as the node lives."""
        while True:
            await self._clock.sleep(self.config.expiry_interval_ms)
            for shard in self._shards:
                await self._expire(shard)

    async def _expire(self, shard: Shard) -> None:
        for at, group_id in enumerate(shard.group_ids()):
            if at % _GROUPS_A_TURN == _GROUPS_A_TURN - 1:
                await asyncio.sleep(0)
            try:
                shard.check_open()
            except HeadraceError:
                return
            shard.expire(group_id, retention_ms=self.config.offsets_retention_ms)

    def send_home(self) -> None:
        """Answer everybody who waits: the node is about to stop."""
        self._shards.close()

    async def shard(self, group_id: str) -> Shard:
        """Where a group lives. The first call makes the internal topic."""
        return await self._shards.find(group_id)

    def _topic_changed(self, change: CatalogChange) -> None:
        if isinstance(change, TopicDeleted):
            topic = change.topic
            places = {PartitionId(topic.id, index) for index in range(topic.partition_count)}
            for shard in self._shards:
                try:
                    shard.check_open()
                except HeadraceError:
                    continue
                shard.forget_partitions(places)

    # Members.

    async def join(self, request: Join) -> Joined:
        """Join the next generation. A request with several faults is refused for the one that Kafka looks at first."""
        check_group_id(request.group_id)
        least_ms, most_ms = self.config.session_timeout_ms_min, self.config.session_timeout_ms_max
        if not least_ms <= request.session_timeout_ms <= most_ms:
            raise InvalidSessionTimeoutError(
                f"session.timeout.ms is {request.session_timeout_ms}; this node takes {least_ms} to {most_ms}"
            )
        shard = await self._shards.find(request.group_id)
        self._check_size(sum(len(name) + len(metadata) for name, metadata in request.protocols))
        if request.member_id and shard.find(request.group_id) is None:
            raise refusal(UnknownMemberError, request.group_id)
        machine, members = self._membership(shard, request.group_id)
        call, promise = shard.call()
        name = request.client_id if request.instance_id is None else request.instance_id
        asked = JoinRequest(
            call=call,
            member_id=request.member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=request.rebalance_timeout_ms,
            protocol_type=request.protocol_type,
            protocols=request.protocols,
            new_member_id=f"{name}-{self._rand.uuid()}",
            is_id_required=request.is_id_required,
            can_skip_assignment=request.can_skip_assignment,
        )
        shard.carry_out(machine, members.join(asked, self._clock.monotonic_ms()))
        self._changed(shard, machine)
        joined: Joined = await promise
        return joined

    async def sync(self, request: Sync) -> Synced:
        caller = request.caller
        for _, assignment in request.assignments:
            self._check_size(len(assignment))
        shard, machine, members = await self._classic(caller.group_id)
        call, promise = shard.call()
        asked = SyncRequest(
            call=call,
            member_id=caller.member_id,
            generation=caller.generation,
            instance_id=caller.instance_id,
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignments=request.assignments,
        )
        shard.carry_out(machine, members.sync(asked, self._clock.monotonic_ms()))
        synced: Synced = await promise
        return synced

    def _check_size(self, size_bytes: int) -> None:
        size_max = self.config.member_bytes_max
        if size_bytes > size_max:
            raise InvalidRequestError(
                f"a member's metadata or assignment has {size_bytes} bytes; it may have {size_max}"
            )

    async def heartbeat(self, caller: Caller) -> None:
        shard, machine, members = await self._classic(caller.group_id)
        now_ms = self._clock.monotonic_ms()
        why = members.heartbeat(caller.member_id, caller.generation, caller.instance_id, now_ms)
        if isinstance(machine, ConsumerGroup):
            shard.arm(machine)
        if why is not None:
            raise refusal(why, caller.group_id)

    async def leave(self, group_id: str, leaving: Sequence[Leaving]) -> Outcomes:
        shard, machine, members = await self._classic(group_id)
        results, instructions = members.leave(leaving, self._clock.monotonic_ms())
        shard.carry_out(machine, instructions)
        self._changed(shard, machine)
        return [None if why is None else refusal(why, group_id) for why in results]

    async def _classic(self, group_id: str) -> tuple[Shard, GroupMachine, _Members]:
        """A group that has, or had, members of the classic protocol."""
        shard = await self._shards.find(group_id)
        if not isinstance(shard.find(group_id), ClassicGroup | ConsumerGroup):
            raise refusal(UnknownMemberError, group_id)
        return shard, *self._membership(shard, group_id)

    def _membership(self, shard: Shard, group_id: str) -> tuple[GroupMachine, _Members]:
        """A group's machine, and what its members of the classic protocol speak with."""
        machine = shard.find(group_id)
        if isinstance(machine, ConsumerGroup) and machine.members:
            return machine, ClassicMembers(machine, self._shards.topics())
        classic = shard.classic(group_id)
        return classic, classic

    def _changed(self, shard: Shard, machine: GroupMachine) -> None:
        if isinstance(machine, ConsumerGroup):
            shard.change_back(machine)

    # Offsets.

    async def commit(self, caller: Caller, offsets: Sequence[OffsetCommit]) -> Outcomes:
        return await self._offsets.commit(await self._shards.find(caller.group_id), caller, offsets)

    async def commit_transactional(
        self, caller: Caller, offsets: Sequence[OffsetCommit], *, producer_id: int, producer_epoch: int
    ) -> Outcomes:
        shard = await self._shards.find(caller.group_id)
        return await self._offsets.commit_transactional(
            shard, caller, offsets, producer_id=producer_id, producer_epoch=producer_epoch
        )

    async def end_transaction(self, producer_id: int, producer_epoch: int, *, commit: bool) -> None:
        await self._offsets.end_transaction(list(self._shards), producer_id, producer_epoch, commit=commit)

    async def committed(
        self, caller: Caller, partitions: Sequence[TopicPartition] | None, *, require_stable: bool = False
    ) -> list[Committed]:
        shard = await self._shards.find(caller.group_id)
        return await self._offsets.committed(shard, caller, partitions, require_stable=require_stable)

    async def delete_offsets(self, group_id: str, partitions: Sequence[TopicPartition]) -> Outcomes:
        return await self._offsets.delete(await self._shards.find(group_id), group_id, partitions)

    # Settings.

    def settings(self, group_id: str) -> GroupSettings:
        shard = self._shards.peek(group_id)
        overrides = {} if shard is None else shard.fold.settings.get(group_id, {})
        node = self.config.of_groups
        fields = (key for key in GROUP_KEYS.values() if key.field is not None)
        defaults = {key.name: getattr(node, str(key.field)) for key in fields}
        return GroupSettings(overrides, {name: text_of(value) for name, value in defaults.items() if value is not None})

    def config_of(self, group_id: str) -> GroupConfig:
        """What holds for a group."""
        shard = self._shards.peek(group_id)
        return self.config.of_groups if shard is None else shard.rules(group_id).config

    async def configure(self, group_id: str, overrides: Mapping[str, str], *, validate_only: bool = False) -> None:
        parse_group_config(overrides, self.config.of_groups)
        if validate_only:
            return
        shard = await self._shards.find(group_id)
        shard.check_open()
        shard.configure(group_id, overrides)
        await shard.written()

    def configured(self) -> list[str]:
        return sorted(group_id for shard in self._shards for group_id in shard.fold.settings)

    # Administration.

    async def list_groups(self) -> list[GroupListing]:
        found = []
        for shard in self._shards:
            for at, group_id in enumerate(shard.group_ids()):
                if at % _GROUPS_A_TURN == _GROUPS_A_TURN - 1:
                    await asyncio.sleep(0)
                found.append(_listing(group_id, shard.machines.get(group_id)))
        return sorted(found, key=lambda group: group.group_id)

    async def describe(self, group_id: str) -> GroupDescription:
        _, machine = self._known(group_id)
        return GroupDescription(
            group_id,
            machine.kind,
            machine.state_name,
            machine.protocol_type,
            machine.protocol_name,
            machine.describe_members(),
        )

    async def delete(self, group_id: str) -> None:
        shard, machine = self._known(group_id)
        if not machine.is_empty:
            raise refusal(GroupNotEmptyError, group_id)
        shard.remove(group_id)
        await shard.written()

    async def lag(self, group_id: str) -> list[PartitionLag]:
        shard, _ = self._known(group_id)
        return self._offsets.lag(shard, group_id)

    def _known(self, group_id: str) -> tuple[Shard, GroupMachine]:
        shard = self._shards.peek(group_id)
        machine = None if shard is None else shard.find(group_id)
        if shard is None or machine is None:
            raise UnknownGroupError(f"there is no group {group_id}")
        return shard, machine


def _listing(group_id: str, machine: GroupMachine | None) -> GroupListing:
    """One line about a group. One that has offsets and never had members has no machine."""
    if machine is None:
        return GroupListing(group_id, GroupKind.CLASSIC, "", ClassicState.EMPTY.value, 0)
    return GroupListing(group_id, machine.kind, machine.protocol_type, machine.state_name, machine.member_count)
