"""Where reading begins or ends: a word, an offset for each partition, a time, or a time for each partition.

The forms are those of Spark's Kafka source: `earliest`, `latest`, and JSON such as `{"orders": {"0": 23, "1": -2}}`, in
which -2 is the earliest offset and -1 the latest. Times are milliseconds since 1970.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.client.values import TopicPartition
from headrace.spark.errors import OptionError
from headrace.spark.option.given import INT64_MAX, Given

EARLIEST, LATEST = -2, -1

# A topic cannot be called so. Offsets that this source itself wrote have it for what is no offset.
NOTE = "$"


@dataclass(frozen=True, slots=True)
class Everywhere:
    """EARLIEST or LATEST, in every partition."""

    word: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset or a word for each partition."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class Time:
    """The first message at or after a time, in every partition."""

    timestamp_ms: int
    option: str


@dataclass(frozen=True, slots=True)
class Times:
    """The same, with a time for each partition."""

    timestamps_ms: Mapping[TopicPartition, int]
    option: str


Place = Everywhere | Offsets | Time | Times


def read_place(given: Given, side: str) -> Place | None:
    """What the options of one side ("starting", "ending") say; the most exact one counts, as in Spark's source."""
    timestamp_ms = given.count(f"{side}Timestamp", least=0)
    if timestamp_ms is not None:
        return Time(timestamp_ms, f"{side}Timestamp")
    by_time = f"{side}OffsetsByTimestamp"
    text = given.text(by_time)
    if text is not None:
        return Times(_by_partition(text, by_time, least=0), by_time)
    option = f"{side}Offsets"
    text = given.text(option)
    if text is None:
        return None
    if text.lower() in ("earliest", "latest"):
        return Everywhere(EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(f"the option {option} is {text!r}; it is earliest, latest or JSON like {_EXAMPLE}")
    return Offsets(_by_partition(text, option, least=EARLIEST), option)


_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'


def read_object(text: str, option: str, example: str) -> dict[str, object]:
    """A JSON object, or one sentence about what it should be."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OptionError(f"the option {option} is {text!r}; it is JSON like {example}")
    return found


def _by_partition(text: str, option: str, *, least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in read_object(text, option, _EXAMPLE).items():
        if topic == NOTE:
            continue
        if not isinstance(partitions, dict):
            raise OptionError(f"the option {option} has no partitions for {topic}; it is JSON like {_EXAMPLE}")
        for partition, number in partitions.items():
            is_number = isinstance(number, int) and not isinstance(number, bool)
            if not partition.isdecimal() or not is_number or not least <= number <= INT64_MAX:
                raise OptionError(f"the option {option} has {partition}: {number} for {topic}; it is like {_EXAMPLE}")
            found[TopicPartition(topic, int(partition))] = number
    return found
