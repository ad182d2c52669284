"""What a read is asked for: Spark's Kafka options, and those of queues."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import assert_never

from headrace.client.router import ClientConfig
from headrace.client.settings import DEFAULT_HTTP
from headrace.client.values import TopicPartition
from headrace.model.errors import InvalidNameError
from headrace.model.names import check_topic_name
from headrace.spark.errors import OptionError
from headrace.spark.option import kafka
from headrace.spark.option.given import Given
from headrace.spark.option.place import EARLIEST, LATEST, Everywhere, Offsets, Place, Time, read_object, read_place

_SELECTIONS = ("subscribe", "subscribePattern", "assign", "queue")

NAMES = (
    *_SELECTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "includeHeaders",
    "includeQueueColumns",
    "pushFilters",
    "reader",
    "http",
    *kafka.READER_NAMES,
    # Of Spark's source; nothing here corresponds to them.
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    *kafka.IDLE_NAMES,
)

_OF_WRITES = {
    "topic": "it names where rows are written; say subscribe",
    "stagingDirectory": "it is for writing",
    "idempotencyKey": "it is for writing",
    "txnAppId": "it is for writing",
    "txnVersion": "it is for writing",
}

# What Spark adds to the options of a table that is made, and of nothing else.
_OF_A_TABLE = "provider"
_NO_TABLE = (
    "Spark hands none of a table's options to a source in Python when the table is read; "
    "say CREATE TEMPORARY VIEW ... USING headrace OPTIONS (...) instead"
)

_TRIGGER_DELAY_MS = 15 * 60 * 1000
# Lengths of time as Spark's own settings have them; without a unit, milliseconds.
_SPAN = re.compile(r"(\d+)\s*(us|ms|s|m|min|h|d)?")
_UNIT_US = {None: 1000, "us": 1, "ms": 1000}
_UNIT_US |= {"s": 10**6, "m": 60 * 10**6, "min": 60 * 10**6, "h": 3600 * 10**6, "d": 86_400 * 10**6}


@dataclass(frozen=True, slots=True)
class Topics:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Every topic whose whole name matches. Topics that appear later are read too."""

    text: str


@dataclass(frozen=True, slots=True)
class Assigned:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue's topic, read by offset beside the workers."""

    name: str


Selection = Topics | Pattern | Assigned | Queue


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    servers: str
    client: ClientConfig
    isolation: str
    selection: Selection
    starting: Place | None  # None: the earliest in a batch, the latest in a stream
    ending: Place | None  # None: the latest
    # Where a time lies behind the last message: an error, or the end.
    late_time_is_latest: bool
    fail_on_data_loss: bool
    offsets_per_trigger_max: int | None
    offsets_per_trigger_min: int | None
    trigger_delay_ms_max: int
    # Tasks: at least, at most (None: as many as there are cores), and the most offsets for each.
    tasks_min: int | None
    tasks_max: int | None
    task_offsets_max: int | None
    include_headers: bool
    include_queue_columns: bool
    push_filters: bool
    reader: str | None
    http: str


def read_options(options: Mapping[str, str]) -> SourceOptions:
    """Checked as far as they can be without a node and without knowing whether they are for a batch or a stream."""
    names = [name.lower() for name in options]
    if _OF_A_TABLE in names:
        raise OptionError(f"a table cannot be made of topics and queues: {_NO_TABLE}")
    kafka.check_refused(names)
    given = Given(options, NAMES, elsewhere=_OF_WRITES)
    selection = _selection(given)
    reader = _reader(given)
    if reader is not None and not isinstance(selection, Queue):
        raise OptionError("the option reader is for queues; say queue instead of a topic, or leave it out")
    return SourceOptions(
        servers=kafka.servers(given),
        client=kafka.client_config(given),
        isolation=kafka.isolation(given),
        selection=selection,
        starting=read_place(given, "starting"),
        ending=read_place(given, "ending"),
        late_time_is_latest=given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error")
        == "latest",
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        offsets_per_trigger_max=given.count("maxOffsetsPerTrigger"),
        offsets_per_trigger_min=given.count("minOffsetsPerTrigger"),
        trigger_delay_ms_max=_span_ms(given, "maxTriggerDelay", _TRIGGER_DELAY_MS),
        tasks_min=given.count("minPartitions"),
        tasks_max=given.count("maxPartitions"),
        task_offsets_max=given.count("maxRecordsPerPartition"),
        include_headers=given.flag("includeHeaders", default=False),
        include_queue_columns=given.flag("includeQueueColumns", default=False),
        push_filters=given.flag("pushFilters", default=False),
        reader=reader,
        http=given.text("http") or DEFAULT_HTTP,
    )


