"""Whether a Spark cluster is there, asked before a session is started on it.

Spark is patient beyond what a person is: a Connect client tries an address where nobody listens for ten minutes, and
also at its exit; a driver asks for an absent master for a minute, starts a JVM for that, and then names a class of
Java's. A connection that cannot be made says the same at once.
"""

import asyncio
from typing import TYPE_CHECKING

from headrace.host.transport import TcpTransport
from headrace.model.address import parse_address
from headrace.spark.errors import OptionError, explain
from headrace.spark.pipeline.errors import PipelineFailedError

if TYPE_CHECKING:
    import grpc

CONNECT_S = 10.0
_MASTER = "spark://"
_CONNECT = "sc://"


def check_cluster(master: str | None, remote: str | None, *, connect_s: float = CONNECT_S) -> None:
    """Refuse a standalone master or a Connect server that does not answer. Other clusters are Spark's to find."""
    if master is not None and master.startswith(_MASTER):
        addresses = master.removeprefix(_MASTER).split(",")
        if not asyncio.run(_any_accepts(addresses, connect_s)):
            raise PipelineFailedError(f"no Spark master answers at {master}; is one running there?")
    if remote is not None and remote.startswith(_CONNECT):
        _check_connect(remote, connect_s)


async def _any_accepts(addresses: list[str], connect_s: float) -> bool:
    return any(await asyncio.gather(*(_accepts(address, connect_s) for address in addresses)))


async def _accepts(text: str, connect_s: float) -> bool:
    try:
        address = parse_address(text)
        async with asyncio.timeout(connect_s):
            transport, _ = await TcpTransport().connect(address.host, address.port, asyncio.Protocol)
    except (OSError, ValueError):  # a time-out is an OSError too
        return False
    transport.abort()
    return True


def _check_connect(remote: str, connect_s: float) -> None:
    """The channel is made as PySpark makes it, so that whoever answers speaks its protocol, and TLS where asked for."""
    import grpc
    from pyspark.errors import PySparkException

    # What comes behind the address may be a token.
    shown = remote.partition("/;")[0]
    try:
        channel = _channel(remote)
    except PySparkException as error:
        raise OptionError(f"--remote {shown} is no Spark Connect address: {explain(error)}") from None
    try:
        grpc.channel_ready_future(channel).result(timeout=connect_s)
    except grpc.FutureTimeoutError:
        raise PipelineFailedError(f"no Spark Connect server answers at {shown}; is one running there?") from None
    finally:
        channel.close()


def _channel(remote: str) -> "grpc.Channel":
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    return DefaultChannelBuilder(remote).toChannel()
