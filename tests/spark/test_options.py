"""What a read may be asked for, and how what cannot be is refused: no JVM and no node here."""

from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, IntegerType, LongType, StringType, StructField, StructType

from headrace.client.values import TopicPartition
from headrace.spark.errors import OptionError
from headrace.spark.option import kafka
from headrace.spark.option.place import EARLIEST, LATEST, Everywhere, Offsets, Time, Times
from headrace.spark.option.source import (
    NAMES,
    Assigned,
    Pattern,
    Queue,
    SourceOptions,
    Topics,
    check_batch,
    check_stream,
    describe,
    read_options,
)
from headrace.spark.source.column import check_schema, default_schema

TOPIC = {"subscribe": "orders"}


def refused(options: dict[str, str]) -> str:
    with pytest.raises(OptionError) as caught:
        read_options(options)
    return str(caught.value)


def read(**options: str) -> SourceOptions:
    return read_options(TOPIC | options)


@pytest.mark.parametrize(
    ("selection", "said"),
    [
        ({"subscribe": "a, b"}, "subscribe a,b"),
        ({"subscribePattern": "shop[.].*"}, "subscribePattern shop[.].*"),
        ({"assign": '{"a": [1, 0]}'}, "assign a-0,a-1"),
        ({"queue": "jobs"}, "queue jobs"),
    ],
)
def test_a_read_is_described_by_its_topics_and_servers(selection: dict[str, str], said: str) -> None:
    options = read_options(selection | {"kafka.bootstrap.servers": "a:1,b:2"})
    assert describe(options) == f"headrace[{said}] at a:1,b:2"


# Names.


def test_an_unknown_option_is_refused_by_naming_the_nearest() -> None:
    assert refused({"subscribe": "orders", "startingoffset": "earliest"}).endswith("did you mean startingOffsets?")
    assert refused({"kafka.bootstrap.server": "a:1"}).endswith("did you mean kafka.bootstrap.servers?")


def test_an_option_that_resembles_none_is_refused_briefly() -> None:
    # Sixty names would bury what was wrong.
    assert refused(TOPIC | {"xyzzy": "1"}) == "there is no option xyzzy; docs/spark.md lists those that there are"
    assert refused(TOPIC | {"topic": "x"}).startswith("the option topic is not taken here: it names where rows are")


def test_options_are_found_whatever_their_case() -> None:
    assert read_options({"SUBSCRIBE": "orders", "FailOnDataLoss": "FALSE"}).fail_on_data_loss is False


def test_options_that_tune_another_client_are_accepted_and_do_nothing() -> None:
    tuned = read(**{"kafka.group.id": "g", "kafka.max.poll.records": "5", "groupIdPrefix": "p"})
    assert tuned == read()
    assert read(**{"kafka.client.rack": "r1", "kafka.allow.auto.create.topics": "false"}) == read()
    assert read(**{"kafka.client.dns.lookup": "use_all_dns_ips", "kafka.metadata.max.age.ms": "1000"}) == read()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kafka.auto.offset.reset", "say startingOffsets instead"),
        ("kafka.key.deserializer", "cast them in the DataFrame"),
        ("kafka.sasl.mechanism", "neither TLS nor SASL"),
        ("kafka.ssl.truststore.location", "neither TLS nor SASL"),
    ],
)
def test_what_would_be_a_promise_that_is_not_kept_is_refused_with_the_reason(name: str, said: str) -> None:
    assert said in refused(TOPIC | {name: "x"})


def test_a_security_protocol_is_refused_until_nodes_have_one() -> None:
    assert read(**{"kafka.security.protocol": "plaintext"}) == read()
    assert "neither TLS nor SASL" in refused(TOPIC | {"kafka.security.protocol": "SASL_SSL"})


# What to read.


def test_topics_are_named_by_list_pattern_assignment_or_queue() -> None:
    assert read_options({"subscribe": "a, b,a"}).selection == Topics(("a", "b"))
    assert read_options({"subscribePattern": "o.*"}).selection == Pattern("o.*")
    assigned = read_options({"assign": '{"a": [1, 0], "b": [2]}'}).selection
    assert assigned == Assigned((TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 2)))
    assert read_options({"queue": "jobs"}).selection == Queue("jobs")


