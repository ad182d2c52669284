"""boto3 over SQS's older query protocol: today's service model under the names that forms and XML have.

Today's botocore knows SQS in JSON alone, and still has the serializer and the parser of the query protocol. All that
its model lacks is what the members of lists and maps are called there, and in which element an answer is wrapped.
"""

from typing import Any

import boto3
import botocore.session
from botocore.config import Config
from botocore.loaders import Loader
from tests.support.node import NodeProcess

_MEMBERS = {
    "BinaryList": "BinaryListValue",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "StringList": "StringListValue",
}
_QUERY_METADATA = {
    "protocol": "query",
    "protocols": ["query"],
    "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
}


class _QueryLoader(Loader):  # type: ignore[misc]  # botocore has no types
    def load_service_model(self, service_name: str, type_name: str, api_version: str | None = None) -> Any:
        model = super().load_service_model(service_name, type_name, api_version)
        return _to_query(model) if (service_name, type_name) == ("sqs", "service-2") else model


def _to_query(model: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: value for name, value in model["metadata"].items() if name not in ("awsQueryCompatible",)}
    shapes = {name: _shape(name, shape, model["shapes"]) for name, shape in model["shapes"].items()}
    operations = {
        name: {**operation, "output": {**operation["output"], "resultWrapper": f"{name}Result"}}
        if "output" in operation
        else operation
        for name, operation in model["operations"].items()
    }
    return {**model, "metadata": {**metadata, **_QUERY_METADATA}, "shapes": shapes, "operations": operations}


def _shape(name: str, shape: dict[str, Any], shapes: dict[str, Any]) -> dict[str, Any]:
    kind = shape["type"]
    if kind == "list":
        member = {**shape["member"], "locationName": _MEMBERS.get(name, name.removesuffix("List"))}
        return {**shape, "member": member}
    if kind == "map":
        key, value = ("Key", "Value") if name == "TagMap" else ("Name", "Value")
        return {
            **shape,
            "key": {**shape["key"], "locationName": key},
            "value": {**shape["value"], "locationName": value},
        }
    if kind == "structure":
        members = {
            field: {**member, "locationName": field[0].upper() + field[1:-1], "flattened": True}
            if shapes[member["shape"]]["type"] == "map"
            else member
            for field, member in shape["members"].items()
        }
        return {**shape, "members": members}
    return shape


def connect_by_query(node: NodeProcess, **config: Any) -> Any:
    """A client that sends forms and reads XML."""
    session = botocore.session.Session()
    loader = session.get_component("data_loader")
    session.register_component("data_loader", _QueryLoader(extra_search_paths=loader.search_paths))
    return boto3.session.Session(botocore_session=session).client(
        "sqs",
        endpoint_url=f"http://{node.http}",
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, read_timeout=30, **config),
    )
