"""Settings of single groups, by Kafka's names (resource type GROUP). What is not set follows the node, or the queue.

Share groups work from queues, so what Kafka lets a group decide about messages is the queue's where several groups and
HTTP consumers share them. A setting that only concerns the group's own members is obeyed; a value that the queue
contradicts is rejected with the reason.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.model.errors import InvalidConfigError
from headrace.model.queue import ATTEMPTS_MAX, LEASE_MS_MAX, QueueConfig
from headrace.model.setting import ConfigKey, Grammar, Keys, UnsupportedValueError, boolean, integer, only, parse_fields
from headrace.model.topic import INT32_MAX

_LOCKS_MAX = 2000  # Kafka's default


class GroupConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for one group."""

    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5_000
    share_session_timeout_ms: int = 45_000
    share_heartbeat_interval_ms: int = 5_000
    share_lock_ms: int | None = None  # None: the queue's lease time
    share_deliveries_max: int | None = None  # None: the queue's max_deliveries alone
    share_renews: bool = True


def _reset() -> Grammar:
    why = (
        "a queue hands out everything that nobody has acknowledged, whichever group asks; to skip what is there, purge "
        "the queue or alter the group's offsets"
    )
    grammar, parse = only("earliest", unsupported={"latest": why})

    def parse_reset(text: str) -> str:
        if text.startswith("by_duration:"):
            raise UnsupportedValueError(why)
        return str(parse(text))

    return grammar, parse_reset


def _locks() -> Grammar:
    _, parse = integer(100, INT32_MAX)

    def parse_locks(text: str) -> int:
        if (value := parse(text)) != _LOCKS_MAX:
            raise UnsupportedValueError("the queue's leased_max limits what all of its consumers hold; change that")
        return int(value)

    return str(_LOCKS_MAX), parse_locks


_SESSION = integer(1, INT32_MAX)
_INTERVAL = integer(1, INT32_MAX)
_AT_LEAST_0 = integer(0, INT32_MAX)
_NO_STREAMS = "Has no effect: the streams protocol is not served."
_AT_ONCE = "Has no effect: assignments are made at once, when they change."
_COMMITTED = "a queue hands out a transaction's messages once it has committed"

GROUP_KEYS: Keys = {
    key.name: key
    for key in (
        ConfigKey("consumer.session.timeout.ms", "consumer_session_timeout_ms", "int", *_SESSION,
            "How long a member of a consumer group may be silent.", "45000"),
        ConfigKey("consumer.heartbeat.interval.ms", "consumer_heartbeat_interval_ms", "int", *_INTERVAL,
            "How often a member of a consumer group is to be heard of.", "5000"),
        ConfigKey("consumer.assignment.interval.ms", None, "int", *_AT_LEAST_0, _AT_ONCE, "0"),
        ConfigKey("consumer.assignor.offload.enable", None, "boolean", *boolean(), _AT_ONCE, "false"),
        ConfigKey("share.session.timeout.ms", "share_session_timeout_ms", "int", *_SESSION,
            "How long a member of a share group may be silent.", "45000"),
        ConfigKey("share.heartbeat.interval.ms", "share_heartbeat_interval_ms", "int", *_INTERVAL,
            "How often a member of a share group is to be heard of.", "5000"),
        ConfigKey("share.record.lock.duration.ms", "share_lock_ms", "int", *integer(1000, LEASE_MS_MAX),
            "For how long the group's members hold a message. Unless it is set, the queue's lease time counts.",
            str(QueueConfig().lease_ms)),
        ConfigKey("share.delivery.count.limit", "share_deliveries_max", "int", *integer(1, ATTEMPTS_MAX),
            "A message that was delivered so often, to any consumer, is dead-lettered when the group's turn comes. "
            "The queue's max_deliveries counts beside it.", str(QueueConfig().max_deliveries)),
        ConfigKey("share.partition.max.record.locks", None, "int", *_locks(),
            "Has no effect: the queue's leased_max limits what is held.", str(_LOCKS_MAX)),
        ConfigKey("share.auto.offset.reset", None, "string", *_reset(),
            "A new group begins with everything that the queue still has.", "earliest"),
        ConfigKey("share.isolation.level", None, "string",
            *only("read_committed", unsupported={"read_uncommitted": _COMMITTED}),
            "A queue hands out a transaction's messages once it has committed.", "read_committed"),
        ConfigKey("share.renew.acknowledge.enable", "share_renews", "boolean", *boolean(),
            "Whether the group's members may extend their hold on a message.", "true"),
        ConfigKey("share.assignment.interval.ms", None, "int", *_AT_LEAST_0, _AT_ONCE, "0"),
        ConfigKey("share.assignor.offload.enable", None, "boolean", *boolean(), _AT_ONCE, "false"),
        ConfigKey("streams.session.timeout.ms", None, "int", *_SESSION, _NO_STREAMS, "45000"),
        ConfigKey("streams.heartbeat.interval.ms", None, "int", *_INTERVAL, _NO_STREAMS, "5000"),
        ConfigKey("streams.num.standby.replicas", None, "int", *_AT_LEAST_0, _NO_STREAMS, "0"),
        ConfigKey("streams.initial.rebalance.delay.ms", None, "int", *_AT_LEAST_0, _NO_STREAMS, "3000"),
        ConfigKey("streams.assignment.interval.ms", None, "int", *_AT_LEAST_0, _NO_STREAMS, "0"),
        ConfigKey("streams.assignor.offload.enable", None, "boolean", *boolean(), _NO_STREAMS, "false"),
    )
}  # fmt: skip


def parse_group_config(overrides: Mapping[str, str], node: GroupConfig) -> GroupConfig:
    """Check a group's settings as a whole; what they leave out is as the node has it."""
    fields: dict[str, Any] = parse_fields(GROUP_KEYS, overrides)
    config = msgspec.structs.replace(node, **fields)
    for kind, interval_ms, session_ms in (
        ("consumer", config.consumer_heartbeat_interval_ms, config.consumer_session_timeout_ms),
        ("share", config.share_heartbeat_interval_ms, config.share_session_timeout_ms),
    ):
        if interval_ms >= session_ms:
            raise InvalidConfigError(
                f"{kind}.heartbeat.interval.ms={interval_ms} is not below {kind}.session.timeout.ms={session_ms}; "
                "a member would be dropped before it is heard of"
            )
    return config
