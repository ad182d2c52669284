"""Queues as an operator sees them: one call for each route that is not about messages on their way."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from headrace.client.http.caller import JSON, MSGPACK, Caller
from headrace.client.http.problem import read
from headrace.client.queue.description import (
    BrowsePage,
    ClockReport,
    DescribedPage,
    Description,
    Explanation,
    Purged,
    QueuePage,
    Reader,
    Readers,
    Redrive,
    RedriveFilter,
    Redrives,
    Settings,
    State,
)
from headrace.model.errors import InvalidNameError

T = TypeVar("T")

_PAGE = 1_000  # queues that one request describes


def queue_path(name: str) -> str:
    """Where a queue is on a node, which knows what may be a name; here is only what no path can say."""
    given: object = name
    if not isinstance(given, str) or not given:
        raise InvalidNameError(f"{name!r} is no queue's name; give a text")
    try:
        return f"/queues/{quote(name, safe='')}"
    except UnicodeEncodeError:
        raise InvalidNameError(f"{name!r} is no queue's name: it is not UTF-8 text") from None


def _query(**values: object) -> str:
    given = {name: value for name, value in values.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


class Administration:
    """The routes of one node, by queue name."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    async def _json(
        self, kind: type[T], method: str, target: str, document: Any = None, *, is_repeatable: bool = True
    ) -> T:
        body = b"" if document is None else msgspec.json.encode(document)
        answer = await self._caller.call(method, target, body, form=JSON, is_repeatable=is_repeatable)
        # Keys of JSON objects are text, also those of positions by partition: hence not strict.
        decode: Callable[[bytes], T] = msgspec.json.Decoder(kind, strict=False).decode
        return read(decode, answer)

    async def clock(self) -> ClockReport:
        return await self._json(ClockReport, "GET", "/clock")

    async def confirm_clock(self) -> ClockReport:
        return await self._json(ClockReport, "POST", "/clock/confirm", is_repeatable=False)

    async def names(self, prefix: str = "") -> list[str]:
        found: list[str] = []
        after: str | None = None
        while True:
            page = await self._json(QueuePage, "GET", "/queues" + _query(prefix=prefix or None, after=after))
            found += [queue.name for queue in page.queues]
            after = page.next
            if after is None:
                return found

    async def descriptions(self, prefix: str = "") -> list[Description]:
        found: list[Description] = []
        after: str | None = None
        while True:
            query = _query(prefix=prefix or None, after=after, describe="true", limit=_PAGE)
            page = await self._json(DescribedPage, "GET", "/queues" + query)
            found += page.queues
            after = page.next
            if after is None:
                return found

    async def create(
        self,
        name: str,
        settings: Settings,
        *,
        partitions: int | None = None,
        durability: str | None = None,
        convert: bool = False,
    ) -> Description:
        document: dict[str, Any] = {"config": settings}
        if convert:
            document["convert"] = True
        if partitions is not None:
            document["partitions"] = partitions
        if durability is not None:
            document["durability"] = durability
        return await self._json(Description, "PUT", queue_path(name), document)

    async def describe(self, name: str) -> Description:
        return await self._json(Description, "GET", queue_path(name))

    async def update(self, name: str, settings: Settings) -> Description:
        return await self._json(Description, "PATCH", queue_path(name), {"config": settings})

    async def delete(self, name: str) -> None:
        await self._caller.call("DELETE", queue_path(name), is_repeatable=False)

    async def purge(self, name: str) -> int:
        # Not repeated in doubt: a second purge would drop what was sent since the first.
        return (await self._json(Purged, "POST", f"{queue_path(name)}/purge", is_repeatable=False)).purged

    async def browse(self, name: str, *, state: State | None, limit: int, after: str | None) -> BrowsePage:
        target = f"{queue_path(name)}/browse" + _query(state=state, limit=limit, after=after)
        answer = await self._caller.call("GET", target, form=MSGPACK)
        return read(msgspec.msgpack.Decoder(BrowsePage).decode, answer)

    async def explain(self, name: str, *, id: str | None, key: str | None) -> Explanation:
        return await self._json(Explanation, "GET", f"{queue_path(name)}/explain" + _query(id=id, key=key))

    async def redrive(
        self, name: str, *, target: str | None, filter: RedriveFilter | None, rate: int | None
    ) -> Redrive:
        document: dict[str, Any] = {}
        if target is not None:
            document["target"] = target
        if filter is not None:
            document["filter"] = filter
        if rate is not None:
            document["rate"] = rate
        # A second start in doubt is refused by the node, which runs one redrive at a time.
        return await self._json(Redrive, "POST", f"{queue_path(name)}/redrives", document, is_repeatable=False)

    async def redrives(self, name: str) -> list[Redrive]:
        return (await self._json(Redrives, "GET", f"{queue_path(name)}/redrives")).redrives

    async def cancel_redrive(self, name: str, id: str) -> Redrive:
        return await self._json(Redrive, "DELETE", f"{queue_path(name)}/redrives/{quote(id, safe='')}")

    async def readers(self, name: str) -> list[Reader]:
        return (await self._json(Readers, "GET", f"{queue_path(name)}/readers")).readers

    async def move_reader(self, name: str, reader: str, positions: Mapping[int, int]) -> Reader:
        document = {"positions": {str(partition): offset for partition, offset in positions.items()}}
        return await self._json(Reader, "PUT", f"{queue_path(name)}/readers/{quote(reader, safe='')}", document)

    async def remove_reader(self, name: str, reader: str) -> None:
        await self._caller.call("DELETE", f"{queue_path(name)}/readers/{quote(reader, safe='')}")
