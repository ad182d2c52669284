"""The `kafka.` options: what a Kafka client is configured with, and what of it has a meaning here.

A job that comes from Spark's Kafka source brings its own. Those that say something to this client are obeyed, those
that only tune another one are accepted and do nothing, and those that would be a promise which is not kept are refused.
"""

from headrace.client.router import ClientConfig
from headrace.model.address import parse_address
from headrace.spark.errors import OptionError
from headrace.spark.option.given import INT32_MAX, Given

SERVERS = "kafka.bootstrap.servers"
ISOLATION = "kafka.isolation.level"
DEFAULT_SERVERS = "127.0.0.1:9092"

READ_COMMITTED, READ_UNCOMMITTED = "read_committed", "read_uncommitted"

_CLIENT_ID = "kafka.client.id"
_DEADLINE = "kafka.default.api.timeout.ms"
_REQUEST_DEADLINE = "kafka.request.timeout.ms"
_CONNECT = "kafka.socket.connection.setup.timeout.ms"
_FETCH = "kafka.fetch.max.bytes"
_PARTITION_FETCH = "kafka.max.partition.fetch.bytes"
# Larger than other clients' answers: each becomes few and large Arrow batches, which is what Spark takes quickly.
_FETCH_BYTES = 16 * 1024 * 1024
_PARTITION_FETCH_BYTES = 8 * 1024 * 1024
_SECURITY = "kafka.security.protocol"

CLIENT_NAMES = (SERVERS, _CLIENT_ID, _DEADLINE, _REQUEST_DEADLINE, _CONNECT, _SECURITY)
READER_NAMES = (*CLIENT_NAMES, ISOLATION, _FETCH, _PARTITION_FETCH)

# They tune clients of another make.
CLIENT_IDLE_NAMES = (
    "kafka.client.dns.lookup",
    "kafka.connections.max.idle.ms",
    "kafka.enable.metrics.push",
    "kafka.metadata.max.age.ms",
    "kafka.metadata.recovery.rebootstrap.trigger.ms",
    "kafka.metadata.recovery.strategy",
    "kafka.metric.reporters",
    "kafka.metrics.num.samples",
    "kafka.metrics.recording.level",
    "kafka.metrics.sample.window.ms",
    "kafka.receive.buffer.bytes",
    "kafka.reconnect.backoff.max.ms",
    "kafka.reconnect.backoff.ms",
    "kafka.retry.backoff.max.ms",
    "kafka.retry.backoff.ms",
    "kafka.send.buffer.bytes",
    "kafka.socket.connection.setup.timeout.max.ms",
)

# They tune consumers. A group is not joined: Spark keeps the offsets. Leaders are read, whatever rack they are in, and
# a topic is never made by reading it.
IDLE_NAMES = (
    *CLIENT_IDLE_NAMES,
    "kafka.allow.auto.create.topics",
    "kafka.auto.commit.interval.ms",
    "kafka.check.crcs",
    "kafka.client.rack",
    "kafka.exclude.internal.topics",
    "kafka.fetch.max.wait.ms",
    "kafka.fetch.min.bytes",
    "kafka.group.id",
    "kafka.group.instance.id",
    "kafka.group.protocol",
    "kafka.group.remote.assignor",
    "kafka.heartbeat.interval.ms",
    "kafka.max.poll.interval.ms",
    "kafka.max.poll.records",
    "kafka.partition.assignment.strategy",
    "kafka.session.timeout.ms",
)

# What Spark's own source refuses as well, and what to do instead.
_REFUSED = {
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.enable.auto.commit": "Spark keeps the offsets in its checkpoint",
    "kafka.interceptor.classes": "there are none",
    "kafka.key.deserializer": "keys are binary; cast them in the DataFrame",
    "kafka.value.deserializer": "values are binary; cast them in the DataFrame",
}


def check_refused(names: list[str]) -> None:
    """Refuse what can be understood and not be done, before anybody wonders how it is spelt."""
    for name in names:
        if name in _REFUSED:
            raise OptionError(f"the option {name} is not taken: {_REFUSED[name]}")
        if name.startswith(("kafka.ssl.", "kafka.sasl.")):
            raise OptionError(f"the option {name} is not taken: nodes have neither TLS nor SASL yet")


def servers(given: Given) -> str:
    """Where to connect first, as host:port,host:port."""
    text = given.text(SERVERS) or DEFAULT_SERVERS
    try:
        return ",".join(str(parse_address(server.strip())) for server in text.split(","))
    except ValueError as error:
        raise OptionError(f"the option {SERVERS} is {text!r}: {error}") from None


def client_config(given: Given) -> ClientConfig:
    protocol = given.text(_SECURITY)
    if protocol is not None and protocol.upper() != "PLAINTEXT":
        raise OptionError(f"the option {_SECURITY} is {protocol}: nodes have neither TLS nor SASL yet; say PLAINTEXT")
    default = ClientConfig()

    def count(name: str) -> int | None:
        return given.count(name, most=INT32_MAX)

    fetch_bytes_max = count(_FETCH) or _FETCH_BYTES
    return ClientConfig(
        client_id=given.text(_CLIENT_ID) or "headrace-spark",
        deadline_ms=count(_DEADLINE) or count(_REQUEST_DEADLINE) or default.deadline_ms,
        connect_timeout_ms=count(_CONNECT) or default.connect_timeout_ms,
        fetch_bytes_max=fetch_bytes_max,
        partition_fetch_bytes_max=count(_PARTITION_FETCH) or min(_PARTITION_FETCH_BYTES, fetch_bytes_max),
    )


def isolation(given: Given) -> str:
    """Committed only, unless asked otherwise: what an aborted transaction wrote is not there.

    Spark's Kafka source has it the other way round, because Kafka's consumers do. headrace's own sinks write in
    transactions, and a reader that sees what they took back would count it twice.
    """
    return given.choice(ISOLATION, (READ_COMMITTED, READ_UNCOMMITTED), default=READ_COMMITTED)
