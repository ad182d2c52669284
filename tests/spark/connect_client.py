"""A client of a Connect server, without a JVM of its own: a topic is read and written, in batch and as a stream."""

import sys

from headrace.spark import session


def main(remote: str, server: str, source: str, target: str, checkpoint: str) -> None:
    spark = session("connect-test", remote=remote)
    servers = {"kafka.bootstrap.servers": server}
    rows = spark.read.format("headrace").options(**servers).option("subscribe", source).load()
    assert rows.count() == 1_200, rows.count()
    stream = (
        spark.readStream.format("headrace")
        .options(**servers)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load()
        .select("key", "value")
    )
    for _ in range(2):  # the second time, there is nothing new
        query = (
            stream.writeStream.format("headrace")
            .options(**servers)
            .option("topic", target)
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    extra = spark.createDataFrame([("batch",)], "value STRING")
    extra.write.format("headrace").options(**servers).option("topic", target).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:6])