def test_one_way_of_naming_is_needed_and_no_more() -> None:
    assert refused({}).startswith("name what to read by one of subscribe,")
    assert "subscribe and queue" in refused({"subscribe": "a", "queue": "b"})


def test_a_table_is_refused_by_naming_the_view_that_works() -> None:
    made = TOPIC | {"option.subscribe": "orders", "provider": "headrace", "owner": "me"}
    assert refused(made).startswith("a table cannot be made of topics and queues: Spark hands none")
    assert "If this is a table: Spark hands none" in refused({})
    assert "table" not in refused({"failOnDataLoss": "true"})


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "no spaces"},
        {"subscribe": " , "},
        {"subscribePattern": "("},
        {"assign": "orders"},
        {"assign": '{"orders": 0}'},
        {"assign": '{"orders": [-1]}'},
        {"assign": '{"orders": []}'},
        {"assign": "{}"},
        {"queue": " "},
    ],
)
def test_names_that_cannot_be_are_refused(options: dict[str, str]) -> None:
    assert next(iter(options)) in refused(options)


# Where to begin and to end.


def test_places_are_words_offsets_and_times() -> None:
    assert read(startingOffsets="EARLIEST").starting == Everywhere(EARLIEST)
    assert read(endingOffsets="latest").ending == Everywhere(LATEST)
    offsets = read(startingOffsets='{"orders": {"0": 23, "1": -2}}').starting
    assert offsets == Offsets({TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -2}, "startingOffsets")
    assert read(endingTimestamp="1700").ending == Time(1700, "endingTimestamp")
    times = read(startingOffsetsByTimestamp='{"orders": {"0": 5}}').starting
    assert times == Times({TopicPartition("orders", 0): 5}, "startingOffsetsByTimestamp")


def test_a_time_counts_before_offsets() -> None:
    both = read(startingTimestamp="5", startingOffsets="earliest", startingOffsetsByTimestamp='{"orders": {"0": 7}}')
    assert both.starting == Time(5, "startingTimestamp")


def test_offsets_of_a_query_s_progress_can_be_begun_with() -> None:
    place = read(startingOffsets='{"orders": {"0": 4}, "$": {"ids": {"orders": "f00"}}}').starting
    assert place == Offsets({TopicPartition("orders", 0): 4}, "startingOffsets")


@pytest.mark.parametrize("text", ["soon", "{", '{"orders": 4}', '{"orders": {"x": 4}}', '{"orders": {"0": "4"}}', "[]"])
def test_offsets_that_cannot_be_are_refused_with_an_example(text: str) -> None:
    assert 'like {"orders": {"0": 23, "1": -2}}' in refused(TOPIC | {"startingOffsets": text})


def test_a_batch_refuses_places_between_which_there_is_nothing() -> None:
    for options in (
        read(startingOffsets="latest"),
        read(endingOffsets="earliest"),
        read(startingOffsets='{"orders": {"0": -1}}'),
        read(endingOffsets='{"orders": {"0": -2}}'),
    ):
        with pytest.raises(OptionError, match="would read nothing"):
            check_batch(options)


def test_a_batch_refuses_a_time_to_begin_at_that_is_later_than_the_one_to_end_at() -> None:
    with pytest.raises(OptionError, match="startingTimestamp is 20, later than endingTimestamp, which is 10"):
        check_batch(read(startingTimestamp="20", endingTimestamp="10"))
    check_batch(read(startingTimestamp="10", endingTimestamp="10"))


def test_a_stream_refuses_an_end_and_pushed_filters() -> None:
    with pytest.raises(OptionError, match="a stream has no end"):
        check_stream(read(endingOffsets="latest"))
    with pytest.raises(OptionError, match="pushFilters is for batches"):
        check_stream(read(pushFilters="true"))


# Numbers.


@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5"])
def test_counts_are_whole_and_positive(value: str) -> None:
    assert "a whole number of at least 1" in refused(TOPIC | {"maxOffsetsPerTrigger": value})


