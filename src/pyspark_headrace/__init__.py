"""What PySpark imports for `format("headrace")`, on the driver and in every worker."""

from headrace.spark.abandoned import silence_hang_ups
from headrace.spark.source.data_source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]

silence_hang_ups()
