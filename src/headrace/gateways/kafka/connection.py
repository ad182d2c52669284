"""One Kafka connection: bytes in, requests out; answers in, bytes out, in the order of the requests.

Theory of operation. A connection is callbacks on the event loop; no task and no queue stands behind it.

Reading. A read lands in the buffer that all connections share and is parsed before the callback returns: every whole
frame in it is copied out and dispatched. A frame that is not whole gets a buffer of its own, and the next reads go
straight into that. The buffer grows with what arrives (`frame_ahead_bytes`, doubling), so a length that lies costs
little. An idle connection holds no buffer.

Answering. A handler's answer goes out in the same callback if nothing is ahead of it. Otherwise the request gets a
slot; slots are answered from the front.

Answers that may be large (`Sized`). Where the node has memory for all that it asks for, such a request begins at once.
Otherwise it begins once it is the first that is not answered and the node has memory for what it will answer
(`gateways.answers`). What the peer leaves untaken is charged until it is taken to its last byte.

Holding back. Reading stops while too many requests or bytes of them are unanswered, while the peer does not take its
answers, or while the node has no memory left for frames. What was read already and not dispatched waits in `_stash`.

Deadlines (frame, idle, unread answers, closing) are looked at by the sweep in `shared`.

Whatever a peer does wrong costs that peer its connection and leaves one line, limited in number, in the log.
"""

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Coroutine
from functools import partial
from typing import Any, cast

from headrace.gateways.answers import SMALL_BYTES, Share, Untaken
from headrace.gateways.connections import counted_address
from headrace.gateways.kafka.answer import Answer, CloseConnectionError, Deferred, Sized, Wait
from headrace.gateways.kafka.outbox import Outbox
from headrace.gateways.kafka.partial_frame import PartialFrame
from headrace.gateways.kafka.shared import Shared

_LOGGER = logging.getLogger(__name__)
_LENGTH = struct.Struct(">i")

# API key, version and correlation id: no request is shorter.
FRAME_BYTES_MIN = 8
# Requests that one connection may have answered in one turn of the loop before the others get theirs.
REQUESTS_A_TURN = 128


