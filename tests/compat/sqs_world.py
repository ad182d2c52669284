"""A node with the queues that statements name, and a client of one of SQS's protocols that checks nothing itself."""

import json
from typing import Any

from botocore.exceptions import ClientError
from tests.compat.sqs import connect
from tests.compat.sqs_query import connect_by_query
from tests.support.node import NodeProcess


class World:
    def __init__(self, node: NodeProcess, protocol: str) -> None:
        self.is_query = protocol == "query"
        if self.is_query:
            self.client = connect_by_query(node, parameter_validation=False)
        else:
            self.client = connect(node, parameter_validation=False)
        self.places = {"<absent>": f"http://{node.http}/000000000000/absent"}
        for name in ("reference", "reference.fifo", "reference-dead", "reference-small"):
            attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
            if name.endswith("-small"):
                attributes["MaximumMessageSize"] = "1024"
            url = self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
            place = name.removeprefix("reference").strip(".-") or "queue"
            self.places[f"<{place}>"] = url
        prefix = "arn:aws:sqs:us-east-1:000000000000:"
        for place, name in (("", ""), ("fifo ", ".fifo"), ("dead ", "-dead")):
            self.places[f"<{place}arn>"] = f"{prefix}reference{name}"
        self.places["<absent arn>"] = f"{prefix}absent"
        self.client.create_queue(
            QueueName="reference-source",
            Attributes=self.filled(
                {"RedrivePolicy": json.dumps({"deadLetterTargetArn": "<dead arn>", "maxReceiveCount": 3})}
            ),
        )

    def filled(self, value: Any) -> Any:
        """With addresses and ARNs in place of their names."""
        if isinstance(value, str):
            for place, name in self.places.items():
                value = value.replace(place, name)
            return value
        if isinstance(value, dict):
            return {self.filled(key): self.filled(inner) for key, inner in value.items()}
        return [self.filled(inner) for inner in value] if isinstance(value, list) else value

    def call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.client._make_api_call(operation, self.filled(parameters))
        answer.pop("ResponseMetadata")
        return answer


def create(world: World, name: str, **attributes: str) -> str:
    fifo = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url: str = world.call("CreateQueue", QueueName=name, Attributes={**fifo, **attributes})["QueueUrl"]
    return url


def attributes_of(world: World, url: str, *names: str) -> dict[str, str]:
    answer = world.call("GetQueueAttributes", QueueUrl=url, AttributeNames=list(names or ["All"]))
    found: dict[str, str] = answer.get("Attributes", {})
    return found


def receive(world: World, url: str, **parameters: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.call("ReceiveMessage", QueueUrl=url, **parameters).get("Messages", [])
    return found


def bodies(world: World, url: str, **parameters: Any) -> list[str]:
    return [message["Body"] for message in receive(world, url, **{"MaxNumberOfMessages": 10, **parameters})]


def status_of(error: ClientError) -> int:
    status = error.response["ResponseMetadata"]["HTTPStatusCode"]
    assert isinstance(status, int)
    return status
