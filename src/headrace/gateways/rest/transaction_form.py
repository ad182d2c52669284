"""What goes over the wire about transactions, as structs; their messages are those of `form`."""

from typing import Annotated

import msgspec
from msgspec import Meta

from headrace.gateways.rest.form import ENTRIES_MAX, Life, NewMessage, PackedMessage


class NewTransaction(msgspec.Struct, forbid_unknown_fields=True):
    timeout: Annotated[
        Life | None, Meta(description="after which it is aborted by itself; none: what the node says")
    ] = None


class BegunTransaction(msgspec.Struct, frozen=True):
    """A transaction that has begun. Its id stands in the path of everything that belongs to it."""

    id: str
    timeout: float


class TransactionMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Several messages to be sent in a transaction, in this order. A request is not repeated, so it has no id."""

    messages: Annotated[list[NewMessage], Meta(min_length=1, max_length=ENTRIES_MAX)]


class PackedTransactionMessages(msgspec.Struct, forbid_unknown_fields=True):
    """Several messages to be sent in a transaction, in MessagePack."""

    messages: Annotated[list[PackedMessage], Meta(min_length=1, max_length=ENTRIES_MAX)]
