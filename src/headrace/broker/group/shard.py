"""The groups of one partition of the internal topic: the durable fold, a machine for each group, and their timers.

Theory of operation. A call finds its group's machine, which decides at once and returns instructions. Carrying them out
means: `StoreGroup` becomes an entry of the log; answers go out once everything that was decided before them is
committed. So nobody is told of a generation, an assignment or an offset that a crash could take back, and no call waits
for the disk before it is decided: calls of one group are decided in the order in which they came.

Offsets are checked against the group's members and generation in the very step that writes them (failure row 31).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, TypeVar

from headrace.broker.group.config import GroupsConfig
from headrace.broker.group.kinds import RESTORERS, GroupRules, obey
from headrace.broker.ledger import Told
from headrace.broker.promise import Promise
from headrace.broker.state_log import StateLog
from headrace.folds.group.classic import ClassicGroup
from headrace.folds.group.consumer import ConsumerGroup
from headrace.folds.group.consumer_topics import TopicView
from headrace.folds.group.fold import GroupFold
from headrace.folds.group.machine import (
    AnswerJoin,
    AnswerSync,
    GroupMachine,
    Instruction,
    Joined,
    Refuse,
    StoreGroup,
    Synced,
)
from headrace.folds.group.migration import to_classic
from headrace.folds.group.op import GroupConfigured, GroupDeleted, GroupOp, GroupStored, OffsetsDeleted
from headrace.folds.group.share import ShareGroup
from headrace.host.clock import Clock, Timer, past_ms, stamp_ms
from headrace.model.errors import (
    CoordinatorUnavailableError,
    GroupError,
    HeadraceError,
    InconsistentProtocolError,
    InvalidConfigError,
    MemberIdRequiredError,
)
from headrace.model.group_setting import parse_group_config
from headrace.model.ids import PartitionId

_logger = logging.getLogger(__name__)

T = TypeVar("T")
Answer = Promise[Joined] | Promise[Synced]
MachineType = TypeVar("MachineType", bound=GroupMachine)


class Shard:
    def __init__(
        self,
        log: StateLog[GroupFold, GroupOp],
        *,
        clock: Clock,
        config: GroupsConfig,
        view: Callable[[], TopicView],
    ) -> None:
        self.fold = log.fold
        self._log = log
        self._clock = clock
        self._config = config
        self._view = view
        self._node_rules = GroupRules(config, config.of_groups)
        self._rules = {group_id: self._rules_of(group_id) for group_id in self.fold.settings}
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._calls: dict[int, Promise[Any]] = {}
        self._numbers = count(1)
        self._is_closed = False
        now_ms = clock.monotonic_ms()
        self.machines: dict[str, GroupMachine] = {
            group_id: RESTORERS[stored.kind](group_id, stored.image, self.rules(group_id), now_ms)
            for group_id, stored in self.fold.groups.items()
        }
        for machine in self.machines.values():
            self.arm(machine)

    # Groups.

    def group_ids(self) -> list[str]:
        return sorted({*self.machines, *self.fold.offsets})

    def find(self, group_id: str) -> GroupMachine | None:
        """The group's machine, if anything is known of the group."""
        machine = self.machines.get(group_id)
        if machine is None and self.fold.knows(group_id):
            return self.classic(group_id)
        return machine

    def classic(self, group_id: str) -> ClassicGroup:
        """The classic group of this id; made now if there is none."""
        known = self.machines.get(group_id)
        generation = known.epoch if isinstance(known, ConsumerGroup) else 0
        limits = self.rules(group_id).classic
        return self.machine_for(group_id, ClassicGroup, lambda: ClassicGroup(group_id, limits, generation=generation))

    def machine_for(self, group_id: str, kind: type[MachineType], make: Callable[[], MachineType]) -> MachineType:
        """The group as one of this kind. A group without members becomes one, whatever it was before."""
        machine = self.machines.get(group_id)
        if isinstance(machine, kind):
            return machine
        if machine is not None and not machine.is_empty:
            raise InconsistentProtocolError(f"group {group_id} has members and is of kind {machine.kind.value}")
        made = self.machines[group_id] = make()
        return made

    def adopt(self, group: ConsumerGroup) -> None:
        """A group has become a consumer group."""
        if self.machines.get(group.group_id) is not group:
            self.machines[group.group_id] = group
            self._note_change(group)

    def change_back(self, group: ConsumerGroup) -> None:
        """Make it a classic group again if no member speaks its own protocol any more."""
        if group.is_all_classic and self.machines.get(group.group_id) is group:
            limits, now_ms = self.rules(group.group_id).classic, self._clock.monotonic_ms()
            classic = self.machines[group.group_id] = to_classic(group, limits, self._view(), now_ms=now_ms)
            self._note_change(classic)
            self.store(classic)
            self.arm(classic)

    def _note_change(self, machine: GroupMachine) -> None:
        extra = {"group": machine.group_id, "kind": machine.kind.value, "members": machine.member_count}
        _logger.info("group has changed its protocol", extra=extra)

    # Settings.

    def rules(self, group_id: str) -> GroupRules:
        """What holds for a group."""
        return self._rules.get(group_id, self._node_rules)

    def _rules_of(self, group_id: str) -> GroupRules:
        try:
            config = parse_group_config(self.fold.settings.get(group_id, {}), self._config.of_groups)
        except InvalidConfigError as error:
            # The node's own configuration has changed since, and they contradict each other now.
            _logger.warning("group settings are not obeyed", extra={"group": group_id, "error": str(error)})
            return self._node_rules
        return GroupRules(self._config, config)

    def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Replace a group's settings, which were checked."""
        if overrides == self.fold.settings.get(group_id, {}):
            return
        self.decide(GroupConfigured(group_id, dict(overrides), stamp_ms(self._clock)))
        self._rules[group_id] = self._rules_of(group_id)
        machine = self.machines.get(group_id)
        if machine is not None:
            obey(machine, self.rules(group_id), self._clock.monotonic_ms())
            self.arm(machine)

    # What machines decide.

    def call(self) -> tuple[int, Promise[Any]]:
        """A number for somebody who waits, and what he waits for."""
        self.check_open()
        number, promise = next(self._numbers), Promise[Any]()
        self._calls[number] = promise
        return number, promise

    def carry_out(self, machine: GroupMachine, instructions: Sequence[Instruction]) -> None:
        """Do what a machine has decided, and see when it has to be asked again."""
        for instruction in instructions:
            match instruction:
                case StoreGroup():
                    self.store(machine)
                case AnswerJoin(call, answer) | AnswerSync(call, answer):
                    self._answer(call, answer)
                case Refuse(call, why, member_id):
                    promise = self._calls.pop(call, None)
                    if promise is not None:
                        promise.fail(refusal(why, machine.group_id, member_id))
        self.arm(machine)

    def store(self, machine: GroupMachine) -> None:
        """Have the group written as it is now."""
        at_ms = stamp_ms(self._clock)
        _logger.info(
            "group changed",
            extra={"group": machine.group_id, "state": machine.state_name, "members": machine.member_count},
        )
        self.decide(GroupStored(machine.group_id, machine.kind, machine.image(), at_ms))

    def _answer(self, call: int, answer: Joined | Synced) -> None:
        promise = self._calls.pop(call, None)
        if promise is not None:
            self.when_written(_keeping(promise, answer))

    # Writing.

    def check_open(self) -> None:
        if self._is_closed:
            raise CoordinatorUnavailableError("the node is stopping; look for the coordinator again")
        try:
            self._log.partition.log.check_usable()
        except HeadraceError as error:
            raise CoordinatorUnavailableError(str(error)) from error

    def decide(self, op: GroupOp) -> None:
        """Take over a decision, and have it written."""
        self.fold.apply(op)
        self._log.write(op)

    def when_written(self, told: Told) -> None:
        """Tell once everything that was decided so far is committed."""
        self._log.tell_written(told)

    async def written(self) -> None:
        """Return once everything that was decided so far is committed."""
        promise: Promise[None] = Promise()
        self.when_written(_keeping(promise, None))
        await promise

    # Time.

    def arm(self, machine: GroupMachine) -> None:
        """Ask the machine again when its next deadline falls. A deadline that has moved on is found out then."""
        due_ms = machine.next_deadline()
        group_id = machine.group_id
        if due_ms is None or self._is_closed:
            return
        armed = self._timers.get(group_id)
        if armed is not None:
            if armed[0] <= due_ms:
                return
            armed[1].cancel()
        delay_ms = max(due_ms - self._clock.monotonic_ms(), 0)
        self._timers[group_id] = due_ms, self._clock.call_later(delay_ms, lambda: self._tick(group_id))

    def _tick(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        machine = self.machines.get(group_id)
        if machine is None or self._is_closed:
            return
        if self._log.partition.log.broken is not None:
            return  # nothing can be written: nobody is told of anything, and clients find that out by themselves
        self.carry_out(machine, machine.tick(self._clock.monotonic_ms()))
        if isinstance(machine, ConsumerGroup):
            self.change_back(machine)

    # Removal.

    def expire(self, group_id: str, *, retention_ms: int) -> None:
        """Drop offsets that nobody has used for too long, and a group of which nothing is left (KIP-211)."""
        machine = self.machines.get(group_id)
        if machine is not None and not machine.is_empty:
            return
        now_ms = past_ms(self._clock)
        if expired := self.fold.expired(group_id, now_ms=now_ms, retention_ms=retention_ms):
            _logger.info("offsets expired", extra={"group": group_id, "count": len(expired)})
            self.decide(OffsetsDeleted(group_id, expired, now_ms))
        if isinstance(machine, ShareGroup) and machine.worked:
            stored = self.fold.groups.get(group_id)
            if stored is not None and now_ms - stored.at_ms <= retention_ms:
                return
        if group_id not in self.fold.offsets and not self.fold.has_pending(group_id):
            self.remove(group_id)

    def remove(self, group_id: str) -> None:
        """Forget a group that has no members."""
        if self.fold.knows(group_id):
            self.decide(GroupDeleted(group_id, stamp_ms(self._clock)))
        self.machines.pop(group_id, None)
        armed = self._timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()

    def forget_partitions(self, places: set[PartitionId]) -> None:
        """A topic is gone, and what groups had read of it."""
        at_ms = stamp_ms(self._clock)
        for group_id, offsets in list(self.fold.offsets.items()):
            if gone := tuple(place for place in offsets if place in places):
                self.decide(OffsetsDeleted(group_id, gone, at_ms))
        topics = {place.topic_id for place in places}
        for machine in self.machines.values():
            if isinstance(machine, ShareGroup) and machine.worked & topics:
                machine.worked -= topics
                self.store(machine)

    def close(self) -> None:
        """Send everybody away who waits: another node, or this one after its start, will answer."""
        self._is_closed = True
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        calls, self._calls = self._calls, {}
        for promise in calls.values():
            promise.fail(CoordinatorUnavailableError("the node is stopping; look for the coordinator again"))


def refusal(why: type[GroupError], group_id: str, member_id: str = "") -> GroupError:
    """An error with the words that its class has for everybody."""
    message = f"group {group_id}: {(why.__doc__ or '').splitlines()[0]}"
    if why is MemberIdRequiredError:
        return MemberIdRequiredError(message, member_id=member_id)
    return why(message)


def _keeping(promise: Promise[T], result: T) -> Told:
    def told(error: HeadraceError | None) -> None:
        if error is None:
            promise.keep(result)
        else:
            promise.fail(CoordinatorUnavailableError(f"not certain whether it was written: {error}"))

    return told
