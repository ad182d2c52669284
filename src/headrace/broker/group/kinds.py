"""How each kind of group comes back from what was stored of it."""

from collections.abc import Callable, Mapping

from headrace.broker.group.config import GroupsConfig
from headrace.folds.group.classic import ClassicGroup, ClassicLimits
from headrace.folds.group.consumer import ConsumerGroup, ConsumerLimits
from headrace.folds.group.kind import GroupKind
from headrace.folds.group.machine import GroupMachine
from headrace.folds.group.share import ShareGroup, ShareLimits

# From a group's id, its stored image, the configuration and the monotonic time.
Restore = Callable[[str, bytes, GroupsConfig, int], GroupMachine]


def classic_limits(config: GroupsConfig) -> ClassicLimits:
    return ClassicLimits(config.initial_rebalance_delay_ms, config.members_max)


def _restore_classic(group_id: str, image: bytes, config: GroupsConfig, now_ms: int) -> GroupMachine:
    return ClassicGroup.restore(group_id, image, classic_limits(config), now_ms=now_ms)


def share_limits(config: GroupsConfig) -> ShareLimits:
    return ShareLimits(config.share_session_timeout_ms, config.share_members_max)


def _restore_share(group_id: str, image: bytes, config: GroupsConfig, now_ms: int) -> GroupMachine:
    return ShareGroup.restore(group_id, image, share_limits(config), now_ms=now_ms)


def consumer_limits(config: GroupsConfig) -> ConsumerLimits:
    return ConsumerLimits(config.consumer_session_timeout_ms, config.members_max)


def _restore_consumer(group_id: str, image: bytes, config: GroupsConfig, now_ms: int) -> GroupMachine:
    return ConsumerGroup.restore(group_id, image, consumer_limits(config), now_ms=now_ms)


RESTORERS: Mapping[GroupKind, Restore] = {
    GroupKind.CLASSIC: _restore_classic,
    GroupKind.CONSUMER: _restore_consumer,
    GroupKind.SHARE: _restore_share,
}