class KafkaConnection(asyncio.BufferedProtocol):
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._limits = shared.limits
        # Becomes the smaller limit until authentication, once there is authentication.
        self._frame_bytes_max = shared.limits.frame_bytes_max
        # Both from connection_made on, which comes before anything else.
        self._transport: asyncio.Transport
        self._outbox: Outbox
        self.peer = "?"
        self._host = "?"
        self.address = "?"
        self.completed_ms: int | None = None
        # What is read and not whole: the first bytes of a length, or of a frame.
        self._prefix = b""
        self._frame: PartialFrame | None = None
        self._stash: bytearray | None = None
        # Requests without an answer, in order, and the bytes of their frames.
        self._slots: deque[Deferred] = deque()
        self._in_flight_bytes = 0
        self._waits: set[asyncio.Task[Answer]] = set()
        self._held_back = False
        self._writing_paused = False
        self._untaken = Untaken(shared.answers)
        self._draining = False
        self._closed = False
        self._is_counted = False  # among those that are open
        # Times of the coarse clock.
        self._last_ms = shared.now_ms
        self._frame_since_ms = 0
        self._closing_since_ms: int | None = None
        self._finishing = False

    @property
    def is_busy(self) -> bool:
        return bool(self._slots) or self._outbox.untaken_bytes > 0

    @property
    def in_flight_count(self) -> int:
        """Requests that are not answered yet."""
        return len(self._slots)

    # The transport's callbacks.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        self._outbox = Outbox(transport, self._shared.counters, pause_bytes=self._limits.write_pause_bytes)
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else str(peer)
        self._host = peer[0] if isinstance(peer, tuple) else self.peer
        self.address = counted_address(peer)
        counters = self._shared.counters
        if not self._shared.admit(self):
            counters.connections_refused += 1
            self._closed = True
            self._shared.warnings.warn(
                "too many connections", self.peer, {"connections_max": self._limits.connections_max}
            )
            transport.abort()
            return
        self._is_counted = True
        counters.connections_total += 1
        counters.connections_open += 1
        self._last_ms = self._shared.now_ms

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        if self._is_counted:
            self._shared.counters.connections_open -= 1
        self._shared.budget.leave(self._go_on)
        self._drop_partial_frame()
        self._release_finished_slots()
        # Long polls end here. Changes go on: what was accepted is carried out whether or not anybody hears of it.
        for task in list(self._waits):
            task.cancel()
        self._untaken.resume()
        self._shared.remove(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is not None:
            return self._frame.rest()
        prefix = self._prefix
        if not prefix:
            return self._shared.receive_view
        # The read continues where the first bytes of its length stand, so that parsing begins at 0.
        self._shared.receive_view[: len(prefix)] = prefix
        return self._shared.receive_view[len(prefix) :]

    def buffer_updated(self, size: int) -> None:
        shared = self._shared
        shared.counters.bytes_in += size
        self._last_ms = shared.now_ms
        if self._closed or self._draining:
            return
        frame = self._frame
        if frame is None:
            end = size + len(self._prefix)
            self._prefix = b""
            self._parse(shared.receive_buffer, end)
        else:
            frame.have += size
            if frame.have == frame.size:
                self._frame = None
                self._dispatch(frame.buffer)
                # Given back only now, so that nobody takes this memory before the dispatched frame is charged.
                frame.release()
            elif frame.is_full and not frame.grow():
                self._hold_back()
        self._flush()
        if not self._held_back and self._must_hold_back():
            self._hold_back()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._outbox.mark(self._shared.now_ms)
        self._untaken.pause(max(self._outbox.untaken_bytes, self._outbox.big_bytes))

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._untaken.resume()
        self._outbox.set_limits()
        self._go_to_next()
        self._go_on()

    # Reading.

    def _parse(self, data: bytearray, end: int) -> None:
        """Dispatch every whole frame in data[:end] and keep what is left, without keeping the buffer itself."""
        position = 0
        count = 0
        while end - position >= 4:
            if count and (count >= REQUESTS_A_TURN or self._outbox.size >= self._limits.write_pause_bytes):
                self._flush()
                self._stash = data[position:end]
                self._hold_back()
                asyncio.get_running_loop().call_soon(self._go_on)
                return
            if self._must_hold_back():
                self._stash = data[position:end]
                self._hold_back()
                return
            (size,) = _LENGTH.unpack_from(data, position)
            if not FRAME_BYTES_MIN <= size <= self._frame_bytes_max:
                self._flush()
                self.close_for("frame length out of bounds", length=size, length_max=self._frame_bytes_max)
                return
            position += 4
            if end - position < size:
                self._frame = PartialFrame(
                    size,
                    memoryview(data)[position:end],
                    ahead_bytes=self._limits.frame_ahead_bytes,
                    budget=self._shared.budget,
                    wake=self._go_on,
                )
                self._frame_since_ms = self._shared.now_ms
                return
            self._dispatch(data[position : position + size])
            position += size
            count += 1
            if self._closed:
                return
        if position < end:
            self._prefix = bytes(data[position:end])
            self._frame_since_ms = self._shared.now_ms

    def _drop_partial_frame(self) -> None:
        if self._frame is not None:
            frame, self._frame = self._frame, None
            frame.release()

    def _must_hold_back(self) -> bool:
        limits = self._limits
        return (
            self._writing_paused
            or len(self._slots) >= limits.requests_in_flight_max
            or self._in_flight_bytes >= limits.requests_in_flight_bytes_max
            or (self._shared.budget.exhausted and self._lacks_memory())
        )

    def _lacks_memory(self) -> bool:
        # A frame that has begun reads on; what it waits for is room to grow.
        return self._frame is None and self._shared.budget.exhausted

    def _hold_back(self) -> None:
        if self._closed:
            return
        if self._lacks_memory():
            self._shared.budget.wait(self._go_on)
        if not self._held_back:
            self._held_back = True
            self._transport.pause_reading()

    def _go_on(self) -> None:
        """Read again, if what held the connection back is over; first comes what was read already."""
        if not self._held_back or self._closed or self._draining:
            return
        if self._must_hold_back():
            if self._lacks_memory():
                self._shared.budget.wait(self._go_on)
            return
        if self._frame is not None and self._frame.is_full and not self._frame.grow():
            return
        # The peer was not read, so its frame's time begins anew.
        self._last_ms = self._frame_since_ms = self._shared.now_ms
        self._held_back = False
        if self._stash:
            stash, self._stash = self._stash, None
            # Reading is still paused: what holds the rest of the stash back must not pause it twice.
            self._held_back = True
            self._parse_stash(stash)
            if self._held_back or self._closed:
                return
        self._transport.resume_reading()

    def _parse_stash(self, stash: bytearray) -> None:
        self._parse(stash, len(stash))
        self._flush()
        self._held_back = bool(self._stash) or self._must_hold_back()

    # Answering.

    def _dispatch(self, frame: bytearray) -> None:
        try:
            reply = self._shared.serve(frame, self._host)
        except CloseConnectionError as error:
            self._close_behind(error, len(frame))
            return
        except Exception as error:  # noqa: BLE001 - logged; without an answer the connection cannot go on
            self._close_behind(self._failed(error), len(frame))
            return
        if isinstance(reply, Deferred):
            self._await_answer(reply, len(frame))
            reply.then(self._finish)
        elif isinstance(reply, list) or reply is None:
            if self._slots:
                self._await_answer(Deferred(), len(frame)).finish(reply)
            else:
                self._outbox.put(reply or [])
                self._note_completed()
        elif isinstance(reply, Sized):
            self._take_in(reply, len(frame))
        elif isinstance(reply, Wait):
            self._waits.add(self._begin(reply.work, len(frame)))
        else:
            self._begin(reply, len(frame))

    def _take_in(self, sized: Sized, size: int) -> None:
        """Begin a request whose answer may be large, at once if nothing is in its way."""
        answers = self._shared.answers
        share = Share(answers)
        if not self._slots and answers.has_room(sized.bytes_max):
            reply = sized.begin(sized.bytes_max, share)
            if isinstance(reply, Wait):
                share.next()
                task = self._begin(reply.work, size)
                self._waits.add(task)
                self._slots[0].share = share
            else:
                self._outbox.put(reply or [])
                self._note_completed()
            return
        slot = self._await_answer(Deferred(), size)
        slot.then(self._finish)
        slot.share = share
        expected = sized.expected()
        if expected <= SMALL_BYTES:
            self._begin_sized(slot, sized, SMALL_BYTES, granted=True)
        else:
            share.ask(expected, lambda granted: self._begin_sized(slot, sized, expected, granted=granted))
        self._go_to_next()

    def _begin_sized(self, slot: Deferred, sized: Sized, size: int, *, granted: bool) -> None:
        assert slot.share is not None
        reply = sized.begin(size, slot.share) if granted else sized.refuse()
        if isinstance(reply, Wait):
            task = self._shared.under_way.begin(reply.work)
            task.add_done_callback(partial(self._finish_task, slot))
            self._waits.add(task)
        else:
            slot.finish(reply)

    def _go_to_next(self) -> None:
        """Let the first request that is not answered ask for memory, if it waits for its turn to do so."""
        if self._slots and not self._writing_paused and (share := self._slots[0].share) is not None:
            share.next()

    def _begin(self, work: Coroutine[Any, Any, Answer], size: int) -> "asyncio.Task[Answer]":
        slot = self._await_answer(Deferred(), size)
        slot.then(self._finish)
        task = self._shared.under_way.begin(work)
        task.add_done_callback(partial(self._finish_task, slot))
        return task

    def _await_answer(self, slot: Deferred, size: int) -> Deferred:
        slot.size = size
        self._slots.append(slot)
        self._in_flight_bytes += size
        self._shared.budget.take(size)
        return slot

    def _close_behind(self, refusal: CloseConnectionError, size: int) -> None:
        """Close once every earlier request is answered."""
        self._await_answer(Deferred(), size).finish(refusal)
        self._answer_front()

    def _failed(self, error: BaseException) -> CloseConnectionError:
        self._shared.warnings.fail("Kafka request failed outside its handler", error, peer=self.peer)
        return CloseConnectionError("internal error")

    def _finish_task(self, slot: Deferred, task: "asyncio.Task[Answer]") -> None:
        self._waits.discard(task)
        if task.cancelled():
            slot.finish(CloseConnectionError("request cancelled"))
            return
        error = task.exception()
        if error is None:
            slot.finish(task.result())
        elif isinstance(error, CloseConnectionError):
            slot.finish(error)
        else:
            slot.finish(self._failed(error))

    def _finish(self, slot: Deferred) -> None:
        if self._closed:
            # Nobody to answer; the frame's memory is free all the same. Slots behind give theirs when they finish.
            self._let_go(slot)
        elif not self._finishing and self._slots[0] is slot:
            # One sync finishes many requests in one turn of the loop: their answers leave with one write.
            self._finishing = True
            asyncio.get_running_loop().call_soon(self._answer_finished)

    def _answer_finished(self) -> None:
        self._finishing = False
        if self._closed:
            return
        self._answer_front()
        self._flush()
        if self._held_back:
            self._go_on()

    def _answer_front(self) -> None:
        """Put every answer that has nothing unfinished ahead of it."""
        slots, outbox = self._slots, self._outbox
        done_bytes = 0
        refusal: CloseConnectionError | None = None
        while slots and slots[0].done and refusal is None:
            slot = slots.popleft()
            done_bytes += slot.size
            outcome = slot.outcome
            if isinstance(outcome, CloseConnectionError):
                refusal = outcome
            elif outcome:
                outbox.put(outcome)
            if slot.share is not None:
                self._flush()  # the share is given back once what is not taken is charged
                slot.share.give()
                if self._closed:
                    break
        self._in_flight_bytes -= done_bytes
        self._shared.budget.give(done_bytes)
        if refusal is not None:
            self._flush()
            self.close_for(refusal.reason, **refusal.fields)
            return
        self._last_ms = self._shared.now_ms
        self._note_completed()
        if self._draining and not slots:
            self._flush()
            self._close_transport()
        elif slots and slots[0].share is not None:
            self._go_to_next()

    def _note_completed(self) -> None:
        if self.completed_ms is None:
            self._shared.prove(self)
        self.completed_ms = self._shared.now_ms

    def _flush(self) -> None:
        if self._closed:
            return
        if self._writing_paused:
            self._untaken.add(self._outbox.size)
        self._outbox.flush()
        if self._writing_paused and self._outbox.untaken_bytes > self._limits.write_buffer_bytes_max:
            self.close_for("answers not taken", buffered_bytes=self._outbox.untaken_bytes)

    # Deadlines and ends.

    def check_deadlines(self, now_ms: int) -> None:
        limits = self._limits
        if self._closing_since_ms is not None:
            if now_ms - self._closing_since_ms >= self._shared.write_deadline_ms(limits.write_deadline_ms):
                self.abort()
            return
        if self._closed or self._draining:
            return
        self._settle(now_ms)
        # While we do not read, the frame's time stands still. Waiting for memory is the exception: a frame that is
        # not whole holds some, and must not do so for ever.
        reading = not self._held_back or (self._frame is not None and not self._slots and not self._writing_paused)
        if (self._frame is not None or self._prefix) and reading:
            if now_ms - self._frame_since_ms >= limits.frame_deadline_ms:
                have, size = (0, 0) if self._frame is None else (self._frame.have, self._frame.size)
                self.close_for("frame not complete in time", have_bytes=have, frame_bytes=size)
        elif self._outbox.untaken_bytes and (self._writing_paused or self._shared.answers.is_wanted):
            if self._outbox.since_mark_ms(now_ms) >= self._shared.write_deadline_ms(limits.write_deadline_ms):
                taken = self._outbox.taken_bytes
                if taken < self._untaken.progress_bytes_min(limits.write_progress_bytes_min):
                    self.close_for("answers not taken", taken_bytes=taken, deadline_ms=limits.write_deadline_ms)
                else:
                    self._outbox.mark(now_ms)
        elif not self._slots and now_ms - self._last_ms >= limits.connection_idle_ms_max:
            _LOGGER.debug("idle Kafka connection closed", extra={"peer": self.peer})
            self._close_transport()

    def _settle(self, now_ms: int) -> None:
        """Charge what is in memory: what the peer has not taken, and answers that wait for those ahead of them."""
        untaken_bytes = self._outbox.untaken_bytes
        if not untaken_bytes:
            self._outbox.mark(now_ms)
        waiting = [slot.outcome for slot in self._slots if slot.share is None and isinstance(slot.outcome, list)]
        self._untaken.settle(untaken_bytes, sum(len(buffer) for answer in waiting for buffer in answer))

    def drain(self) -> None:
        """The node stops: no further request is read, those that are dispatched are answered, then it closes."""
        if self._closed or self._draining:
            return
        self._draining = True
        self._stash = None
        self._drop_partial_frame()
        if not self._held_back:
            self._held_back = True
            self._transport.pause_reading()
        for slot in list(self._slots):
            if slot.share is not None:
                slot.share.refuse()
        if not self._slots:
            self._close_transport()

    def close_for(self, reason: str, **fields: Any) -> None:
        """Close because of what the peer did, and say so. Answers already handed to the transport still leave."""
        if self._closed:
            return
        self._shared.counters.count_closed(reason)
        self._shared.warnings.warn(reason, self.peer, fields)
        unread = self._writing_paused
        self._close_transport()
        if unread:
            self.abort()

    def _close_transport(self) -> None:
        self._closed = True
        self._closing_since_ms = self._shared.now_ms
        self._release_finished_slots()
        self._drop_partial_frame()
        self._stash = None
        self._transport.close()

    def _release_finished_slots(self) -> None:
        """Memory of requests that are finished and now will not be answered; the unfinished give theirs in _finish."""
        for slot in self._slots:
            if slot.done:
                self._let_go(slot)
            elif slot.share is not None:
                slot.share.refuse()  # what has not begun ends here
                slot.share.give()
        self._slots.clear()

    def _let_go(self, slot: Deferred) -> None:
        """Give back the memory of a request that will not be answered."""
        self._shared.budget.give(slot.size)
        slot.size = 0
        if slot.share is not None:
            slot.share.give()

    def displace(self) -> None:
        self.close_for("displaced by a new connection", idle_since_ms=self.completed_ms)

    def abort(self) -> None:
        self._closed = True
        self._release_finished_slots()
        self._transport.abort()
