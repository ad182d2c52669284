"""PySpark's daemon, which forks the Python workers of a local session, without complaints of workers hung up on."""

from pyspark.daemon import manager

from headrace.spark.abandoned import silence_hang_ups

if __name__ == "__main__":
    silence_hang_ups()
    manager()
