"""The node's configuration: what it is, and where each value of it came from.

This module alone reads the file (TOML), the environment (HEADRACE_...) and the command line's flags, in rising
precedence. Each setting is a leaf of the `NodeConfig` structs and is known by its path, for example `kafka.listen`;
its environment variable follows from the path (HEADRACE_KAFKA_LISTEN). The three sources are flattened to
path -> value, converted leaf by leaf so that an error can name the place, put together bottom-up, and then checked as
a whole: a combination that cannot be obeyed refuses to start instead of warning and going on.
"""

import difflib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from headrace.broker.group.config import GroupsConfig
from headrace.broker.queue.config import QueuesConfig
from headrace.broker.transaction.config import TransactionsConfig
from headrace.cluster.admin import PARTITION_COUNT_MAX
from headrace.gateways.answers import AnswersConfig
from headrace.gateways.http.limits import HttpLimits
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.sqs.config import SqsConfig
from headrace.host.node_clock import ClockConfig
from headrace.log.config import LogConfig
from headrace.model.address import PORT_MAX, Address, parse_address
from headrace.model.errors import ConfigurationError, InvalidConfigError
from headrace.model.topic import INT32_MAX
from headrace.model.topic_setting import CONFIG_KEYS, parse_config

ENVIRONMENT_PREFIX = "HEADRACE_"
# Variables that share the prefix and are not settings of a node.
ENVIRONMENT_RESERVED = frozenset(
    {"HEADRACE_CONFIG", "HEADRACE_SERVER", "HEADRACE_HTTP", "HEADRACE_ADMIN", "HEADRACE_STATE", "HEADRACE_LONG"}
)
ENVIRONMENT_RESERVED_PREFIXES = ("HEADRACE_TEST_", "HEADRACE_BENCH_")
DEFAULT = "default"


class KafkaConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The Kafka gateway."""

    listen: Address = Address("127.0.0.1", 9092)
    # What clients are told to connect to; None: where it listens.
    advertise: Address | None = None
    limits: KafkaLimits = KafkaLimits()


class HttpConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP gateway."""

    listen: Address = Address("127.0.0.1", 8080)
    # Where queues can be deleted too; None: the port after the one of `listen`, on this machine only.
    admin_listen: Address | None = None
    # Names by which clients reach the node, beside those of the machine itself (comma-separated as text).
    hosts: tuple[str, ...] = ()
    limits: HttpLimits = HttpLimits()

    @property
    def admin(self) -> Address:
        if self.admin_listen is not None:
            return self.admin_listen
        port = self.listen.port
        return Address("127.0.0.1", 0 if port == 0 else port + 1 if port < PORT_MAX else port - 1)


class TopicsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Topics that come into being, by a client's first use of them or by a request that leaves things open."""

    auto_create: bool = True
    partitions: Annotated[int, msgspec.Meta(ge=1, le=PARTITION_COUNT_MAX)] = 1
    # What one topic may have, and all of them together; headrace's own topics are made also above it.
    partitions_max: Annotated[int, msgspec.Meta(ge=1, le=PARTITION_COUNT_MAX)] = 1_000
    node_partitions_max: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    replication: Annotated[int, msgspec.Meta(ge=1)] = 1
    # Topic settings by their Kafka names, which a new topic gets where its creator says nothing.
    defaults: dict[str, str] = {}


class LoggingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that the node writes about itself to standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["human", "json"] = "human"


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that one node is told before it starts."""

    data: str = "data"
    node_id: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 1
    # There is no authentication yet: whoever can connect can read, write and delete everything.
    insecure_listen: bool = False
    # How long a node that was told to stop goes on serving while /readyz says that it is not ready.
    stop_delay_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    kafka: KafkaConfig = KafkaConfig()
    http: HttpConfig = HttpConfig()
    sqs: SqsConfig = SqsConfig()
    answers: AnswersConfig = AnswersConfig()
    topics: TopicsConfig = TopicsConfig()
    queues: QueuesConfig = QueuesConfig()
    groups: GroupsConfig = GroupsConfig()
    transactions: TransactionsConfig = TransactionsConfig()
    log: LogConfig = LogConfig()
    clock: ClockConfig = ClockConfig()
    logging: LoggingConfig = LoggingConfig()


class Given(NamedTuple):
    """A value as one source gave it, and that source in words."""

    value: Any
    origin: str
    # Environment and flags give text, which is read by the setting's type; a file's values have types of their own.
    is_text: bool


class Setting(NamedTuple):
    """One line of `headrace config show`."""

    path: str
    value: Any
    origin: str
    variable: str


class Loaded(NamedTuple):
    config: NodeConfig
    settings: list[Setting]


def load(
    *, file: str | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, tuple[str, str]] = {}
) -> Loaded:
    """Read every source and check the whole. `flags` maps a path to the flag's name and the text given for it."""
    given: dict[str, Given] = {}
    if file is not None:
        given |= _read_file(file)
    given |= _read_environment(environment or {})
    given |= {path: Given(text, f"flag {flag}", True) for path, (flag, text) in flags.items()}
    config = _build(NodeConfig, "", given)
    _check_whole(config, {path: value.origin for path, value in given.items()})
    return Loaded(config, list(_settings(config, given)))


