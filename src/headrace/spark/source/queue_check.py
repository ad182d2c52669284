"""Whether the node can be asked about a queue, for reads that need its answers.

A stream's named reader, and the columns `attempt` and `state`, are asked for over HTTP. An address where nobody
listens, and a topic that is no queue, are found here, on the driver and at once: a task would first try for half a
minute, and on a cluster four times.
"""

from pyspark.sql.types import StructType

from headrace.client.errors import UnreachableError
from headrace.client.queue.sync import Client
from headrace.model.errors import InvalidRequestError, UnknownQueueError
from headrace.spark.errors import OptionError
from headrace.spark.option.source import Queue, SourceOptions
from headrace.spark.source.column import ATTEMPT, STATE


def check_queue(schema: StructType, options: SourceOptions) -> None:
    """Ask about the queue, if the read will."""
    if not isinstance(options.selection, Queue):
        return
    name = options.selection.name
    if options.reader is None and {ATTEMPT, STATE}.isdisjoint(schema.fieldNames()):
        return
    try:
        with Client(options.http) as client:
            client.queue(name).describe()
    except UnreachableError:
        raise UnreachableError(
            f"no node answers at {options.http}, the option http, where it is asked about the queue {name}; "
            "name a node's HTTP address"
        ) from None
    except UnknownQueueError:
        raise UnknownQueueError(
            f"there is no queue {name}; create it with `headrace queue create {name}`, "
            "or if it is a topic, say subscribe instead of queue"
        ) from None
    except InvalidRequestError as error:
        raise OptionError(f"the option http: {error}") from None
