"""How far a replay has come, as the broker knows it."""

import asyncio

from headrace.client.stream import StreamClient
from headrace.spark.sink.option import read_options
from headrace.spark.sink.publish import published_version
from headrace.spark.sink.topic_writer import job_identity


def sent_offset(settings: dict[str, str]) -> int:
    """The offset behind the last piece that counts; 0 before the first."""
    return asyncio.run(_sent_offset(settings))


async def _sent_offset(settings: dict[str, str]) -> int:
    options = read_options({**settings, "txnVersion": "0"})
    async with StreamClient(options.servers, config=options.client) as client:
        return max(await published_version(client, job_identity(options).name), 0)
