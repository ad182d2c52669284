"""How each kind of group comes back from what was stored of it."""

from collections.abc import Callable, Mapping

from headrace.broker.group.config import GroupsConfig
from headrace.folds.group.classic import ClassicGroup, ClassicLimits
from headrace.folds.group.consumer import ConsumerGroup, ConsumerLimits
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import GroupMachine
from headrace.folds.group.share import ShareGroup, ShareLimits
from headrace.model.group_setting import GroupConfig


class GroupRules:
    """What holds for one group: the node's configuration, and the group's own settings over it."""

    def __init__(self, node: GroupsConfig, config: GroupConfig) -> None:
        self.config = config
        self.classic = ClassicLimits(node.initial_rebalance_delay_ms, node.members_max)
        self.consumer = ConsumerLimits(config.consumer_session_timeout_ms, node.members_max)
        self.share = ShareLimits(config.share_session_timeout_ms, node.share_members_max)


# From a group's id, its stored image, its rules and the monotonic time.
Restore = Callable[[str, bytes, GroupRules, int], GroupMachine]


def _restore_classic(group_id: str, image: bytes, rules: GroupRules, now_ms: int) -> GroupMachine:
    return ClassicGroup.restore(group_id, image, rules.classic, now_ms=now_ms)


def _restore_consumer(group_id: str, image: bytes, rules: GroupRules, now_ms: int) -> GroupMachine:
    return ConsumerGroup.restore(group_id, image, rules.consumer, now_ms=now_ms)


def _restore_share(group_id: str, image: bytes, rules: GroupRules, now_ms: int) -> GroupMachine:
    return ShareGroup.restore(group_id, image, rules.share, now_ms=now_ms)


RESTORERS: Mapping[GroupKind, Restore] = {
    GroupKind.CLASSIC: _restore_classic,
    GroupKind.CONSUMER: _restore_consumer,
    GroupKind.SHARE: _restore_share,
}


def obey(machine: GroupMachine, rules: GroupRules, now_ms: int) -> None:
    """Have a group's machine go on under changed rules. Members of classic groups say their own times."""
    if isinstance(machine, ConsumerGroup):
        machine.obey(rules.consumer, now_ms)
    elif isinstance(machine, ShareGroup):
        machine.obey(rules.share, now_ms)
