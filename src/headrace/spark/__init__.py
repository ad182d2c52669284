"""PySpark source, sink and pipelines. Nothing is here yet."""
