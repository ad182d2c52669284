"""Topic settings as Kafka's admin tools see them: value, where it came from, type, what it falls back to."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

from headrace.model.errors import InvalidConfigError
from headrace.model.topic import CONFIG_KEYS, Topic, TopicConfig, show_value
from headrace.wire.kafka.messages.alter_configs import AlterableConfig
from headrace.wire.kafka.messages.create_topics import CreatableTopicConfig


class Source(IntEnum):
    TOPIC = 1  # set on the topic itself
    STATIC_BROKER = 4  # from the node's own configuration
    DEFAULT = 5


class Kind(IntEnum):
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


_KINDS = {"string": Kind.STRING, "int": Kind.INT, "long": Kind.LONG, "double": Kind.DOUBLE, "list": Kind.LIST}
_DEFAULTS = TopicConfig()


class Setting(NamedTuple):
    name: str
    value: str
    source: Source
    kind: Kind
    default: str
    documentation: str


def topic_settings(topic: Topic) -> Iterator[Setting]:
    """Every setting of a topic, also those that follow the default."""
    for key in CONFIG_KEYS.values():
        default = show_value(_DEFAULTS, key)
        is_set = key.name in topic.overrides
        yield Setting(
            key.name,
            show_value(topic.config, key) if is_set else default,
            Source.TOPIC if is_set else Source.DEFAULT,
            _KINDS[key.kind],
            default,
            f"{key.documentation} Takes {key.grammar}.",
        )


def whole_overrides(configs: Iterable[AlterableConfig | CreatableTopicConfig]) -> dict[str, str]:
    """All that a topic is to have of its own. What is not named follows the default."""
    overrides: dict[str, str] = {}
    for config in configs:
        if config.value is None:
            raise InvalidConfigError(f"{config.name} has no value; leave it out to follow the default")
        if config.name in overrides:
            raise InvalidConfigError(f"{config.name} is set twice")
        overrides[config.name] = config.value
    return overrides
