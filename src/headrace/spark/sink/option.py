"""The options of a write to topics and queues, checked on the driver before anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from headrace.client.producer import CODECS
from headrace.client.router import ClientConfig
from headrace.model.errors import InvalidNameError
from headrace.model.names import INTERNAL_NAMES, check_topic_name
from headrace.spark.errors import OptionError
from headrace.spark.option import kafka
from headrace.spark.option.given import INT32_MAX, INT64_MAX, Given

_COMPRESSION = "kafka.compression.type"
_LEVEL = "kafka.compression.level"
_ACKS = "kafka.acks"
_TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
_DELIVERY_TIMEOUT = "kafka.delivery.timeout.ms"

# The levels of each codec that has some, and the one that stands for its default.
LEVELS = {"gzip": (1, 9), "lz4": (1, 17), "zstd": (1, 22)}
_LEVEL_DEFAULT = -1

NAMES = (
    "topic",
    "queue",
    "stagingDirectory",
    "idempotencyKey",
    "txnAppId",
    "txnVersion",
    "http",
    *kafka.CLIENT_NAMES,
    _COMPRESSION,
    _LEVEL,
    *(f"kafka.compression.{codec}.level" for codec in LEVELS),
    _ACKS,
    _TRANSACTION_TIMEOUT,
    _DELIVERY_TIMEOUT,
    # Spark's own, which it hands over with ours.
    "checkpointLocation",
    "queryName",
    # Of Spark's Kafka sink; headers are written where there is a column of them.
    "includeHeaders",
    # They tune producers of another make.
    *kafka.CLIENT_IDLE_NAMES,
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.enable.idempotence",
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.max.request.size",
    "kafka.metadata.max.idle.ms",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
    "kafka.retries",
)

_REFUSED = {
    "kafka.key.serializer": "keys are text or binary columns",
    "kafka.value.serializer": "values are text or binary columns",
    "kafka.partitioner.class": "rows go by their column partition, or else by their key as in Kafka",
    "kafka.partitioner.ignore.keys": "a row with a key goes by it, unless its column partition says another",
    "path": "a topic has none; name where rows go by the option topic or queue",
    "kafka.transactional.id": "the sink has one of its own for each query; a batch job gives an idempotencyKey",
}

_OF_READS = dict.fromkeys(("subscribe", "subscribePattern", "assign"), "it names what is read; say topic or queue") | {
    "reader": "it is for reading",
    "includeQueueColumns": "it is for reading",
}

# For one call to a node with all of its retries: what a restart of the node takes, and more.
_DEADLINE_MS = 120_000
_KEY_LENGTH_MAX = 200


@dataclass(frozen=True, slots=True)
class Job:
    """What makes a batch write happen once: a write is left out where this version of it, or a later one, is there."""

    name: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    servers: str
    client: ClientConfig
    topic: str | None  # None: the column `topic` says it
    is_queue: bool
    http: str | None  # where queues are asked about; None: nobody said
    compression: str
    compression_level: int | None  # None: the codec's default
    staging: Path | None  # None: a directory for temporary files of this machine
    job: Job | None
    transaction_timeout_ms: int | None  # None: by the size of what is written


def read_options(options: Mapping[str, str]) -> SinkOptions:
    names = [name.lower() for name in options]
    kafka.check_refused(names)
    for name in names:
        if name in _REFUSED:
            raise OptionError(f"the option {name} is not taken: {_REFUSED[name]}")
    given = Given(options, NAMES, elsewhere=_OF_READS)
    acks = given.text(_ACKS)
    if acks not in (None, "all", "-1"):
        raise OptionError(
            f"the option {_ACKS} is {acks!r}; the sink writes exactly once, which takes all replicas, so leave it out"
        )
    client = msgspec.structs.replace(
        kafka.client_config(given),
        deadline_ms=given.count(_DELIVERY_TIMEOUT, most=INT32_MAX) or _DEADLINE_MS,
        auto_create_topics="queue" not in given,
    )
    compression = given.choice(_COMPRESSION, CODECS, default="none")
    return SinkOptions(
        servers=kafka.servers(given),
        client=client,
        topic=_target(given),
        is_queue="queue" in given,
        http=given.text("http"),
        compression=compression,
        compression_level=_level(given, compression),
        staging=_directory(given),
        job=_job(given),
        transaction_timeout_ms=given.count(_TRANSACTION_TIMEOUT, most=INT32_MAX),
    )


def _level(given: Given, codec: str) -> int | None:
    """The level for the codec that is used: its own option counts before the one for any."""
    for name in (f"kafka.compression.{codec}.level", _LEVEL):
        if codec in LEVELS and name in given and given.text(name) != str(_LEVEL_DEFAULT):
            least, most = LEVELS[codec]
            return given.count(name, least=least, most=most)
    return None


def check_target(name: str) -> str:
    """The name of something that can be written to."""
    if name in INTERNAL_NAMES:
        raise InvalidNameError(f"{name} is a topic of the node's own, which nobody else writes to; name another")
    return check_topic_name(name)


def _target(given: Given) -> str | None:
    if "topic" in given and "queue" in given:
        raise OptionError("topic and queue name one target each; give one of them")
    option = "queue" if "queue" in given else "topic"
    name = given.text(option)
    try:
        return None if name is None else check_target(name)
    except InvalidNameError as error:
        raise OptionError(f"the option {option}: {error}") from None


def _directory(given: Given) -> Path | None:
    text = given.text("stagingDirectory")
    if text is None:
        return None
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise OptionError(
            f"the option stagingDirectory is {text}, which is not on a file system; "
            "it is a directory that the driver and all executors share"
        )
    return Path(text).absolute()


def _job(given: Given) -> Job | None:
    """The job's own key, or application and version as Delta's writer for Spark names them."""
    key, application = given.text("idempotencyKey"), given.text("txnAppId")
    # The node remembers the number behind it.
    version = given.count("txnVersion", least=0, most=INT64_MAX - 1)
    for name, value in (("idempotencyKey", key), ("txnAppId", application)):
        if value is not None and len(value) > _KEY_LENGTH_MAX:
            raise OptionError(f"the option {name} has {len(value)} characters; it has at most {_KEY_LENGTH_MAX}")
    if key is not None:
        if application is not None or version is not None:
            raise OptionError("idempotencyKey stands for txnAppId and txnVersion; give one or the other")
        return Job(f"key-{key}", 0)
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise OptionError("txnAppId and txnVersion go together; one of them is missing")
    return Job(f"app-{application}", version)