def _leaves(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Path and type of each setting. A setting that is a table of free names is given as its path alone."""
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _leaves(field.type, f"{path}.")
        else:
            yield path, field.type


def _is_table(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is dict


def known_paths() -> list[str]:
    """Every path that may be set, those of the topic defaults included."""
    paths = []
    for path, kind in _leaves(NodeConfig):
        paths += [f"{path}.{key}" for key in CONFIG_KEYS] if _is_table(kind) else [path]
    return paths


def variable(path: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_PREFIX + path.upper().replace(".", "_")


def _nearest(name: str, valid: list[str]) -> str:
    near = difflib.get_close_matches(name, valid, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "valid ones are " + ", ".join(valid)


def _read_file(file: str) -> dict[str, Given]:
    try:
        text = Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}") from error
    return {path: Given(value, f"file {file}", False) for path, value in _flatten(document, NodeConfig, "", file)}


def _flatten(
    document: Mapping[str, Any], struct: type[msgspec.Struct], prefix: str, file: str
) -> Iterator[tuple[str, Any]]:
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in document.items():
        path = f"{prefix}{key}"
        kind = fields.get(key)
        if kind is None:
            near = _nearest(path, [f"{prefix}{name}" for name in fields])
            raise ConfigurationError(f"{file}: {path} is not a setting; {near}")
        is_section = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
        if (is_section or _is_table(kind)) and not isinstance(value, dict):
            raise ConfigurationError(f"{file}: {path} is a table; write it as [{path}]")
        if is_section:
            yield from _flatten(value, kind, f"{path}.", file)
        elif _is_table(kind):
            yield from ((f"{path}.{name}", inner) for name, inner in _flatten_names(value, ""))
        else:
            yield path, value


def _flatten_names(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Kafka's names have dots, which TOML reads as tables in tables: `retention.ms = 1` is a table `retention`."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flatten_names(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _read_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    by_variable = {variable(path): path for path in known_paths()}
    given = {}
    for name, text in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX) or name in ENVIRONMENT_RESERVED:
            continue
        if name.startswith(ENVIRONMENT_RESERVED_PREFIXES):
            continue
        path = by_variable.get(name)
        if path is None:
            near = _nearest(name, list(by_variable))
            raise ConfigurationError(f"environment variable {name} is not a setting; {near}")
        given[path] = Given(text, f"environment {name}", True)
    return given


def _build(struct: type[msgspec.Struct], prefix: str, given: Mapping[str, Given]) -> Any:
    """Convert the leaves under a prefix and put the structs together, innermost first."""
    values: dict[str, Any] = {}
    for field in msgspec.structs.fields(struct):
        path = f"{prefix}{field.name}"
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            values[field.name] = _build(field.type, f"{path}.", given)
        elif _is_table(field.type):
            inner = {name.removeprefix(f"{path}."): item for name, item in given.items() if name.startswith(f"{path}.")}
            values[field.name] = {name: _topic_setting(name, path, item) for name, item in inner.items()}
        elif path in given:
            values[field.name] = _convert(path, field.type, given[path])
    try:
        return struct(**values)
    except ValueError as error:
        origins = sorted({given[f"{prefix}{name}"].origin for name in values if f"{prefix}{name}" in given})
        raise ConfigurationError(f"{', '.join(origins)}: {prefix.rstrip('.')}: {error}") from error


def _convert(path: str, kind: Any, given: Given) -> Any:
    if kind in (Address, Address | None):
        if not isinstance(given.value, str):
            raise ConfigurationError(f'{given.origin}: {path} takes an address as text, for example "127.0.0.1:9092"')
        try:
            return parse_address(given.value)
        except ValueError as error:
            raise ConfigurationError(f"{given.origin}: {path}: {error}") from None
    value = given.value
    if get_origin(kind) is Literal and value not in get_args(kind):
        choices = ", ".join(get_args(kind))
        raise ConfigurationError(f"{given.origin}: {path} = {value!r} is not valid; it takes one of {choices}")
    if kind == tuple[str, ...] and given.is_text:
        value = [name.strip() for name in value.split(",") if name.strip()]
    try:
        return msgspec.convert(value, kind, strict=not given.is_text)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"{given.origin}: {path} = {given.value!r} is not valid: {error}") from None


def _topic_setting(name: str, path: str, given: Given) -> str:
    """A topic setting is checked by the model's own table; here it gains the place it was written at."""
    if isinstance(given.value, bool) or not isinstance(given.value, str | int | float):
        raise ConfigurationError(f"{given.origin}: {path}.{name} takes text or a number, not {given.value!r}")
    text = str(given.value)
    try:
        parse_config({name: text})
    except InvalidConfigError as error:
        raise ConfigurationError(f"{given.origin}: {path}: {error}") from None
    return text


def _check_whole(config: NodeConfig, origins: Mapping[str, str]) -> None:
    """Refuse what each value allows and all of them together do not (failure row 42)."""

    def refuse(path: str, why: str) -> None:
        raise ConfigurationError(f"{origins.get(path, DEFAULT)}: {path}: {why}")

    kafka, http, topics = config.kafka, config.http, config.topics
    if not config.data.strip():
        refuse("data", "the data directory must have a name")
    for path, address in (
        ("kafka.listen", kafka.listen),
        ("http.listen", http.listen),
        ("http.admin_listen", http.admin),
    ):
        if not address.is_loopback and not config.insecure_listen:
            refuse(
                path,
                f"{address} can be reached from other machines, and headrace has no authentication yet: whoever "
                "connects can read, write and delete everything; listen on 127.0.0.1, or accept that "
                "with insecure_listen = true (--insecure-listen)",
            )
    if _collide(kafka.listen, http.listen):
        refuse("http.listen", f"{http.listen} is taken by kafka.listen ({kafka.listen}); choose another port")
    for path, other in (("kafka.listen", kafka.listen), ("http.listen", http.listen)):
        if _collide(http.admin, other):
            refuse("http.admin_listen", f"{http.admin} is taken by {path} ({other}); choose another port")
    if kafka.advertise is None:
        if kafka.listen.is_wildcard:
            refuse(
                "kafka.advertise", f"clients cannot connect to {kafka.listen.host}; say which address they are to use"
            )
    elif kafka.advertise.is_wildcard or not kafka.advertise.port:
        refuse("kafka.advertise", f"clients cannot connect to {kafka.advertise}; say the address they are to use")
    if topics.partitions > topics.partitions_max:
        refuse(
            "topics.partitions",
            f"{topics.partitions} is above topics.partitions_max ({topics.partitions_max}), so no topic could be made "
            "by its first use; lower it, or raise the limit",
        )
    if topics.replication > 1:
        refuse("topics.replication", f"{topics.replication} replicas need as many nodes, and this is a single one")
    defaults = parse_config(topics.defaults)
    _check_limits(config, defaults.message_bytes_max, refuse)
    if defaults.in_sync_min > topics.replication:
        refuse(
            "topics.defaults.min.insync.replicas",
            f"{defaults.in_sync_min} in-sync replicas can never be reached with topics.replication = "
            f"{topics.replication}, so every send with acks=all would be refused",
        )


Refuse = Callable[[str, str], None]

# The least that a number may be, where that is not 1.
_LEAST = {
    "log.journal_bytes": 1024 * 1024,
    "log.open_files_max": 16,
    "log.disk_reserve_bytes": 0,
    "log.disk_ballast_bytes": 0,
}


def _check_least(struct: msgspec.Struct, prefix: str, refuse: Refuse) -> None:
    for field in msgspec.structs.fields(struct):
        path, value = f"{prefix}{field.name}", getattr(struct, field.name)
        least = _LEAST.get(path, 1)
        if value < least:
            refuse(path, f"{value} is too small; it takes at least {least}")


def _check_limits(config: NodeConfig, message_bytes_max: int, refuse: Refuse) -> None:
    """Bounds that contradict each other would show as disconnected clients; here they show as a sentence."""
    log, limits = config.log, config.kafka.limits
    _check_least(log, "log.", refuse)
    _check_least(limits, "kafka.limits.", refuse)
    _check_least(config.http.limits, "http.limits.", refuse)
    _check_least(config.answers, "answers.", refuse)
    if log.journal_append_bytes_max * 2 > log.journal_bytes:
        refuse(
            "log.journal_append_bytes_max",
            f"appends of {log.journal_append_bytes_max} bytes would fill a journal of {log.journal_bytes} at once; "
            "make log.journal_bytes at least twice as large",
        )
    for lower, higher, why in (
        ("frame_bytes_max", "frames_in_flight_bytes_max", "the largest frame would never be read"),
        ("write_pause_bytes", "write_buffer_bytes_max", "clients would be disconnected before they are held back"),
        ("fetch_bytes_max", "write_buffer_bytes_max", "an answer of the largest size would disconnect its reader"),
    ):
        low, high = getattr(limits, lower), getattr(limits, higher)
        if low > high:
            refuse(f"kafka.limits.{lower}", f"{low} is above kafka.limits.{higher} ({high}): {why}")
    if message_bytes_max > limits.frame_bytes_max:
        refuse(
            "topics.defaults.max.message.bytes",
            f"batches of {message_bytes_max} bytes never fit kafka.limits.frame_bytes_max ({limits.frame_bytes_max})",
        )


def _collide(one: Address, other: Address) -> bool:
    """Whether two listeners want the same port. Port 0 is a free one, so it never collides."""
    if not one.port or one.port != other.port:
        return False
    return one.host == other.host or one.is_wildcard or other.is_wildcard or (one.is_loopback and other.is_loopback)


def _settings(config: NodeConfig, given: Mapping[str, Given]) -> Iterator[Setting]:
    for path, kind in _leaves(NodeConfig):
        value: Any = config
        for name in path.split("."):
            value = getattr(value, name)
        if _is_table(kind):
            inner: dict[str, str] = value
            for name, text in inner.items():
                yield Setting(f"{path}.{name}", text, given[f"{path}.{name}"].origin, variable(f"{path}.{name}"))
            continue
        origin = given[path].origin if path in given else DEFAULT
        yield Setting(path, str(value) if isinstance(value, Address) else value, origin, variable(path))
