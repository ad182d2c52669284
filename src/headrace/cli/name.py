"""Names of queues, topics and groups as arguments: one that cannot be is refused before a node is asked."""

from typing import Annotated, TypeVar

import typer

from headrace.cli.output import WrongUseError
from headrace.model.names import check_topic_name

# As typer gives them to a callback: one name, several, or none where an option is left out.
Names = TypeVar("Names", str, list[str], None)


def check_names(value: Names) -> Names:
    """The callback of an argument or option that names queues or topics."""
    for name in _listed(value):
        name.encode()  # bytes that are no text have a sentence of their own, in `output`
        check_topic_name(name)
    return value


def check_groups(value: Names) -> Names:
    """The callback of an argument that names groups. Kafka takes any text but an empty one."""
    if "" in _listed(value):
        raise WrongUseError("a group's name must not be empty; `headrace group list` shows those that are there")
    return value


def _listed(value: str | list[str] | None) -> list[str]:
    return [value] if isinstance(value, str) else value or []


QueueArgument = Annotated[
    str, typer.Argument(metavar="QUEUE", help="Name of the queue.", show_default=False, callback=check_names)
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, callback=check_names)
]
TopicsArgument = Annotated[
    list[str], typer.Argument(metavar="TOPIC", help="Names of the topics.", show_default=False, callback=check_names)
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False, callback=check_groups)
]
GroupsArgument = Annotated[
    list[str], typer.Argument(metavar="GROUP", help="Names of the groups.", show_default=False, callback=check_groups)
]
