"""PySpark source, sinks and pipelines. `session()` makes a SparkSession with all that they need."""

from headrace.spark.session import session

__all__ = ["session"]
