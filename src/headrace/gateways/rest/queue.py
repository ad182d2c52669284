"""Everything about queues that is not on the road of every message, as a Starlette application.

What an endpoint raises reaches the HTTP server, which answers it as it answers every route's errors.
"""

import base64
import binascii
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.broker.queue.port import DEFAULTS, MessageState, QueueDescription, Queues
from headrace.gateways.http.message import JSON, RefusedError
from headrace.gateways.rest import queue_form
from headrace.gateways.rest.config_form import NewQueue, QueueChange, changed, shown
from headrace.gateways.rest.decode import Body, Form, answer_form_of, invalid_field, read_count, read_query, read_switch
from headrace.gateways.rest.message import MSGPACK, to_json, to_msgpack
from headrace.model.errors import QueueExistsError, UnknownQueueError, UnknownReaderError, UnknownRedriveError
from headrace.model.queue import QueueConfig

PAGE_MAX = 1_000
PAGE_DEFAULT = 100
BROWSE_DEFAULT = 10
# No other answer about queues is larger.
ANSWER_BYTES = 64 * 1024

_LIMIT = re.compile(r"(?:^|&)limit=([0-9]{1,4})(?:&|$)")

_NEW_QUEUE = Body(NewQueue)
_CHANGE = Body(QueueChange)
_REDRIVE = Body(queue_form.NewRedrive)
_NOTHING = Body(queue_form.Nothing)
_POSITIONS = Body(queue_form.ReaderPositions)


def _answer(value: Any, *, status: int = 200) -> Response:
    return Response(to_json(value) + b"\n", status_code=status, media_type=JSON)


def _fields(request: Request, *names: str) -> dict[str, str]:
    return read_query(request.scope["query_string"].decode(), frozenset(names))


async def _read(request: Request, body: Body, *, default: bytes | None = None) -> Any:
    data = await request.body()
    return body.read(data or default or b"", request.headers.get("content-type") if data else None)


def _differences(there: QueueDescription, config: QueueConfig, form: NewQueue) -> list[str]:
    """The names of what a queue has otherwise than described. What is left out is described by its default."""
    has, wanted = (msgspec.to_builtins(shown(one)) for one in (there.queue.config, config))
    different = [name for name in has if has[name] != wanted[name]]
    if form.partitions not in (msgspec.UNSET, there.partition_count):
        different.append("partitions")
    if form.durability not in (msgspec.UNSET, there.durability):
        different.append("durability")
    return different


