"""What PySpark imports for `format("headrace")`, on the driver and in every worker."""

from headrace.spark.source.data_source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
