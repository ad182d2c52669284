"""One HTTP connection: bytes in, requests out; answers in, bytes out, in the order of the requests.

Theory of operation. A connection is callbacks on the event loop; `reader` makes requests of what arrives. A route that
answers at once is answered in the same callback; one that gives a Later is answered in the turn in which its promise is
kept; one that gives a coroutine gets a task. Every request has a slot, and slots are answered from the front, so
pipelined requests are answered in order whichever finishes first. The event loop joins what is written in one of its
turns into one call of the kernel.

Whoever waits for nobody. When the peer goes away, when it closes its half, when the node stops and when an answer is
overdue, a wait that can be cancelled is: a long poll would otherwise take messages for nobody. A task that only looks
(GET) ends too; one that changes something goes on to its end, because half a change is worse than one that nobody
hears of.

Holding back. Reading stops while too many requests are unanswered, while the peer does not take its answers, and for
a turn of the loop after a number of requests, so that one connection's pipeline does not keep the others waiting.

Answers that may be large. A route that gives a Sized begins once its request is the first that is not answered, the
peer has taken what was answered before, and the node has memory for the answer (`gateways.answers`). What the peer
leaves untaken is charged as long as it holds memory; after a large answer that is until it is taken to its last byte.

Ending. After a request that cannot be understood nothing that follows can be trusted: it is refused in its turn, and
the connection ends. An end is: the last answer, our half closed, what the peer still sends read and dropped for a
bounded time and size, then closed. Closing with unread bytes would send a reset that can overtake the answer.

Deadlines (head, body, answer, idle, unread answers, lingering) are looked at by the sweep in `shared`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import msgspec

from headrace.broker.promise import Promise
from headrace.gateways.answers import Share
from headrace.gateways.connections import counted_address
from headrace.gateways.http.message import CONTINUE, RefusedError, Request, Response
from headrace.gateways.http.outbox import Outbox
from headrace.gateways.http.reader import Arrived, RequestReader
from headrace.gateways.http.router import Later, Outcome, Sized, visiting
from headrace.gateways.http.shared import Shared, no_room_for_answer, too_many_bytes
from headrace.gateways.http.slot import NOWHERE, Slot, choose
from headrace.model.errors import HeadraceError, ShuttingDownError, TimedOutError

_LOGGER = logging.getLogger(__name__)

# Requests that one connection may have served in one turn of the loop before the others get theirs.
REQUESTS_A_TURN = 64


class HttpConnection(asyncio.Protocol):
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._limits = shared.limits
        self._requests_in_flight_max = shared.limits.requests_in_flight_max
        self._transport: asyncio.Transport | None = None
        self.address = "?"
        self._is_proven = False  # has completed a request
        self._reader = RequestReader(shared.limits, heads=shared.heads)
        self._body_size = 0  # of the body that is being read, in the budget of all bodies
        self._asked_for_body = False
        self._slots: deque[Slot] = deque()
        self._processing = False
        self._held_back = False
        self._outbox: Outbox  # from connection_made on, which comes before anything else
        self._no_more_requests = False
        self._peer_ended = False
        self._draining = False
        self._lingering = False
        self._lingered_bytes = 0
        self._closed = False
        # Times of the coarse clock: since when a head or a body is on its way, and when something happened last.
        self._part_since_ms = shared.now_ms
        self._last_ms = shared.now_ms

    @property
    def completed_ms(self) -> int | None:
        return self._last_ms if self._is_proven else None

    @property
    def is_busy(self) -> bool:
        return bool(self._slots) or self._outbox.untaken_bytes > 0

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._outbox = Outbox(self._transport, self._shared)
        self.address = counted_address(transport.get_extra_info("peername"))
        refused = self._shared.add(self)
        if refused is not None:
            self._refuse(refused)
            # Without lingering: the descriptor is what is short.
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        slots, self._slots = self._slots, deque()
        for slot in slots:
            if slot.task is None:
                self._shared.bodies_bytes -= len(slot.request.body)
            # An answer that was not written takes back what it would have handed out.
            slot.cancel()
        self._stop_reading()
        self._outbox.end()
        self._shared.counters.connections_open -= 1
        self._shared.remove(self)

    def data_received(self, data: bytes) -> None:
        shared = self._shared
        shared.counters.bytes_in += len(data)
        if self._no_more_requests:
            self._lingered_bytes += len(data)
            if self._lingered_bytes > self._limits.linger_bytes_max:
                self.abort()
            return
        if not self._held_back and not self._outbox.is_paused and (arrived := self._reader.whole(data)) is not None:
            # A request that came in one piece, with nothing before or behind it: the road of most requests. No time is
            # noted: while there is a slot, the answer's deadline is the one that counts, and an answer notes it.
            size = len(arrived[1])
            shared.bodies_bytes += size
            if shared.bodies_bytes > shared.bodies_bytes_max:
                self._body_size = size
                self._refuse(too_many_bytes())
                return
            self._serve(arrived)
            if len(self._slots) >= self._requests_in_flight_max:
                self._hold_back()
            return
        if self._reader.is_empty:
            self._part_since_ms = shared.now_ms
        self._reader.feed(data)
        if not self._held_back:
            self._process()

    def eof_received(self) -> bool:
        self._peer_ended = True
        self._no_more_requests = True
        self._last_ms = self._shared.now_ms
        self._end_waits()
        if self._lingering or not self._slots:
            self._close()
        # The peer may have closed its half only and wait for its answers; or it is gone, which looks the same.
        return not self._closed

    def pause_writing(self) -> None:
        self._outbox.pause()

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._go_to_next()
        if self._held_back:
            self._go_on()

    # From bytes to requests.

    def _process(self) -> None:
        """Serve what has arrived in full."""
        served = 0
        self._processing = True
        try:
            while not self._no_more_requests and not self._held_back:
                arrived = self._next_request()
                if arrived is None:
                    break
                self._serve(arrived)
                served += 1
                if len(self._slots) >= self._requests_in_flight_max or self._outbox.is_paused:
                    self._hold_back()
                elif self._reader.is_empty:
                    break
                elif served >= REQUESTS_A_TURN:
                    self._hold_back()
                    asyncio.get_running_loop().call_soon(self._go_on)
        except RefusedError as error:
            self._refuse(error)
        finally:
            self._processing = False

    def _next_request(self) -> Arrived | None:
        reader, shared = self._reader, self._shared
        had_head = reader.head is not None
        arrived = reader.next()
        held = len(arrived.body) if arrived is not None else reader.body_bytes
        shared.bodies_bytes += held - self._body_size
        self._body_size = held
        if shared.bodies_bytes > shared.bodies_bytes_max:
            raise too_many_bytes()
        if arrived is None:
            if reader.head is not None and not had_head:
                self._part_since_ms = shared.now_ms
                self._asked_for_body = not reader.wants_continue
                self._ask_for_body()
            return None
        self._body_size = 0  # it is the slot's from now on
        self._part_since_ms = self._last_ms = shared.now_ms
        return arrived

    def _ask_for_body(self) -> None:
        """In the order of answers: not before the requests ahead are answered."""
        if not self._asked_for_body and not self._slots and self._reader.head is not None:
            self._asked_for_body = True
            self._part_since_ms = self._shared.now_ms
            if self._reader.wants_continue:
                self._outbox.write(CONTINUE)

    def _stop_reading(self) -> None:
        self._no_more_requests = True
        self._reader.clear()
        self._shared.bodies_bytes -= self._body_size
        self._body_size = 0

    # From requests to answers.

    def _serve(self, arrived: Arrived) -> None:
        ((method, path, query, found, _), fields), body = arrived
        shared = self._shared
        request = Request(
            method, path, query, fields.headers, body, found.values, fields.request_id or shared.next_id()
        )
        route = found.routes[0]
        if route.when is not None:
            route = choose(found, request)
        slot = Slot(self, request, route, shared.now_ms)
        framing = fields.framing
        if not framing.keep_alive:
            slot.is_last = self._no_more_requests = True
        elif framing.is_http_1_0:
            slot.connection = "keep-alive"
        self._slots.append(slot)
        try:
            if framing.is_visit and not route.is_signed and not route.only_looks(method):
                raise visiting()
            outcome = route.handler(request)
        except Exception as error:  # noqa: BLE001 - _failure logs what it does not know
            self._finish(slot, self._failure(slot, error))
            return
        if isinstance(outcome, Later):
            slot.later = outcome
            outcome.promise.then(slot.kept, slot.foreseen)
        elif isinstance(outcome, Sized):
            slot.share = Share(shared.answers)
            slot.share.ask(outcome.size, partial(self._begin, slot, outcome.begin))
            self._go_to_next()
        else:
            self._follow(slot, outcome)

    def _follow(self, slot: Slot, outcome: Outcome) -> None:
        if isinstance(outcome, Later):
            slot.later = outcome
            outcome.promise.then(slot.kept, slot.foreseen)
            if slot.share is not None and outcome.is_idle is not None and outcome.is_idle():
                slot.share.give()
        elif isinstance(outcome, Response):
            self._finish(slot, outcome)
        else:
            slot.task = self._shared.under_way.begin(outcome)
            slot.task.add_done_callback(partial(self._finish_task, slot))

    def _go_to_next(self) -> None:
        """Let the first request that is not answered ask for memory, if it waits for its turn to do so."""
        if self._slots and not self._outbox.is_paused and (share := self._slots[0].share) is not None:
            share.next()

    def _begin(self, slot: Slot, begin: Callable[[], Outcome], granted: bool) -> None:
        """A request has the memory for its answer, or has waited too long for it."""
        slot.since_ms = self._shared.now_ms
        try:
            if not granted:
                raise no_room_for_answer()
            outcome = begin()
        except Exception as error:  # noqa: BLE001 - _failure logs what it does not know
            self._finish(slot, self._failure(slot, error))
            return
        self._follow(slot, outcome)

    def finish_later(self, slot: Slot, promise: Promise[Any]) -> None:
        """The promise that a request waits for is kept or broken."""
        if slot.response is not None or self._closed:
            return
        assert slot.later is not None
        try:
            result = promise.result()
            slot.response = slot.prepared or slot.later.render(result)
        except Exception as error:  # noqa: BLE001 - _failure logs what it does not know
            slot.response = self._failure(slot, error)
        if self._slots[0] is slot:
            self._answer_front()

    def _finish_task(self, slot: Slot, task: "asyncio.Task[Response]") -> None:
        slot.task = None
        if self._closed or slot.response is not None:
            # Nobody waits for it.
            if slot not in self._slots:
                self._shared.bodies_bytes -= len(slot.request.body)
            if not task.cancelled() and (error := task.exception()) is not None:
                _LOGGER.debug("abandoned request failed", exc_info=error, extra={"route": slot.route.path})
            return
        if task.cancelled():
            self._finish(slot, self._failure(slot, ShuttingDownError("the request was cancelled; reconnect and retry")))
            return
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        self._finish(slot, task.result() if error is None else self._failure(slot, error))

    def _failure(self, slot: Slot, error: Exception) -> Response:
        if not isinstance(error, RefusedError | HeadraceError):
            self._shared.counters.handler_failures += 1
            _LOGGER.error(
                "HTTP request failed", exc_info=error, extra={"route": slot.route.path, "request_id": slot.request.id}
            )
        return slot.route.failed(slot.request, error)

    def _refuse(self, error: RefusedError) -> None:
        """Refuse what cannot be understood or taken, in its turn, and read nothing more."""
        request, route = Request("", "", "", {}, b"", (), self._shared.next_id()), NOWHERE
        if (head := self._reader.head) is not None:
            request = Request(head.target.method, head.target.path, head.target.query, head.fields.headers, b"")
            request = msgspec.structs.replace(request, id=head.fields.request_id or self._shared.next_id())
            route = choose(head.target.found, request)
        slot = Slot(self, request, route, self._shared.now_ms)
        slot.is_last = True
        self._stop_reading()
        self._shared.counters.count_closed(error.code)
        self._slots.append(slot)
        self._finish(slot, self._failure(slot, error))

    def _end_waits(self) -> None:
        """Cancel the waits that can be. Each is answered by its own promise, or here."""
        for slot in list(self._slots):
            later = slot.later
            if slot.response is None and later is not None and later.cancel is not None:
                later.cancel()
                if slot.response is None:
                    self._finish(
                        slot, self._failure(slot, ShuttingDownError("the wait was ended; reconnect and retry"))
                    )

    def _finish(self, slot: Slot, response: Response) -> None:
        slot.response = response
        slots = self._slots
        if slots and slots[0] is slot:
            self._answer_front()

    def _answer_front(self) -> None:
        """Send every answer that has nothing unfinished ahead of it."""
        slots, shared = self._slots, self._shared
        counters = shared.counters
        while slots and (response := slots[0].response) is not None and not self._closed:
            slot = slots.popleft()
            request = slot.request
            if slot.task is None:  # else it was given up, and holds its body until it ends
                shared.bodies_bytes -= len(request.body)
            counters.requests[slot.route.path, response.status] += 1
            self._last_ms = shared.now_ms
            if not self._is_proven:
                self._is_proven = True
                shared.prove(self)
            is_end = slot.is_last or (self._no_more_requests and not slots)
            data = shared.encoder.encode(response, request, "close" if is_end else slot.connection)
            if slot.share is None:
                self._outbox.write(data)
            else:
                self._outbox.write_big(data)
                slot.share.give()  # what is not taken is charged by now
            if is_end:
                self._end()
                return
        if slots:
            if slots[0].share is not None:
                self._go_to_next()
        elif self._reader.head is not None:
            self._ask_for_body()
        if self._held_back and not self._processing:
            self._go_on()

    # Holding back.

    def _hold_back(self) -> None:
        if not self._held_back and self._transport is not None:
            self._held_back = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        if self._closed or not self._held_back or self._outbox.is_paused:
            return
        if len(self._slots) >= self._requests_in_flight_max:
            return
        assert self._transport is not None
        self._held_back = False
        self._part_since_ms = self._shared.now_ms
        self._process()
        if not self._held_back and not self._closed:
            self._transport.resume_reading()

    # Deadlines and ends.

    def check_deadlines(self, now_ms: int) -> None:
        limits = self._limits
        if self._transport is None:
            return
        if self._closed:
            # What was written before the close is still on its way, unless nobody takes it.
            if now_ms - self._last_ms >= self._shared.write_deadline_ms(limits.write_deadline_ms):
                self.abort()
            return
        waiting = [len(slot.response.body) for slot in self._slots if slot.response is not None]
        if self._outbox.settle(sum(waiting)) and (
            self._outbox.is_paused or self._lingering or self._shared.answers.is_wanted
        ):
            if self._outbox.is_overdue(now_ms):
                self._shared.counters.count_closed("answers_not_taken")
                self.abort()
                return
            if self._outbox.is_paused or self._lingering:
                return
        if self._lingering or self._peer_ended:
            # A peer that has ended gets what is answered soon. A long poll would only take messages for nobody.
            if now_ms - self._last_ms >= limits.linger_ms:
                self.abort()
            return
        self._check_slots(now_ms)
        if self._held_back or self._no_more_requests:
            return
        elapsed_ms = now_ms - self._part_since_ms
        if self._reader.is_empty:
            if not self._slots and now_ms - self._last_ms >= limits.idle_ms_max:
                self._close()
        elif self._reader.head is None:
            if elapsed_ms >= limits.head_deadline_ms:
                self._refuse(_too_slow("head", limits.head_deadline_ms))
        elif self._asked_for_body and elapsed_ms >= limits.body_deadline_ms:
            self._refuse(_too_slow("body", limits.body_deadline_ms))

    def _check_slots(self, now_ms: int) -> None:
        for slot in list(self._slots):
            if slot.share is not None and slot.share.is_waiting:
                continue  # it has not begun; the budget has a deadline of its own
            if slot.response is not None or now_ms - slot.since_ms < self._limits.answer_deadline_ms:
                continue
            slot.cancel()
            if slot.response is None:
                detail = "the request was not answered in time; it may have been carried out all the same"
                self._finish(slot, self._failure(slot, TimedOutError(detail)))

    def drain(self) -> None:
        """The node stops: no further request is read, those that were read are answered, then it closes at once."""
        self._draining = True
        self._stop_reading()
        for slot in list(self._slots):
            if slot.share is not None and slot.share.is_waiting:
                slot.share.give()
                self._finish(slot, self._failure(slot, ShuttingDownError("the node is stopping; reconnect and retry")))
        self._end_waits()
        if not self._slots and not self._closed:
            self._close()

    def _end(self) -> None:
        """Everything is said. Let the peer take it and close."""
        assert self._transport is not None
        self._stop_reading()
        if self._peer_ended or self._draining or not self._transport.can_write_eof():
            self._close()
            return
        self._lingering = True
        self._last_ms = self._shared.now_ms
        self._outbox.mark()
        self._transport.write_eof()
        if self._held_back:
            self._held_back = False
            self._transport.resume_reading()

    def _close(self) -> None:
        self._closed = True
        self._last_ms = self._shared.now_ms
        if self._transport is not None:
            self._transport.close()

    def displace(self) -> None:
        self._shared.note_displaced(self)
        self._stop_reading()
        if self._is_proven:
            self._close()
        else:
            self.abort()

    def abort(self) -> None:
        self._closed = True
        if self._transport is not None:
            self._transport.abort()


def _too_slow(part: str, deadline_ms: int) -> RefusedError:
    return RefusedError(
        408, "request_timeout", f"the request's {part} did not arrive within {deadline_ms} ms; send it in one go"
    )
