"""Topic settings as Kafka's admin tools see them: value, where it came from, type, what it falls back to."""

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from headrace.model.errors import InvalidConfigError, InvalidGroupIdError
from headrace.model.group_setting import GROUP_KEYS
from headrace.model.setting import ConfigKey, show_value
from headrace.model.topic import Topic
from headrace.model.topic_setting import CONFIG_KEYS
from headrace.wire.kafka.messages.alter_configs import AlterableConfig
from headrace.wire.kafka.messages.create_topics import CreatableTopicConfig


class Source(IntEnum):
    TOPIC = 1  # set on the topic itself
    STATIC_BROKER = 4  # from the node's own configuration
    DEFAULT = 5
    GROUP = 8  # set on the group itself


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
    GROUP = 32


# Not a setting of a topic: Kafka's protocol has no other place where it could be asked.
IS_QUEUE = "headrace.queue"

_KINDS = {kind.name.lower(): kind for kind in Kind}


class Setting(NamedTuple):
    name: str
    value: str
    source: Source
    kind: Kind
    default: str
    documentation: str


def kind_of(key: ConfigKey) -> Kind:
    return _KINDS[key.kind]


def topic_settings(topic: Topic) -> Iterator[Setting]:
    """Every setting of a topic, also those that follow the default."""
    for key in CONFIG_KEYS.values():
        yield Setting(
            key.name,
            show_value(key, topic.overrides),
            Source.TOPIC if key.name in topic.overrides else Source.DEFAULT,
            kind_of(key),
            key.default,
            f"{key.documentation} Takes {key.grammar}.",
        )


def queue_setting(*, is_queue: bool) -> Setting:
    """Whether a topic is a queue, as a setting that can only be read."""
    return Setting(
        IS_QUEUE,
        str(is_queue).lower(),
        Source.STATIC_BROKER,
        Kind.BOOLEAN,
        "false",
        "Whether this topic is a queue. `headrace queue create` converts a topic to a queue.",
    )


def group_settings(overrides: Mapping[str, str], defaults: Mapping[str, str]) -> Iterator[Setting]:
    """Every setting of a group, whether or not the group exists."""
    for key in GROUP_KEYS.values():
        default = defaults.get(key.name, key.default)
        is_set = key.name in overrides
        yield Setting(
            key.name,
            show_value(key, overrides) if is_set else default,
            Source.GROUP if is_set else Source.DEFAULT,
            kind_of(key),
            default,
            f"{key.documentation} Takes {key.grammar}.",
        )


def check_group(group_id: str) -> str:
    if not group_id:
        raise InvalidGroupIdError("settings are those of one group; name it")
    return group_id


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
