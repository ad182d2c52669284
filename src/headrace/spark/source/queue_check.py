"""Whether what the option `queue` names is a queue, and whether the node can be asked about it.

Kafka's protocol shows a queue as a topic, so the question goes over HTTP, on the driver and at once. A stream's named
reader, and the columns `attempt` and `state`, need HTTP anyway: a task would find an address where nobody listens only
after half a minute, and on a cluster four times. Other reads do without, and take the user's word where nobody
listens.
"""

from pyspark.sql.types import StructType

from headrace.client.errors import UnreachableError
from headrace.client.queue.sync import Client
from headrace.model.errors import InvalidRequestError, UnknownQueueError
from headrace.spark.errors import OptionError
from headrace.spark.option.source import Queue, SourceOptions
from headrace.spark.source.column import ATTEMPT, STATE


def check_queue(schema: StructType, options: SourceOptions) -> None:
    """Refuse a topic that is not a queue, and an address at which the read would find nobody."""
    if not isinstance(options.selection, Queue):
        return
    name = options.selection.name
    is_needed = options.reader is not None or not {ATTEMPT, STATE}.isdisjoint(schema.fieldNames())
    try:
        with Client(options.http) as client:
            client.queue(name).describe()
    except UnreachableError:
        if not is_needed:
            return
        raise UnreachableError(
            f"no node answers at {options.http}, the option http, where it is asked about the queue {name}; "
            "name a node's HTTP address"
        ) from None
    except UnknownQueueError:
        raise UnknownQueueError(
            f"there is no queue {name}; create it with `headrace queue create {name}`, "
            f"or if it is a topic, say subscribe instead of queue (asked at {options.http}, the option http)"
        ) from None
    except InvalidRequestError as error:
        raise OptionError(f"the option http: {error}") from None
