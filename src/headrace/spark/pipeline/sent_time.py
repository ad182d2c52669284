"""When the message at an offset was sent, for who meets its acknowledgement or a group's commit.

Most acknowledgements come soon after their messages, so the batches that were just read know the answer. For the others
the log is asked at that offset, and all that comes back with the answer is remembered. Where the message is gone (an
acknowledged one is cleaned away with its file) the answer is None, and the caller counts that.

Times are those of batches: between its first and its last message they are spread evenly. A batch that came over HTTP
has one time; one of a Kafka producer spans as long as the producer waited for it to fill.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple

from headrace.client.values import TopicPartition
from headrace.model.batch import HEADER_SIZE, NO_TIMESTAMP, Buffer, read_header, read_prefix

# Spans remembered for a partition; above it the lower half is forgotten.
SPANS_MAX = 50_000

# Bytes of the log at an offset, whole batches; nothing where the partition has none there.
Look = Callable[[TopicPartition, int], Buffer]


class Span(NamedTuple):
    """Offsets that were sent between two moments; None: nobody knows any more."""

    first: int
    last: int
    first_ms: int | None
    last_ms: int


class SentTimes:
    def __init__(self, look: Look) -> None:
        self._look = look
        self._spans: dict[TopicPartition, list[Span]] = {}

    def learn(self, at: TopicPartition, span: Span) -> None:
        spans = self._spans.setdefault(at, [])
        if not spans or span.first > spans[-1].first:
            spans.append(span)
        else:
            place = bisect_right(spans, span.first, key=lambda one: one.first)
            if place and spans[place - 1].first == span.first:
                spans[place - 1] = span
            else:
                spans.insert(place, span)
        if len(spans) > SPANS_MAX:
            del spans[: SPANS_MAX // 2]

    def find(self, at: TopicPartition, offset: int) -> int | None:
        """Milliseconds since 1970, or None."""
        found = self._known(at, offset)
        if found is None:
            self._ask(at, offset)
            found = self._known(at, offset)
        if found is None or found.first_ms is None:
            return None
        width = found.last - found.first
        if not width:
            return found.first_ms
        return found.first_ms + (found.last_ms - found.first_ms) * (offset - found.first) // width

    def _known(self, at: TopicPartition, offset: int) -> Span | None:
        spans = self._spans.get(at, [])
        place = bisect_right(spans, offset, key=lambda one: one.first)
        return spans[place - 1] if place and offset <= spans[place - 1].last else None

    def _ask(self, at: TopicPartition, offset: int) -> None:
        """Learn what the log has there. What it has not is learnt too: nobody asks for it again."""
        following: int | None = None
        for span in read_spans(self._look(at, offset)):
            self.learn(at, span)
            if following is None and span.last >= offset:
                following = span.first
        if following is None or following > offset:
            self.learn(at, Span(offset, offset if following is None else following - 1, None, 0))


def read_spans(records: Buffer) -> Iterator[Span]:
    """The batches of messages in some bytes, from their headers."""
    at = 0
    while len(records) - at >= HEADER_SIZE:
        _, size = read_prefix(records, at)
        if at + size > len(records):
            return
        header = read_header(records, at)
        if not header.is_control and header.base_timestamp_ms != NO_TIMESTAMP:
            last_ms = max(header.base_timestamp_ms, header.max_timestamp_ms)
            yield Span(header.base_offset, header.last_offset, header.base_timestamp_ms, last_ms)
        at += size
