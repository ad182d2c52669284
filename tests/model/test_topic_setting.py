"""Topic settings: every one that Kafka 4 knows is taken, and what would not hold is rejected with the reason."""

import pytest
from tests.support.kafka_default import KAFKA_DEFAULTS

from headrace.model.errors import InvalidConfigError
from headrace.model.setting import show_value
from headrace.model.topic import Durability, TopicConfig
from headrace.model.topic_setting import CONFIG_KEYS, parse_config


def test_every_setting_of_kafka_is_known_and_takes_kafkas_default() -> None:
    assert set(CONFIG_KEYS) - set(KAFKA_DEFAULTS) == {"headrace.durability"}
    parse_config(KAFKA_DEFAULTS)
    for name, value in KAFKA_DEFAULTS.items():
        assert show_value(CONFIG_KEYS[name], KAFKA_DEFAULTS) == value


@pytest.mark.parametrize("name", CONFIG_KEYS)
def test_a_default_can_be_set_and_changes_nothing(name: str) -> None:
    assert parse_config({name: CONFIG_KEYS[name].default}) == TopicConfig()


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("unclean.leader.election.enable", "TRUE", "true"),
        ("preallocate", " true", "true"),
        ("leader.replication.throttled.replicas", "0:1, 1:1", "0:1,1:1"),
        ("follower.replication.throttled.replicas", "*", "*"),
        ("local.retention.ms", "3600000", "3600000"),
        ("remote.log.copy.disable", "true", "true"),
        ("flush.messages", "1", "1"),
        ("flush.ms", "1000", "1000"),
        ("segment.jitter.ms", "5", "5"),
    ],
)
def test_what_cannot_matter_is_stored_and_shown(name: str, text: str, shown: str) -> None:
    assert parse_config({name: text}) == TopicConfig()
    assert show_value(CONFIG_KEYS[name], {name: text}) == shown


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"remote.storage.enable": "true"}, "remote.storage.enable=true is not supported: this node has no remote"),
        ({"flush.messages": "1", "headrace.durability": "memory"}, "set headrace.durability=fsync"),
        ({"flush.ms": "1000", "headrace.durability": "replicated"}, "set headrace.durability=fsync"),
    ],
)
def test_what_would_promise_something_untrue_is_rejected_with_the_reason(
    overrides: dict[str, str], reason: str
) -> None:
    with pytest.raises(InvalidConfigError, match=reason):
        parse_config(overrides)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("preallocate", "yes"),
        ("compression.type", "ZSTD"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("leader.replication.throttled.replicas", "none"),
        ("local.retention.ms", "-3"),
        ("segment.index.bytes", "3"),
        ("flush.messages", "0"),
        ("cleanup.policy", "archive"),
        ("message.timestamp.after.max.ms", "-1"),
    ],
)
def test_a_value_that_kafka_rejects_is_rejected_with_what_it_takes(name: str, text: str) -> None:
    with pytest.raises(InvalidConfigError, match=f"^{name}='{text}' is not valid; it takes "):
        parse_config({name: text})


@pytest.mark.parametrize(
    ("policy", "is_compacted", "is_deleting"),
    [
        ("", False, False),
        ("delete", False, True),
        ("compact", True, False),
        ("compact, delete", True, True),
        ("delete,delete", False, True),
    ],
)
def test_cleanup_policies(policy: str, is_compacted: bool, is_deleting: bool) -> None:
    config = parse_config({"cleanup.policy": policy})
    assert (config.is_compacted, config.is_deleting) == (is_compacted, is_deleting)


@pytest.mark.parametrize(
    "overrides",
    [
        {"compression.type": "uncompressed"},
        {"cleanup.policy": "compact"},
        {"message.timestamp.after.max.ms": "1"},
        {"message.timestamp.before.max.ms": "1"},
    ],
)
def test_records_are_looked_at_only_where_a_setting_concerns_them(overrides: dict[str, str]) -> None:
    assert not parse_config(overrides).is_opaque
    assert parse_config({"headrace.durability": Durability.MEMORY.value}).is_opaque
