"""What the sink refuses of options and columns, before Spark runs anything."""

from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from headrace.model.errors import InvalidRequestError
from headrace.spark.errors import ColumnError
from headrace.spark.option.kafka import CLIENT_NAMES
from headrace.spark.sink.column import check_columns
from headrace.spark.sink.option import NAMES, Job, read_options

# Spark reads the words for types.
pytestmark = pytest.mark.usefixtures("spark")

TOPIC, QUEUE = {"topic": "t"}, {"queue": "q"}


def check(columns: str, options: dict[str, str]) -> frozenset[str]:
    given = read_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **options})
    schema = StructType.fromDDL(columns)
    assert isinstance(schema, StructType)
    return check_columns(schema, has_topic=given.topic is not None, is_queue=given.is_queue)


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("text string", TOPIC, "a column value, text or binary, is missing; there are text"),
        ("value int", TOPIC, "the column value is int; it must be text or binary"),
        ("value string, key double", TOPIC, "the column key is double; it must be text or binary"),
        ("value string, partition string", TOPIC, "the column partition is string; it must be a whole number"),
        ("value string, timestamp bigint", TOPIC, "the column timestamp is bigint; it must be a timestamp"),
        (
            "value string, headers map<string,string>",
            TOPIC,
            "the column headers is map<string,string>; it must be array<struct<key:string,value:binary>>",
        ),
        (
            "value string, headers array<struct<key:string,value:string>>",
            TOPIC,
            "the column headers is array<struct<key:string,value:string>>; it must be",
        ),
        ("value string, value binary", TOPIC, "there is more than one column value; drop or rename all but one"),
        ("value string", {}, "nobody says where to: give the option topic or queue, or a column topic"),
        ("value string, topic int", {}, "the column topic is int; it must be text"),
        ("value string", {**TOPIC, **QUEUE}, "topic and queue name one target each; give one of them"),
        ("value string", {"topik": "t"}, "there is no option topik; did you mean topic?"),
        ("value string", {"topic": "a b"}, "the option topic: "),
        (
            "value string",
            {"topic": "__consumer_offsets"},
            "the option topic: __consumer_offsets is a topic",
        ),
        ("value string", {"topic": ""}, "the option topic is empty; give it a value or leave it out"),
        ("value string", {**TOPIC, "kafka.acks": "1"}, "the option kafka.acks is '1'; the sink writes exactly once"),
        (
            "value string",
            {**TOPIC, "kafka.partitioner.class": "a.b.C"},
            "the option kafka.partitioner.class is not taken: rows go by their column partition, or else by their key",
        ),
        (
            "value string",
            {**TOPIC, "kafka.partitioner.ignore.keys": "true"},
            "the option kafka.partitioner.ignore.keys",
        ),
        (
            "value string",
            {**TOPIC, "kafka.compression.type": "gzip", "kafka.compression.level": "12"},
            "the option kafka.compression.level is '12'; it is at most 9",
        ),
        (
            "value string",
            {**TOPIC, "txnAppId": "x", "txnVersion": str(2**63 - 1)},
            f"the option txnVersion is '{2**63 - 1}'; it is at most {2**63 - 2}",
        ),
        (
            "value string",
            {**TOPIC, "kafka.transaction.timeout.ms": str(2**31)},
            "the option kafka.transaction.timeout.ms is '2147483648'; it is at most 2147483647",
        ),
        ("value string", {**TOPIC, "kafka.compression.type": "rar"}, "the option kafka.compression.type is 'rar'"),
        ("value string", {**TOPIC, "txnAppId": "x"}, "txnAppId and txnVersion go together; one of them is missing"),
        ("value string", {**TOPIC, "txnVersion": "1"}, "txnAppId and txnVersion go together; one of them is missing"),
        ("value string", {**TOPIC, "idempotencyKey": "x" * 201}, "the option idempotencyKey has 201 characters"),
        (
            "value string",
            {**TOPIC, "idempotencyKey": "x", "txnVersion": "1"},
            "idempotencyKey stands for txnAppId and txnVersion; give one or the other",
        ),
        ("value string", {**TOPIC, "stagingDirectory": "s3://b/c"}, "the option stagingDirectory is s3://b/c"),
        ("value string", {**TOPIC, "kafka.transactional.id": "x"}, "the option kafka.transactional.id is not taken"),
        ("value string", {**TOPIC, "subscribe": "x"}, "the option subscribe is not taken here: it names what is read"),
        ("value string", {**TOPIC, "path": "x"}, "the option path is not taken: a topic has none"),
        ("value string", {**TOPIC, "kafka.sasl.mechanism": "PLAIN"}, "the option kafka.sasl.mechanism is not taken"),
        ("value string, urgency int", QUEUE, "a message of a queue has no urgency; its columns are value, key"),
        ("value string, delay string", QUEUE, "the column delay is string; it must be seconds or an interval"),
        ("value string, priority string", QUEUE, "the column priority is string; it must be a whole number"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence(columns: str, options: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check(columns, options)
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)


def test_rows_of_a_source_can_be_written_as_they_are() -> None:
    columns = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
        "timestampType int, headers array<struct<key:string,value:binary>>"
    )
    written = {"key", "value", "partition", "timestamp", "headers"}
    assert check(columns, TOPIC) == check(columns, QUEUE) == written
    assert check(columns, {}) == written | {"topic"}
    assert check(columns + ", anything map<string,int>", TOPIC) == written


