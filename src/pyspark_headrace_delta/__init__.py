"""What PySpark imports for `format("headrace_delta")`, on the driver and in every worker."""

from headrace.spark.lake.data_sink import DeltaDataSink as DefaultSource

__all__ = ["DefaultSource"]
