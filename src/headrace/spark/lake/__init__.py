"""Delta tables: a sink that is exactly once, reading them with Spark, and their upkeep."""
