"""What the subscriptions of a consumer group stand for: topics by name, and by expression those that there are."""

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from headrace.folds.group.consumer_member import ConsumerMember
from headrace.folds.group.consumer_regex import Regex
from headrace.model.errors import InvalidRegexError

# States that one look at the topics may visit for an expression: a fraction of a second.
_WORK_MAX = 500_000


class KnownTopic(NamedTuple):
    topic_id: UUID
    partition_count: int


class TopicView(NamedTuple):
    """The topics there are. Where the revision is the same, so are they."""

    revision: int
    topics: Mapping[str, KnownTopic]


class _Found:
    """An expression and the names that were held against it."""

    def __init__(self, regex: Regex) -> None:
        self._regex = regex
        self._known: dict[str, bool] = {}
        self.is_complete = True

    def names(self, view: TopicView) -> frozenset[str]:
        known, regex = self._known, self._regex
        self._known = {name: known[name] for name in view.topics if name in known}
        work_max = regex.work + _WORK_MAX
        for name in view.topics:
            if name not in self._known:
                if regex.work > work_max:
                    break
                self._known[name] = regex.matches(name)
        self.is_complete = len(self._known) == len(view.topics)
        return frozenset(name for name, is_match in self._known.items() if is_match)


class Subscriptions:
    """Resolves members' subscriptions. Holds nothing that could not be had again."""

    def __init__(self) -> None:
        self._found: dict[str, _Found] = {}
        self._revision: int | None = None

    def check(self, expression: str, view: TopicView) -> None:
        """Refuse an expression that cannot be read, or takes too long for the topics that there are."""
        if not expression or expression in self._found:
            return
        found = _Found(Regex(expression))
        found.names(view)
        if not found.is_complete:
            raise InvalidRegexError("the regular expression takes too long to match; subscribe to names")
        self._found[expression] = found

    def is_current(self, view: TopicView) -> bool:
        return self._revision == view.revision and all(found.is_complete for found in self._found.values())

    def seen(self, view: TopicView, members: Mapping[str, ConsumerMember]) -> None:
        self._revision = view.revision
        used = {member.topic_regex for member in members.values()}
        self._found = {expression: found for expression, found in self._found.items() if expression in used}

    def resolve(self, member: ConsumerMember, view: TopicView) -> frozenset[str]:
        named = frozenset(name for name in member.topic_names if name in view.topics)
        if not member.topic_regex:
            return named
        found = self._found.get(member.topic_regex)
        if found is None:
            found = self._found[member.topic_regex] = _Found(Regex(member.topic_regex))
        return named | found.names(view)