class QueueRoutes:
    def __init__(self, queues: Queues, *, is_admin: bool, admin_address: Callable[[], str]) -> None:
        self._queues = queues
        self._is_admin = is_admin
        self._admin_address = admin_address

    def application(self, *more: Route) -> Starlette:
        queue = "/queues/{queue}"
        return Starlette(
            routes=[
                Route("/queues", self.list, methods=["GET"]),
                Route(queue, self.get, methods=["GET"]),
                Route(queue, self.put, methods=["PUT"]),
                Route(queue, self.patch, methods=["PATCH"]),
                Route(queue, self.delete, methods=["DELETE"]),
                Route(f"{queue}/purge", self.purge, methods=["POST"]),
                Route(f"{queue}/browse", self.browse, methods=["GET"]),
                Route(f"{queue}/explain", self.explain, methods=["GET"]),
                Route(f"{queue}/redrives", self.get_redrives, methods=["GET"]),
                Route(f"{queue}/redrives", self.start_redrive, methods=["POST"]),
                Route(f"{queue}/redrives/{{id}}", self.cancel_redrive, methods=["DELETE"]),
                Route(f"{queue}/readers", self.get_readers, methods=["GET"]),
                Route(f"{queue}/readers/{{name}}", self.get_reader, methods=["GET"]),
                Route(f"{queue}/readers/{{name}}", self.put_reader, methods=["PUT"]),
                Route(f"{queue}/readers/{{name}}", self.delete_reader, methods=["DELETE"]),
                *more,
            ]
        )

    def answer_bytes(self, path: str, params: Mapping[str, str], query: str) -> int:
        """About how many bytes the answer to a GET has."""
        if not path.endswith("/browse"):
            return ANSWER_BYTES
        limit = _LIMIT.search(query)
        # What is read and what it is written as are in memory together for a while.
        return 2 * self._queues.answer_bytes(params["queue"], BROWSE_DEFAULT if limit is None else int(limit[1]))

    # Queues.

    async def list(self, request: Request) -> Response:
        fields = _fields(request, "prefix", "after", "limit", "describe")
        limit = read_count(fields, "limit", at_least=1, at_most=PAGE_MAX) or PAGE_DEFAULT
        names = self._queues.names(fields.get("prefix", ""))
        start = bisect_right(names, fields["after"]) if "after" in fields else 0
        page = names[start : start + limit]
        is_last = start + limit >= len(names)
        listed = [queue_form.ListedQueue(name=name) for name in page]
        if read_switch(fields, "describe"):
            listed = [one for name in page if (one := self._listed(name)) is not None]
        return _answer(queue_form.QueueList(listed, None if is_last else page[-1]))

    def _listed(self, name: str) -> queue_form.ListedQueue | None:
        try:
            return queue_form.listed(self._queues.describe_listed(name))
        except UnknownQueueError:
            return None  # it is being made

    async def get(self, request: Request) -> Response:
        _fields(request)
        return self._described(request.path_params["queue"])

    def _described(self, name: str, *, status: int = 200) -> Response:
        return _answer(queue_form.described(self._queues.describe(name)), status=status)

    async def put(self, request: Request) -> Response:
        _fields(request)
        name = request.path_params["queue"]
        form: NewQueue = await _read(request, _NEW_QUEUE, default=b"{}")
        config = changed(DEFAULTS, form.config)
        try:
            await self._queues.create(
                name,
                config,
                partition_count=-1 if form.partitions is msgspec.UNSET else int(form.partitions),
                durability=None if form.durability is msgspec.UNSET else form.durability,
                convert=form.convert,
            )
        except QueueExistsError:
            try:
                there = self._queues.describe(name)
            except UnknownQueueError:
                there = None  # it is being made or deleted
            if there is None:
                raise
            if different := _differences(there, config, form):
                what = f"queue {name} exists with another value of {', '.join(different)}"
                raise QueueExistsError(f"{what}; change it, or choose another name") from None
            return self._described(name)
        return self._described(name, status=201)

    async def patch(self, request: Request) -> Response:
        _fields(request)
        name = request.path_params["queue"]
        form: QueueChange = await _read(request, _CHANGE)
        await self._queues.update(name, lambda config: changed(config, form.config))
        return self._described(name)

    async def delete(self, request: Request) -> Response:
        _fields(request)
        if not self._is_admin:
            raise RefusedError(
                403,
                "administrators_only",
                f"queues are deleted on the administrator's listener only, which is {self._admin_address()}; send the "
                "same request there",
            )
        await self._queues.delete(request.path_params["queue"])
        return Response(status_code=204)

    async def purge(self, request: Request) -> Response:
        _fields(request)
        await _read(request, _NOTHING, default=b"{}")  # whoever says what to drop would lose what he meant to keep
        return _answer(queue_form.Purged(await self._queues.purge(request.path_params["queue"])))

    # Looking.

    async def browse(self, request: Request) -> Response:
        fields = _fields(request, "state", "limit", "after")
        state = None
        if "state" in fields:
            states = {one.value: one for one in MessageState if one.is_browsable}
            if fields["state"] not in states:
                raise invalid_field("state", f"it takes one of {', '.join(states)}")
            state = states[fields["state"]]
        page = await self._queues.browse(
            request.path_params["queue"],
            state=state,
            count_max=read_count(fields, "limit", at_least=1, at_most=PAGE_MAX) or BROWSE_DEFAULT,
            after=fields.get("after"),
        )
        if answer_form_of(None, request.headers.get("accept")) is Form.MSGPACK:
            packed = [queue_form.browsed_packed(message) for message in page.messages]
            value = queue_form.PackedBrowsedMessages(packed, page.next, list(page.offline))
            return Response(to_msgpack(value), media_type=MSGPACK)
        messages = [queue_form.browsed(message) for message in page.messages]
        return _answer(queue_form.BrowsedMessages(messages, page.next, list(page.offline)))

    async def explain(self, request: Request) -> Response:
        fields = _fields(request, "id", "key", "key_base64")
        if len(fields) != 1:
            raise invalid_field("id", "give exactly one of id, key and key_base64")
        key = fields["key"].encode() if "key" in fields else None
        if "key_base64" in fields:
            try:
                key = base64.b64decode(fields["key_base64"], validate=True)
            except (binascii.Error, ValueError):
                raise invalid_field("key_base64", "it is not base64") from None
        return _answer(await self._queues.explain(request.path_params["queue"], id=fields.get("id"), key=key))

    # Dead letters.

    async def get_redrives(self, request: Request) -> Response:
        _fields(request)
        redrives = self._queues.redrives(request.path_params["queue"])
        return _answer(queue_form.Redrives([queue_form.redriven(one) for one in redrives]))

    async def start_redrive(self, request: Request) -> Response:
        _fields(request)
        form: queue_form.NewRedrive = await _read(request, _REDRIVE, default=b"{}")
        redrive = await self._queues.redrive(
            request.path_params["queue"],
            target=form.target,
            filter=form.filter.filter(),
            rate_per_second=None if form.rate is None else int(form.rate),
        )
        return _answer(queue_form.redriven(redrive), status=202)

    async def cancel_redrive(self, request: Request) -> Response:
        _fields(request)
        queue, id = request.path_params["queue"], request.path_params["id"]
        try:
            redrive = await self._queues.cancel_redrive(queue, id)
        except UnknownRedriveError:
            # One that is over has ended, which is all that was asked for.
            ended = [one for one in self._queues.redrives(queue) if one.id == id]
            if not ended:
                raise
            redrive = ended[0]
        return _answer(queue_form.redriven(redrive))

    # Named readers.

    async def get_readers(self, request: Request) -> Response:
        _fields(request)
        readers = self._queues.readers(request.path_params["queue"])
        return _answer(queue_form.Readers([queue_form.ReaderForm(one.name, one.positions) for one in readers]))

    async def get_reader(self, request: Request) -> Response:
        _fields(request)
        name = request.path_params["name"]
        for reader in self._queues.readers(request.path_params["queue"]):
            if reader.name == name:
                return _answer(queue_form.ReaderForm(reader.name, reader.positions))
        raise UnknownReaderError("no reader of this queue has this name; PUT registers one")

    async def put_reader(self, request: Request) -> Response:
        _fields(request)
        form: queue_form.ReaderPositions = await _read(request, _POSITIONS, default=b"{}")
        positions = {partition: int(offset) for partition, offset in form.positions.items()}
        reader = await self._queues.move_reader(request.path_params["queue"], request.path_params["name"], positions)
        return _answer(queue_form.ReaderForm(reader.name, reader.positions))

    async def delete_reader(self, request: Request) -> Response:
        _fields(request)
        await self._queues.remove_reader(request.path_params["queue"], request.path_params["name"])
        return Response(status_code=204)