def describe(options: SourceOptions) -> str:
    """What is read and where, for people."""
    match options.selection:
        case Topics(names):
            what = f"subscribe {','.join(names)}"
        case Pattern(text):
            what = f"subscribePattern {text}"
        case Assigned(partitions):
            what = f"assign {','.join(map(str, partitions))}"
        case Queue(name):
            what = f"queue {name}"
        case _:
            assert_never(options.selection)
    return f"headrace[{what}] at {options.servers}"


def check_batch(options: SourceOptions) -> SourceOptions:
    """Refuse what a batch cannot be asked for."""
    starting, ending = options.starting, options.ending
    if options.reader is not None:
        raise OptionError("the option reader is for streams, which move it on; leave it out")
    if starting == Everywhere(LATEST):
        raise OptionError("the option startingOffsets is latest, so a batch would read nothing; say earliest")
    if isinstance(starting, Offsets) and LATEST in starting.offsets.values():
        raise OptionError("the option startingOffsets has -1 (latest), from which a batch would read nothing")
    if ending == Everywhere(EARLIEST):
        raise OptionError("the option endingOffsets is earliest, so a batch would read nothing; say latest")
    if isinstance(ending, Offsets) and EARLIEST in ending.offsets.values():
        raise OptionError("the option endingOffsets has -2 (earliest), up to which a batch would read nothing")
    if isinstance(starting, Time) and isinstance(ending, Time) and starting.timestamp_ms > ending.timestamp_ms:
        raise OptionError(
            f"startingTimestamp is {starting.timestamp_ms}, later than endingTimestamp, which is "
            f"{ending.timestamp_ms}; a batch is read from the earlier to the later"
        )
    return options


def check_stream(options: SourceOptions) -> SourceOptions:
    """Refuse what a stream cannot be asked for."""
    if options.ending is not None:
        raise OptionError("a stream has no end: endingOffsets and endingTimestamp are for batches")
    if options.push_filters:
        raise OptionError("the option pushFilters is for batches; Spark pushes no filters into a stream")
    least, most = options.offsets_per_trigger_min, options.offsets_per_trigger_max
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}; lower it")
    return options


def _selection(given: Given) -> Selection:
    named = [name for name in _SELECTIONS if name in given]
    if len(named) != 1:
        said = " and ".join(named) or "none of them"
        wrong = f"name what to read by one of {', '.join(_SELECTIONS)}; there is {said}"
        # A table that was made with a schema is not seen before it is read.
        raise OptionError(wrong if given else f"{wrong}. If this is a table: {_NO_TABLE}")
    text = given.text(named[0])
    assert text is not None
    match named[0]:
        case "subscribe":
            names = dict.fromkeys(name.strip() for name in text.split(",") if name.strip())
            if not names:
                raise OptionError(f"the option subscribe is {text!r}, which names no topic; name one or more")
            return Topics(tuple(_name(name, "subscribe") for name in names))
        case "subscribePattern":
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"the option subscribePattern is {text!r}, no regular expression: {error}") from None
            return Pattern(text)
        case "assign":
            return Assigned(tuple(_assigned(text)))
        case _:
            return Queue(_name(text, "queue"))


def _name(name: str, option: str) -> str:
    try:
        return check_topic_name(name)
    except InvalidNameError as error:
        raise OptionError(f"the option {option}: {error}") from None


def _reader(given: Given) -> str | None:
    name = given.text("reader")
    if name is not None and "/" in name:
        raise OptionError(f"the option reader is {name!r}; its name is part of an address, and has no / in it")
    return name


def _assigned(text: str) -> list[TopicPartition]:
    example = '{"orders": [0, 1]}'
    found = []
    for topic, partitions in read_object(text, "assign", example).items():
        if not isinstance(partitions, list) or not all(type(one) is int and one >= 0 for one in partitions):
            raise OptionError(f"the option assign has {partitions} for {topic}; it is JSON like {example}")
        found += [TopicPartition(_name(topic, "assign"), partition) for partition in partitions]
    if not found:
        raise OptionError(f"the option assign is {text!r}, which names no partition; it is JSON like {example}")
    return sorted(set(found))


def _span_ms(given: Given, name: str, default_ms: int) -> int:
    text = given.text(name)
    if text is None:
        return default_ms
    match = _SPAN.fullmatch(text.lower())
    if match is None:
        raise OptionError(f"the option {name} is {text!r}; it is a length of time like 15m, 30s or 500ms")
    return int(match[1]) * _UNIT_US[match[2]] // 1000
