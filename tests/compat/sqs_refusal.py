"""A refusal that AWS's reference promises, and the codes that rows of them share."""

from typing import Any, NamedTuple

VALUE, MISSING = "InvalidParameterValue", "MissingParameter"
ATTRIBUTE, ATTRIBUTE_NAME = "InvalidAttributeValue", "InvalidAttributeName"
PREFIX = "AWS.SimpleQueueService."
NO_QUEUE = f"{PREFIX}NonExistentQueue"
NO_RESOURCE = "ResourceNotFoundException"


class Refusal(NamedTuple):
    operation: str
    parameters: dict[str, Any]
    code: str
    message: str

    def __repr__(self) -> str:
        return f"{self.operation} {self.message}"
