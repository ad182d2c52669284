"""What applications number themselves: ids that must be there once, and numbers that must rise for each key.

Where a value is found is said by a word, or by an expression of SQL over a message's columns:

    key                      the message's key
    header:order-id          a header
    json:$.order.id          a field of a body that is JSON
    anything else            SQL, such as substring(cast(value as string), 1, 8)
"""

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import Window
from pyspark.sql import functions as sf

from headrace.spark.errors import OptionError, sentence_of
from headrace.spark.pipeline.audit_number import DOUBLED, FINDING_COLUMNS, find_faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_HEADER, _JSON = "header:", "json:"


def value_at(text: str) -> "Column":
    """The column that a word or an expression means, as text."""
    body = sf.make_valid_utf8(sf.col("value").cast("string"))
    if text == "key":
        return sf.make_valid_utf8(sf.col("key").cast("string"))
    if text.startswith(_HEADER):
        name = sf.lit(text.removeprefix(_HEADER))
        found = sf.get(sf.filter("headers", lambda header: header["key"] == name), sf.lit(0))
        return sf.make_valid_utf8(found["value"].cast("string"))
    if text.startswith(_JSON):
        return sf.get_json_object(body, text.removeprefix(_JSON))
    return sf.expr(text).cast("string")


def with_value(messages: "DataFrame", name: str, text: str, option: str) -> "DataFrame":
    """The messages with one more column. What is wrong with an expression is said in one sentence."""
    try:
        found = messages.withColumn(name, value_at(text))
        found.schema  # noqa: B018 - a Connect server says here what is wrong with an expression
    except AnalysisException as error:
        raise OptionError(f"{option} {text!r} is no expression over a message: {sentence_of(error)}") from None
    return found


def find_doubled_ids(messages: "DataFrame", id: str) -> "DataFrame":
    """Every message whose id an earlier one of its topic has. Those without an id are none of these."""
    given = with_value(messages, "id", id, "--unique").where("id is not null")
    by_place = Window.partitionBy("topic", "id").orderBy("partition", "offset")
    return (
        given.withColumn("copy", sf.row_number().over(by_place))
        .withColumn("firstPartition", sf.first("partition").over(by_place))
        .withColumn("firstAt", sf.first("offset").over(by_place))
        .where("copy > 1")
        .select(
            "topic",
            "partition",
            sf.lit("id").alias("rule"),
            sf.lit(DOUBLED).alias("fault"),
            sf.col("offset").alias("firstOffset"),
            sf.col("offset").alias("lastOffset"),
            sf.lit(1).cast("bigint").alias("count"),
            sf.format_string("%s was there before, at %d-%d", "id", "firstPartition", "firstAt").alias("detail"),
        )
        .select(*FINDING_COLUMNS)
    )


def find_number_faults(messages: "DataFrame", number: str, *, key: str, is_gapless: bool) -> "DataFrame":
    """Numbers of a key that come twice or out of order; and, where they should have no gaps, those that are missing."""
    keyed = with_value(messages, "scope", key, "--of")
    given = with_value(keyed, "number", number, "--rising").withColumn("number", sf.expr("try_cast(number as bigint)"))
    rows = given.where("number is not null").select(
        "topic",
        "partition",
        "offset",
        sf.col("offset").alias("endOffset"),
        whose_numbers("scope").alias("scope"),
        sf.col("number").alias("first"),
        sf.col("number").alias("last"),
    )
    scope, gapless = ("topic", "scope"), sf.lit(is_gapless)
    return find_faults(rows, rule="number", scope=scope, whose=sf.col("scope"), is_gapless=gapless)


def whose_numbers(column: str) -> "Column":
    """In words. Messages without a key have numbers together."""
    return sf.coalesce(sf.concat(sf.lit("key "), sf.col(column)), sf.lit("no key"))
