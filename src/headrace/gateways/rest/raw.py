"""A message whose body is the request's own, in whatever type it has; its options stand beside it.

Options are fields of the query, `?priority=9&delay=60`, or headers, `headrace-priority: 9`; a message's own headers are
`headrace-header-<name>`.
"""

from headrace.gateways.http.message import Request
from headrace.gateways.rest import form
from headrace.gateways.rest.decode import invalid_field, read_count, read_query, read_seconds
from headrace.gateways.rest.form import milliseconds_or_none
from headrace.gateways.rest.value import CONTENT_TYPE
from headrace.model.message import HEADER_PREFIX, Message
from headrace.model.queue import PRIORITY_DEFAULT, PRIORITY_MAX

OPTIONS = frozenset({"priority", "delay", "ttl", "key", "deduplication_id"})
OWN_PREFIX = f"{HEADER_PREFIX}header-"
_BY_HEADER = {f"{HEADER_PREFIX}{name.replace('_', '-')}": name for name in OPTIONS}


def raw_message(request: Request) -> Message:
    fields = read_query(request.query, OPTIONS)
    headers: list[tuple[str, bytes]] = []
    for name, value in request.headers.items():
        if not name.startswith(HEADER_PREFIX):
            continue
        if name.startswith(OWN_PREFIX) and len(name) > len(OWN_PREFIX):
            own = name.removeprefix(OWN_PREFIX)
            if own.startswith(HEADER_PREFIX):
                raise invalid_field(name, f"names that begin with {HEADER_PREFIX} are headrace's own; choose another")
            headers.append((own, _text(name, value).encode()))
        elif (option := _BY_HEADER.get(name)) is not None:
            fields.setdefault(option, _text(name, value))
        else:
            raise invalid_field(name, f"there is no such option; there are {', '.join(sorted(_BY_HEADER))}")
    headers.append((CONTENT_TYPE, request.headers["content-type"].encode("latin-1")))
    priority = read_count(fields, "priority", at_least=0, at_most=PRIORITY_MAX)
    delay = read_seconds(fields, "delay", at_most=form.SECONDS_MAX)
    ttl = read_seconds(fields, "ttl", at_least=0.001, at_most=form.SECONDS_MAX)
    for name in ("key", "deduplication_id"):
        if name in fields and not 1 <= len(fields[name]) <= form.TEXT_LENGTH_MAX:
            raise invalid_field(name, f"it takes 1 to {form.TEXT_LENGTH_MAX} characters")
    key = fields.get("key")
    return Message(
        request.body,
        None if key is None else key.encode(),
        tuple(headers),
        PRIORITY_DEFAULT if priority is None else priority,
        milliseconds_or_none(delay),
        milliseconds_or_none(ttl),
        fields.get("deduplication_id"),
    )


def _text(name: str, value: str) -> str:
    """HTTP's headers were read as Latin-1; what people put there is UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise invalid_field(name, "its value is not UTF-8") from None