def test_a_message_of_a_queue_has_properties() -> None:
    columns = "value string, priority tinyint, delay interval day to second, ttl double, deduplication_id string"
    assert check(columns, QUEUE) == {"value", "priority", "delay", "ttl", "deduplication_id"}
    assert check("value string, priority string", TOPIC) == {"value"}


@pytest.mark.parametrize("column", ["delay int", "ttl int", "deduplication_id string"])
def test_what_only_a_queue_does_is_not_dropped_in_silence_on_the_way_to_a_topic(column: str) -> None:
    name = column.split()[0]
    with pytest.raises(ColumnError, match=f"a message of a topic has no {name}; name a queue by the option queue"):
        check(f"value string, {column}", TOPIC)
    assert check(f"value string, {column}", QUEUE) == {"value", name}


def test_settings_of_other_producers_are_taken_where_they_promise_nothing() -> None:
    given = {"kafka.acks": "all", "kafka.linger.ms": "5", "checkpointLocation": "/c", "KAFKA.Compression.Type": "ZSTD"}
    options = read_options({**TOPIC, **given})
    assert (options.compression, options.job) == ("zstd", None)
    assert (
        read_options({**TOPIC, "idempotencyKey": "a"}).job
        != read_options({**TOPIC, "txnAppId": "a", "txnVersion": "0"}).job
    )
    assert read_options({**TOPIC, "txnAppId": "a", "txnVersion": "7"}).job == Job("app-a", 7)


@pytest.mark.parametrize("name", ["kafka.metadata.max.age.ms", "kafka.client.dns.lookup", "kafka.reconnect.backoff.ms"])
def test_settings_of_any_client_are_taken_and_do_nothing(name: str) -> None:
    assert read_options({**TOPIC, name: "1"}) == read_options(TOPIC)


def test_the_level_of_the_codec_that_is_used_counts() -> None:
    levels = {"kafka.compression.level": "4", "kafka.compression.zstd.level": "19", "kafka.compression.lz4.level": "-1"}

    def level(codec: str) -> int | None:
        return read_options({**TOPIC, **levels, "kafka.compression.type": codec}).compression_level

    assert [level(codec) for codec in ("zstd", "gzip", "lz4", "snappy", "none")] == [19, 4, 4, None, None]
    assert read_options({**TOPIC, "kafka.compression.type": "gzip"}).compression_level is None


def test_the_page_has_every_option_that_does_something() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    section = page[page.index("## Writing to topics and queues") : page.index("## Delta tables")]
    own = NAMES[: NAMES.index("checkpointLocation")]
    assert [name for name in own if name not in CLIENT_NAMES and f"`{name}`" not in section] == []
