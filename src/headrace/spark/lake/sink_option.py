"""The options of `format("headrace_delta")`, read and checked on the driver before anything is written."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from headrace.spark.errors import OptionError
from headrace.spark.lake.key import Mark, job_application

COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")
KEYINGS = ("batch", "offset")

# Spark hands its own options over with ours, all in lower case.
_SPARKS_OWN = {"checkpointlocation", "queryname"}
_NAMES = (
    "path",
    "partitionBy",
    "keyedBy",
    "kafka.bootstrap.servers",
    "mergeSchema",
    "compression",
    "idempotencyKey",
    "txnAppId",
    "txnVersion",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    path: Path
    partition_by: tuple[str, ...] | None  # None: as the table is
    keyed_by: Literal["batch", "offset"]
    servers: str | None  # whose topics the rows are of, to tell topics of one name apart
    merges_schema: bool
    compression: str
    job: Mark | None  # what makes a batch write happen once


def parse_options(given: Mapping[str, str]) -> SinkOptions:
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower(): name for name in _NAMES}
    for name in options:
        if name not in known and name not in _SPARKS_OWN:
            raise OptionError(_unknown(name))
    keyed_by = options.get("keyedby", "batch")
    if keyed_by not in KEYINGS:
        raise OptionError(f"keyedBy is {keyed_by!r}; it is batch (computed rows) or offset (rows of a topic)")
    return SinkOptions(
        path=table_path(options.get("path", "")),
        partition_by=_columns(options.get("partitionby")),
        keyed_by="offset" if keyed_by == "offset" else "batch",
        servers=options.get("kafka.bootstrap.servers"),
        merges_schema=_flag("mergeSchema", options.get("mergeschema", "false")),
        compression=_compression(options.get("compression", COMPRESSIONS[0])),
        job=_job(options),
    )


def table_path(text: str) -> Path:
    """A table's directory, from a path or a file: address."""
    if not text:
        raise OptionError("the table has no path; give one to save(), start() or the option path")
    parts = urlsplit(text)
    if parts.scheme == "file":
        return Path(unquote(parts.path))
    if "://" in text:
        raise OptionError(
            f"{text} is not on a file system; headrace_delta writes to directories that all workers share"
        )
    return Path(text).absolute()


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, [known.lower() for known in _NAMES], n=1)
    nearest = next((known for known in _NAMES if close and known.lower() == close[0]), None)
    hint = f"did you mean {nearest}?" if nearest else f"there are {', '.join(_NAMES)}"
    return f"headrace_delta has no option {name}; {hint}"


def _columns(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _flag(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise OptionError(f"{name} is {text!r}; it is true or false")
    return text.lower() == "true"


def _compression(text: str) -> str:
    if text.lower() not in COMPRESSIONS:
        raise OptionError(f"compression is {text!r}; there are {', '.join(COMPRESSIONS)}")
    return text.lower()


def _job(options: Mapping[str, str]) -> Mark | None:
    """The job's own key, or application and version as Delta's own writer for Spark names them."""
    key, application, version = (options.get(name) for name in ("idempotencykey", "txnappid", "txnversion"))
    if key is not None:
        if application is not None or version is not None:
            raise OptionError("idempotencyKey stands for txnAppId and txnVersion; give one or the other")
        return Mark(job_application(key), 1)
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise OptionError("txnAppId and txnVersion go together; one of them is missing")
    if not version.isdecimal():
        raise OptionError(f"txnVersion is {version!r}; it is a number that rises with each write")
    return Mark(application, int(version))
