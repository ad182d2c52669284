"""Orders that are paid: to the queue of those who ship, to the lake, and as revenue by the minute to a topic.

    orders   ─┐                  ┌─> queue  shipments            one message for each paid order, exactly once
              ├─ paid (a join) ──┼─> lake   lake/paid_orders      the same rows as a Delta table
    payments ─┘                  └─> topic  revenue              sums by minute and product, once a minute is over

Three streaming queries over the same join. Each ends with what is there (`python pipeline.py`) or goes on
(`--continuous`), and the next start goes on where the last one ended. Kill it anywhere: nothing is lost or doubled.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headrace.spark import session

# A message that is later than this by its own time may find that the minute it belongs to is closed.
LATE = "5 minutes"
# A payment that comes later than this after its order is none.
PAYABLE = "10 minutes"


def messages(spark: SparkSession, server: str, topic: str, shape: str) -> DataFrame:
    """A topic's JSON messages as rows, with the time that the message itself says."""
    rows = (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", server)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    message = F.from_json(F.col("value").cast("string"), shape)
    return rows.select(message.alias("message")).select("message.*")


def paid_orders(spark: SparkSession, server: str) -> DataFrame:
    """Each order with its payment. Watermarks and PAYABLE bound what the join has to remember."""
    orders = messages(
        spark, server, "orders", "order STRING, customer STRING, product STRING, count INT, at TIMESTAMP"
    ).withWatermark("at", LATE)
    payments = (
        messages(spark, server, "payments", "order STRING, cents BIGINT, at TIMESTAMP")
        .withColumnsRenamed({"order": "paid_order", "at": "paid_at"})
        .withWatermark("paid_at", LATE)
    )
    return orders.join(
        payments, F.expr(f"order = paid_order AND paid_at BETWEEN at AND at + INTERVAL {PAYABLE}"), "inner"
    ).drop("paid_order")


def revenue(paid: DataFrame) -> DataFrame:
    """What came in by minute and product. A minute is sent once, when the watermark has passed it."""
    minute = F.window("paid_at", "1 minute")
    return (
        paid.groupBy(minute, "product")
        .agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
        .select(F.col("window.start").alias("minute"), "product", "cents", "orders")
    )


def start(
    spark: SparkSession, server: str, http: str, place: Path, trigger: dict[str, bool | str]
) -> list[StreamingQuery]:
    paid = paid_orders(spark, server)
    as_json = F.to_json(F.struct("*")).alias("value")
    to_queue = (
        paid.select(F.col("customer").alias("key"), as_json)
        .writeStream.format("headrace")
        .options(**{"kafka.bootstrap.servers": server, "http": http, "queue": "shipments"})
    )
    to_lake = paid.writeStream.format("headrace_delta").option("path", str(place / "lake" / "paid_orders"))
    to_topic = (
        revenue(paid)
        .select(F.col("product").alias("key"), as_json)
        .writeStream.format("headrace")
        .options(**{"kafka.bootstrap.servers": server, "topic": "revenue"})
    )
    return [
        writer.queryName(name)
        .option("checkpointLocation", str(place / "checkpoints" / name))
        .trigger(**trigger)  # type: ignore[arg-type]
        .start()
        for name, writer in (("shipments", to_queue), ("lake", to_lake), ("revenue", to_topic))
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Join orders with payments.")
    parser.add_argument("--server", default="127.0.0.1:9092", help="where the node listens for Kafka clients")
    parser.add_argument("--http", default="127.0.0.1:8080", help="where it listens for HTTP")
    parser.add_argument("--place", type=Path, default=Path(), help="directory for the lake and the checkpoints")
    parser.add_argument("--continuous", action="store_true", help="go on until Ctrl-C")
    parser.add_argument("--spark", metavar="MASTER", help="a cluster, as spark://host:7077; without, this process")
    given = parser.parse_args()
    spark = session("orders", master=given.spark)
    trigger: dict[str, bool | str] = {"processingTime": "5 seconds"} if given.continuous else {"availableNow": True}
    for query in start(spark, given.server, given.http, given.place.absolute(), trigger):
        query.awaitTermination()
        rows = sum(report["numInputRows"] for report in query.recentProgress)
        print(f"{query.name}: {rows} messages read")
    spark.stop()


if __name__ == "__main__":
    main()
