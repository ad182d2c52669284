"""Whether what the option `queue` names is a queue, and whether the node can be asked about its messages.

Both questions are put on the driver and at once. The first is about the topic behind the queue, which Kafka's protocol
answers. A stream's named reader, and the columns `attempt` and `state`, need HTTP as well: a task would find an address
where no node listens only after half a minute, and on a cluster four times.
"""

from pyspark.sql.types import StructType

from headrace.client.errors import UnreachableError
from headrace.client.queue.sync import Client
from headrace.model.errors import InvalidRequestError, UnknownQueueError
from headrace.spark.errors import OptionError
from headrace.spark.link import Link
from headrace.spark.option.source import Queue, SourceOptions
from headrace.spark.source.column import ATTEMPT, STATE


def check_queue(schema: StructType, options: SourceOptions, link: Link) -> None:
    """Refuse a topic that is not a queue, and an address at which the read would find no node."""
    if not isinstance(options.selection, Queue):
        return
    name = options.selection.name
    if link.is_queue(name) is False:
        raise UnknownQueueError(
            f"{name} is a topic and not a queue; say subscribe instead of queue, or convert it with "
            f"`headrace queue create {name}`"
        )
    if options.reader is not None or not {ATTEMPT, STATE}.isdisjoint(schema.fieldNames()):
        _check_http(name, options.http)


def _check_http(name: str, http: str) -> None:
    try:
        with Client(http) as client:
            client.queue(name).describe()
    except UnreachableError:
        raise UnreachableError(
            f"no node answers at {http}, the option http, where it is asked about the queue {name}; "
            "name a node's HTTP address"
        ) from None
    except UnknownQueueError:
        raise UnknownQueueError(
            f"the node at {http}, the option http, has no queue {name}; name the HTTP address of a node that "
            "kafka.bootstrap.servers has too"
        ) from None
    except InvalidRequestError as error:
        raise OptionError(f"the option http: {error}") from None
