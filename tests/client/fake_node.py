"""A node's queue routes in memory, with faults that a healthy node does not show.

It keeps to the documents of the REST interface and to the plain rules of a queue: leases with receipts, deduplication
by id. What a fault says happens once, to the next request that its pattern matches.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

import msgspec

from headrace.model.address import Address


class Fault(Enum):
    LOSE_REQUEST = "close the connection before anything is done"
    LOSE_ANSWER = "do it and close the connection"
    SILENCE = "do it and never answer"
    OVERLOADED = "refuse with 503"
    NONSENSE = "answer with something that is no HTTP"


class Refused(Exception):
    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


class Request(NamedTuple):
    method: str
    path: str
    query: dict[str, str]
    document: Any


class FakeQueue:
    def __init__(self, config: dict[str, Any], *, leases_end: bool = False) -> None:
        self.config = config
        self._leases_end = leases_end
        self.messages: list[dict[str, Any]] = []
        self.visible: list[int] = []
        self.leased: dict[str, int] = {}  # receipt -> offset
        self.attempts: dict[int, int] = {}
        self.done: list[int] = []
        self.rejected: dict[int, str] = {}
        self.released: list[tuple[int, float | None]] = []
        self.given_back: list[int] = []
        self.extended: list[tuple[int, float]] = []
        self.seen: dict[str, int] = {}
        self.requests: dict[str, dict[int, dict[str, Any]]] = {}
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self.arrived = asyncio.Event()

    def send(self, message: dict[str, Any]) -> dict[str, Any]:
        id = message.get("deduplication_id")
        if id is not None and id in self.seen:
            return self._place(self.seen[id], duplicate=True)
        offset = len(self.messages)
        if id is not None:
            self.seen[id] = offset
        self.messages.append(message)
        self._show(offset)
        return self._place(offset, duplicate=False)

    def _place(self, offset: int, *, duplicate: bool) -> dict[str, Any]:
        return {"id": f"0-{offset}", "partition": 0, "offset": offset, "duplicate": duplicate}

    def _show(self, offset: int) -> None:
        self.visible.append(offset)
        self.visible.sort(key=lambda o: (-self.messages[o].get("priority", 5), o))
        self.arrived.set()

    def receive(self, count: int, lease_s: float) -> list[dict[str, Any]]:
        taken, self.visible = self.visible[:count], self.visible[count:]
        found = []
        for offset in taken:
            self.attempts[offset] = self.attempts.get(offset, 0) + 1
            receipt = f"receipt-{offset}-{self.attempts[offset]}"
            self.leased[receipt] = offset
            self._lease(receipt, lease_s)
            kept = {
                k: v for k, v in self.messages[offset].items() if k in ("body", "key", "headers", "deduplication_id")
            }
            found.append(
                {
                    "id": f"0-{offset}",
                    "receipt_handle": receipt,
                    "priority": self.messages[offset].get("priority", 5),
                    "attempt": self.attempts[offset],
                    "lease": lease_s,
                    "sent_ms": 1,
                    "first_received_ms": 2,
                    "partition": 0,
                    "offset": offset,
                    **kept,
                }
            )
        return found

    def _lease(self, receipt: str, lease_s: float) -> None:
        if receipt in self.timers:
            self.timers.pop(receipt).cancel()
        if self._leases_end:
            self.timers[receipt] = asyncio.get_running_loop().call_later(lease_s, self.expire, receipt)

    def expire(self, receipt: str) -> None:
        offset = self.leased.pop(receipt, None)
        if offset is not None:
            self._show(offset)

    def end(self, receipt: str) -> int:
        offset = self.leased.pop(receipt, None)
        if offset is None:
            raise Refused(409, "stale_receipt", "the lease of this receipt is over")
        return offset

    def acknowledge(self, receipt: str) -> None:
        self.done.append(self.end(receipt))

    def release(self, item: dict[str, Any]) -> None:
        offset = self.end(item["receipt_handle"])
        if item.get("unbegun"):
            self.given_back.append(offset)
            asyncio.get_running_loop().call_soon(self._show, offset)
            return
        delay_s = item.get("delay")
        self.released.append((offset, delay_s))
        asyncio.get_running_loop().call_later(delay_s or 0, self._show, offset)

    def reject(self, item: dict[str, Any]) -> None:
        self.rejected[self.end(item["receipt_handle"])] = item["reason"]

    def extend(self, item: dict[str, Any]) -> None:
        receipt = item["receipt_handle"]
        offset = self.end(receipt)
        self.leased[receipt] = offset
        self._lease(receipt, item["lease"])
        self.extended.append((offset, item["lease"]))


class FakeTransaction:
    """What was sent and acknowledged in it waits here for its end."""

    def __init__(self, node: "FakeNode", timeout_s: float) -> None:
        self._node = node
        self.timeout_s = timeout_s
        self.sent: list[tuple[str, dict[str, Any]]] = []
        self.held: list[tuple[str, str]] = []  # queue and receipt
        self.end: str | None = None

    def check_open(self) -> None:
        if self.end is not None:
            raise Refused(409, "transaction_state", f"the transaction is over ({self.end}); begin another")

    def send(self, queue: str, document: dict[str, Any]) -> dict[str, Any]:
        assert "request_id" not in document
        self.check_open()
        results = []
        for index, item in enumerate(document["messages"]):
            if (error := self._node.entry_error(index)) is not None:
                results.append(error)
            else:
                results.append({"id": f"0-{len(self.sent)}", "partition": 0, "offset": len(self.sent)})
                self.sent.append((queue, item))
        return {"results": results}

    def acknowledge(self, queue: str, receipt: str) -> None:
        self.check_open()
        if receipt not in self._node.queue(queue).leased:
            raise Refused(409, "stale_receipt", "the lease of this receipt is over")
        self.held.append((queue, receipt))

    def finish(self, how: str) -> None:
        if self.end == how:
            return
        self.check_open()
        self.end = how
        for queue, receipt in self.held:
            if how == "commit":
                self._node.queue(queue).acknowledge(receipt)
            else:
                self._node.queue(queue).expire(receipt)
        if how == "commit":
            for queue, item in self.sent:
                self._node.make(queue).send(item)


class FakeNode:
    def __init__(self) -> None:
        self.queues: dict[str, FakeQueue] = {}
        self.transactions: dict[str, FakeTransaction] = {}
        self.requests: list[Request] = []
        self.faults: list[tuple[str, Fault]] = []
        self.entry_faults: list[tuple[int, str]] = []  # (index, code) of the next send's entries, taken in turn
        # Leases of queues that are made from now on end by the clock. Else by `expire` alone: on a busy machine a short
        # one may be over before anybody could extend it.
        self.leases_end = False
        self.connection_count = 0
        self.open_count = 0
        self.address = Address("127.0.0.1", 0)
        self._served: set[asyncio.Task[None]] = set()

    def queue(self, name: str) -> FakeQueue:
        if name not in self.queues:
            raise Refused(404, "unknown_queue", f"there is no queue {name}; create it, or send to it")
        return self.queues[name]

    def make(self, name: str, **config: Any) -> FakeQueue:
        return self.queues.setdefault(name, FakeQueue(config, leases_end=self.leases_end))

    def of(self, pattern: str) -> list[Request]:
        return [request for request in self.requests if re.search(pattern, f"{request.method} {request.path}")]

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    async def close(self) -> None:
        for task in self._served:
            task.cancel()
        await asyncio.gather(*self._served, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connection_count += 1
        self.open_count += 1
        try:
            while await self._serve_one(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open_count -= 1
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *lines = head.split("\r\n")
        method, target, _ = line.split(" ")
        headers = {name.lower(): value for name, _, value in (text.partition(": ") for text in lines if text)}
        assert headers["host"] == str(self.address)
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        is_msgpack = headers.get("accept") == "application/msgpack"
        codec: Any = msgspec.msgpack if is_msgpack else msgspec.json
        split = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(split.query).items()}
        request = Request(method, split.path, query, codec.decode(body) if body else None)
        self.requests.append(request)
        fault = self._fault(request)
        if fault is Fault.LOSE_REQUEST:
            return False
        if fault is Fault.NONSENSE:
            writer.write(b"220 mail.example ESMTP\r\n")
            return False
        kind = "application/msgpack" if is_msgpack else "application/json"
        retry_after = ""
        try:
            if fault is Fault.OVERLOADED:
                retry_after = "Retry-After: 0\r\n"
                raise Refused(503, "overloaded", "too many requests; retry later")
            status, answer = 200, codec.encode(await self._answer(request))
        except Refused as error:
            kind = "application/problem+json"
            status = error.status
            answer = msgspec.json.encode({"status": status, "code": error.code, "detail": error.detail})
        if fault is Fault.LOSE_ANSWER:
            return False
        if fault is Fault.SILENCE:
            await reader.read()
            return False
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\n{retry_after}Content-Length: {len(answer)}\r\n\r\n"
        writer.write(head.encode() + answer)
        return True

    def _fault(self, request: Request) -> Fault | None:
        for index, (pattern, fault) in enumerate(self.faults):
            if re.search(pattern, f"{request.method} {request.path}"):
                del self.faults[index]
                return fault
        return None

    async def _answer(self, request: Request) -> Any:
        parts = [unquote(part) for part in request.path.strip("/").split("/")]
        if parts[0] == "transactions":
            return self._answer_transaction(parts[1:], request.document)
        assert parts[0] == "queues"
        if len(parts) == 1:
            names = [name for name in sorted(self.queues) if name.startswith(request.query.get("prefix", ""))]
            after = request.query.get("after", "")
            page = [name for name in names if name > after][: int(request.query.get("limit", 2))]
            more = bool(page) and page[-1] != names[-1]
            described = request.query.get("describe") == "true"
            listed = [self._describe(name, self.queue(name)) if described else {"name": name} for name in page]
            return {"queues": listed, "next": page[-1] if more else None}
        name, document = parts[1], request.document
        match (request.method, *parts[2:]):
            case ("POST", "messages"):
                return {"results": self._send_all(self.make(name), document)}
            case ("GET", "messages"):
                return {"messages": await self._receive(self.queue(name), request.query)}
            case ("POST", "acknowledgements"):
                return _each(document["receipt_handles"], self.queue(name).acknowledge)
            case ("POST", "extensions"):
                return _each(document["extensions"], self.queue(name).extend)
            case ("POST", "releases"):
                return _each(document["releases"], self.queue(name).release)
            case ("POST", "rejections"):
                return _each(document["rejections"], self.queue(name).reject)
            case ("PUT",):
                return self._describe(name, self.make(name, **document["config"]))
            case ("GET",):
                return self._describe(name, self.queue(name))
            case ("PATCH",):
                self.queue(name).config.update(document["config"])
                return self._describe(name, self.queue(name))
            case ("POST", "purge"):
                queue = self.queue(name)
                count, queue.visible = len(queue.visible), []
                return {"purged": count}
        raise Refused(404, "not_found", "there is nothing here")

    def _send_all(self, queue: FakeQueue, document: dict[str, Any]) -> list[dict[str, Any]]:
        """A repeated request stores what the first did not, and answers the rest as the first did."""
        id = document.get("request_id")
        assert id is None or not any("deduplication_id" in message for message in document["messages"])
        known = queue.requests.setdefault(id, {}) if id is not None else {}
        results = []
        for index, item in enumerate(document["messages"]):
            result = {**known[index], "duplicate": True} if index in known else self._send(queue, index, item)
            if "error" not in result:
                known[index] = result
            results.append(result)
        return results

    def _send(self, queue: FakeQueue, index: int, item: dict[str, Any]) -> dict[str, Any]:
        return self.entry_error(index) or queue.send(item)

    def entry_error(self, index: int) -> dict[str, Any] | None:
        """The fault that this entry of a send is to have."""
        fault = next((f for f in self.entry_faults if f[0] == index), None)
        if fault is None:
            return None
        self.entry_faults.remove(fault)
        return {"error": {"code": fault[1], "detail": "so it is", "retriable": True}}

    def _answer_transaction(self, parts: list[str], document: Any) -> Any:
        if not parts:
            id = f"tx {len(self.transactions)}"
            timeout_s = document.get("timeout", 60.0)
            self.transactions[id] = FakeTransaction(self, timeout_s)
            return {"id": id, "timeout": timeout_s}
        if parts[0] not in self.transactions:
            raise Refused(404, "unknown_transaction", "no transaction has this id")
        transaction = self.transactions[parts[0]]
        match parts[1:]:
            case ["queues", queue, "messages"]:
                return transaction.send(queue, document)
            case ["queues", queue, "acknowledgements"]:
                transaction.check_open()
                return _each(document["receipt_handles"], lambda receipt: transaction.acknowledge(queue, receipt))
            case ["commit" | "abort" as how]:
                transaction.finish(how)
                return {}
        raise Refused(404, "not_found", "there is nothing here")

    async def _receive(self, queue: FakeQueue, query: dict[str, str]) -> list[dict[str, Any]]:
        wait_s = float(query.get("wait", "0"))
        count, lease_s = int(query["batch_size"]), float(query.get("lease", queue.config.get("lease", 30)))
        try:
            async with asyncio.timeout(wait_s):
                while not queue.visible:
                    queue.arrived.clear()
                    await queue.arrived.wait()
        except TimeoutError:
            return []
        return queue.receive(count, lease_s)

    def _describe(self, name: str, queue: FakeQueue) -> dict[str, Any]:
        counts = {"visible": len(queue.visible), "leased": len(queue.leased), "sent": len(queue.messages)}
        return {"name": name, "partitions": 1, "durability": "fsync", "config": queue.config, "counts": counts}


def _each(items: list[Any], apply: Callable[[Any], None]) -> dict[str, Any]:
    results: list[dict[str, Any]] = []
    for item in items:
        try:
            apply(item)
        except Refused as error:
            results.append({"error": {"code": error.code, "detail": error.detail, "retriable": False}})
        else:
            results.append({})
    return {"results": results}


@asynccontextmanager
async def fake_node() -> AsyncIterator[FakeNode]:
    node = FakeNode()
    server = await asyncio.start_server(node.accept, "127.0.0.1", 0)
    node.address = Address(*server.sockets[0].getsockname()[:2])
    try:
        yield node
    finally:
        server.close()
        await node.close()
