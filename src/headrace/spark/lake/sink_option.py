"""The options of `format("headrace_delta")`, read and checked on the driver before anything is written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.client.router import ClientConfig
from headrace.spark.errors import OptionError
from headrace.spark.lake.key import Mark, job_application
from headrace.spark.option import kafka
from headrace.spark.option.given import Given

_ESCAPE = re.compile("%[0-9A-Fa-f]{2}")

COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
KEYINGS = ("batch", "offset")

NAMES = (
    "path",
    "partitionBy",
    "keyedBy",
    "mergeSchema",
    "compression",
    "idempotencyKey",
    "txnAppId",
    "txnVersion",
    *kafka.CLIENT_NAMES,
    # Spark's own, which it hands over with ours.
    "checkpointLocation",
    "queryName",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    path: Path
    partition_by: tuple[str, ...] | None  # None: as the table is
    keyed_by: str
    servers: str | None  # whose topics the rows are of, to tell topics of one name apart
    client: ClientConfig
    merges_schema: bool
    compression: str
    job: Mark | None  # what makes a batch write happen once


def parse_options(options: Mapping[str, str]) -> SinkOptions:
    given = Given(options, NAMES)
    return SinkOptions(
        path=table_path(given.text("path")),
        partition_by=_columns(given.text("partitionBy")),
        keyed_by=given.choice("keyedBy", KEYINGS, default="batch"),
        servers=kafka.servers(given) if kafka.SERVERS in given else None,
        client=kafka.client_config(given),
        merges_schema=given.flag("mergeSchema", default=False),
        compression=given.choice("compression", COMPRESSIONS, default=COMPRESSIONS[0]),
        job=_job(given),
    )


def table_path(text: str | None) -> Path:
    """A table's directory, from a path or a file: address."""
    if text is None:
        raise OptionError("the table has no path; give one to save() or start(), or with toTable() the option path")
    parts = urlsplit(text)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
    elif "://" in text:
        raise OptionError(f"{text} is not on a file system; give a directory that all workers can write to")
    else:
        path = Path(text).absolute()
    if escape := _ESCAPE.search(str(path)):
        raise OptionError(
            f"the path {path} has {escape[0]} in it, which the Delta library takes for another letter; name another"
        )
    return path


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _job(given: Given) -> Mark | None:
    """The job's own key, or application and version as Delta's own writer for Spark names them."""
    key, application = given.text("idempotencyKey"), given.text("txnAppId")
    version = given.count("txnVersion", least=0)
    if key is not None:
        if application is not None or version is not None:
            raise OptionError("idempotencyKey stands for txnAppId and txnVersion; give one or the other")
        return Mark(job_application(key), 1)
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise OptionError("txnAppId and txnVersion go together; one of them is missing")
    return Mark(application, version)
