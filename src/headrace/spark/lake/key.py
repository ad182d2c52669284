"""What a Delta table remembers of what was written to it: application transactions, each a name and a number.

A number only rises. Rows of a topic have one name for each partition, and its number is the offset behind the last row
that the table has: a row below it is there already, whoever brings it. Rows that were computed have the name of their
query, and its number is the last batch that is in the table.

Two more marks serve those who check a table. Each partition has the offset of its first row, so that rows missing at
its beginning are noticed, and the table has the first day that its retention has not dropped.
"""

import datetime
from collections.abc import Mapping
from typing import NamedTuple

from headrace.model.errors import UnknownTopicError


class PartitionKey(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Reach(NamedTuple):
    """The offsets of one partition that were written to a table, whether their rows are still there or not."""

    key: PartitionKey
    begin: int | None  # None: the table is older than this mark
    end: int  # exclusive


class Mark(NamedTuple):
    """An application transaction, as the table stores it."""

    application: str
    version: int


def partition_application(key: PartitionKey, topic_ids: Mapping[str, str] | None) -> str:
    """The name for a partition's rows.

    A topic that is deleted and made again starts at offset 0 under the same name. Where the topics' ids are known they
    are part of the name, so that the new topic's rows are not taken for the old one's.
    """
    if topic_ids is None:
        return f"headrace/topic/{key.topic}/{key.partition}"
    topic_id = topic_ids.get(key.topic)
    if topic_id is None:
        raise UnknownTopicError(f"the rows are of topic {key.topic}, which the servers do not have (any more)")
    return f"headrace/topic/{key.topic}/{topic_id}/{key.partition}"


def begin_application(key: PartitionKey, topic_ids: Mapping[str, str] | None) -> str:
    """The name for the offset of a partition's first row. It is written once, with that row."""
    return f"{partition_application(key, topic_ids)}/begin"


def query_application(query_id: str) -> str:
    """The name for the batches of a streaming query, whose id is kept in its checkpoint."""
    return f"headrace/query/{query_id}"


def job_application(idempotency_key: str) -> str:
    """The name for a batch job that must happen once."""
    return f"headrace/job/{idempotency_key}"


DROPPED_APPLICATION = "headrace/dropped-before"


def dropped_mark(day: datetime.date) -> Mark:
    """Says that the rows of earlier days were deleted on purpose."""
    return Mark(DROPPED_APPLICATION, day.toordinal())