def test_numbers_that_no_node_can_be_asked_for_are_refused() -> None:
    assert "startingTimestamp is '1000000000000000000000000000000'; it is at most" in refused(
        TOPIC | {"startingTimestamp": str(10**30)}
    )
    assert "has 0: 9223372036854775808 for orders" in refused(
        TOPIC | {"startingOffsetsByTimestamp": f'{{"orders": {{"0": {2**63}}}}}'}
    )
    assert "it is at most 2147483647" in refused(TOPIC | {"kafka.fetch.max.bytes": str(2**31)})


def test_a_minimum_above_the_maximum_is_refused() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger is 5, above maxOffsetsPerTrigger, which is 4"):
        check_stream(read(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4"))


def test_a_trigger_s_delay_is_a_length_of_time() -> None:
    assert read(maxTriggerDelay="2m").trigger_delay_ms_max == 120_000
    assert read(maxTriggerDelay="5min").trigger_delay_ms_max == 300_000
    assert read(maxTriggerDelay="5000us").trigger_delay_ms_max == 5
    assert "a length of time like 15m" in refused(TOPIC | {"maxTriggerDelay": "soon"})


def test_the_client_is_tuned_by_kafka_s_names() -> None:
    client = read(**{"kafka.fetch.max.bytes": "1000", "kafka.request.timeout.ms": "50", "kafka.client.id": "me"}).client
    assert (client.fetch_bytes_max, client.partition_fetch_bytes_max) == (1000, 1000)
    assert (client.deadline_ms, client.client_id) == (50, "me")


def test_committed_messages_only_unless_asked_otherwise() -> None:
    assert read().isolation == "read_committed"
    assert read(**{"kafka.isolation.level": "read_uncommitted"}).isolation == "read_uncommitted"
    assert "it is one of read_committed, read_uncommitted" in refused(TOPIC | {"kafka.isolation.level": "none"})


def test_an_address_that_cannot_be_is_refused() -> None:
    assert refused(TOPIC | {"kafka.bootstrap.servers": "here"}).startswith("the option kafka.bootstrap.servers is")


# Queues.


def test_a_reader_is_for_a_stream_of_a_queue() -> None:
    assert "reader is for queues" in refused(TOPIC | {"reader": "spark"})
    with pytest.raises(OptionError, match="reader is for streams"):
        check_batch(read_options({"queue": "jobs", "reader": "spark"}))


# Columns.


def test_columns_are_those_of_spark_s_kafka_source() -> None:
    names = default_schema(read()).fieldNames()
    assert names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert default_schema(read(includeHeaders="true")).fieldNames() == [*names, "headers"]


def test_a_queue_s_columns_come_on_request() -> None:
    options = read_options({"queue": "jobs", "includeQueueColumns": "true"})
    assert default_schema(options).fieldNames()[-4:] == ["id", "priority", "attempt", "state"]
    with pytest.raises(OptionError, match="includeQueueColumns is for queues"):
        default_schema(read(includeQueueColumns="true"))


def test_a_schema_names_columns_that_there_are_in_any_order() -> None:
    wanted = StructType([StructField("offset", LongType()), StructField("value", BinaryType())])
    assert check_schema(wanted, read()) == wanted


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (StructField("valeu", BinaryType()), "there is no column valeu; did you mean value?"),
        (StructField("priority", IntegerType()), "there is no column priority in a topic; only a queue has it"),
        (StructField("value", StringType()), "the column value is binary and not string"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(field: StructField, said: str) -> None:
    with pytest.raises(OptionError) as caught:
        check_schema(StructType([field]), read())
    assert str(caught.value).startswith(said)


def test_a_schema_that_names_a_column_twice_is_refused() -> None:
    twice = StructType([StructField("value", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(OptionError, match=r"^the schema names the column value more than once"):
        check_schema(twice, read())


def test_every_option_of_the_source_is_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()
    idle = {*kafka.IDLE_NAMES, "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs"}
    assert [name for name in NAMES if name not in idle and f"`{name}`" not in page] == []
