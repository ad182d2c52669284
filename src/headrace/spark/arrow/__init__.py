"""Record batches to Arrow columns and back, many rows at once. Pure: no I/O, no Spark session."""
