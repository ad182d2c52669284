"""The grammar of topic and queue names: one for every protocol, and safe in a path, a URL and a log line."""

import re

from headrace.model.errors import InvalidNameError

NAME_LENGTH_MAX = 249
_NAME = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)

# Topics of headrace's own; clients may read them and not write. Any other name is a user's, `__debezium-heartbeat` too.
GROUPS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_NAMES = frozenset({GROUPS_TOPIC, TRANSACTIONS_TOPIC})


def check_topic_name(name: str) -> str:
    """Return the name, or say what is wrong with it."""
    if not name:
        raise InvalidNameError("a topic name must not be empty")
    if len(name) > NAME_LENGTH_MAX:
        raise InvalidNameError(f"a topic name has at most {NAME_LENGTH_MAX} characters; this one has {len(name)}")
    if name in {".", ".."}:
        raise InvalidNameError(f"{name!r} is no topic name; use letters, digits, '.', '_' and '-'")
    if not _NAME.fullmatch(name):
        bad = next(c for c in name if not _NAME.fullmatch(c))
        raise InvalidNameError(f"a topic name has letters, digits, '.', '_' and '-' only; found {bad!r}")
    return name
