"""Settings of groups: every one that Kafka 4 knows, and the values that a queue contradicts."""

import pytest

from headrace.model.errors import InvalidConfigError
from headrace.model.group_setting import GROUP_KEYS, GroupConfig, parse_group_config

NODE = GroupConfig()
# Those of Kafka 4.3.
KAFKA_NAMES = {
    "consumer.assignment.interval.ms",
    "consumer.assignor.offload.enable",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "share.assignment.interval.ms",
    "share.assignor.offload.enable",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.assignment.interval.ms",
    "streams.assignor.offload.enable",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
}


def test_every_setting_of_kafka_is_known() -> None:
    assert set(GROUP_KEYS) == KAFKA_NAMES


def test_every_default_can_be_set() -> None:
    parse_group_config({key.name: key.default for key in GROUP_KEYS.values()}, NODE)


def test_what_is_not_set_follows_the_node() -> None:
    node = GroupConfig(consumer_session_timeout_ms=9000, consumer_heartbeat_interval_ms=700)
    config = parse_group_config({"consumer.session.timeout.ms": "8000", "share.record.lock.duration.ms": "1500"}, node)
    assert (config.consumer_session_timeout_ms, config.consumer_heartbeat_interval_ms) == (8000, 700)
    assert (config.share_lock_ms, config.share_deliveries_max, config.share_renews) == (1500, None, True)


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("share.auto.offset.reset", "latest", "purge the queue or alter the group's offsets"),
        ("share.auto.offset.reset", "by_duration:PT1H", "purge the queue or alter the group's offsets"),
        ("share.isolation.level", "read_uncommitted", "once it has committed"),
        ("share.partition.max.record.locks", "100", "leased_max"),
    ],
)
def test_a_value_that_the_queue_contradicts_is_rejected_with_the_reason(name: str, text: str, reason: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^{name}={text} is not supported: .*{reason}"):
        parse_group_config({name: text}, NODE)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("share.auto.offset.reset", "none"),
        ("share.record.lock.duration.ms", "999"),
        ("share.delivery.count.limit", "0"),
        ("consumer.session.timeout.ms", "1.5"),
        ("share.renew.acknowledge.enable", "1"),
    ],
)
def test_a_value_that_makes_no_sense_is_rejected_with_what_it_takes(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^{name}='{text}' is not valid; it takes "):
        parse_group_config({name: text}, NODE)


@pytest.mark.parametrize("kind", ["consumer", "share"])
def test_a_session_that_ends_before_the_next_heartbeat_is_rejected(kind: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"{kind}\.heartbeat\.interval\.ms=5000 is not below"):
        parse_group_config({f"{kind}.session.timeout.ms": "5000"}, NODE)
    parse_group_config({f"{kind}.session.timeout.ms": "5000", f"{kind}.heartbeat.interval.ms": "4999"}, NODE)
