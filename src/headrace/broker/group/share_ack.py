"""What share consumers say of messages that they hold: accepted, released, rejected, or to be held longer.

What a request says of one partition is done as a whole or not at all, as Kafka has it: one offset that the consumer
does not hold any more, and none of them is touched.
"""

from collections.abc import Callable, Mapping, Sequence

from headrace.broker.group.share_port import AckBatch, AckType, Holder
from headrace.broker.group.share_queues import SharedQueues
from headrace.broker.ledger import Told
from headrace.broker.promise import Promise
from headrace.broker.queue.live_queue import LiveQueue
from headrace.broker.queue.partition_queue import PartitionQueue
from headrace.model.errors import HeadraceError, InvalidRequestError, StaleReceiptError
from headrace.model.group_setting import GroupConfig
from headrace.model.ids import PartitionId
from headrace.model.queue import Guarantee

_REJECTED = "rejected by a share consumer"
_DONE = (AckType.GAP, AckType.ACCEPT)

_ByType = dict[AckType, list[int]]


class ShareAcks:
    def __init__(self, queues: SharedQueues, config_of: Callable[[str], GroupConfig]) -> None:
        self._queues = queues
        self._config_of = config_of

    def acknowledge(self, holder: Holder, place: PartitionId, batches: Sequence[AckBatch]) -> Promise[None]:
        promise: Promise[None] = Promise()
        try:
            _check_form(batches)
            live, partition = self._queues.held(place)
            if live.queue.config.guarantee is Guarantee.AT_MOST_ONCE:
                _check_final(batches)
                promise.keep(None)
                return promise
            held = holder.held.get(place, {})
            chosen = _choose(held, partition, batches)
            _carry_out(live, partition, chosen, self._config_of(holder.group_id), promise)
        except HeadraceError as error:
            promise.fail(error)
            return promise
        for type_, offsets in chosen.items():
            if type_ is not AckType.RENEW:
                for offset in offsets:
                    del held[offset]
        return promise

    def let_go(self, holder: Holder) -> None:
        """Release whatever a consumer holds that is gone. Where the queue is gone too, there is nothing to release."""
        everything, holder.held = holder.held, {}
        for place, held in everything.items():
            try:
                _, partition = self._queues.held(place)
            except HeadraceError:
                continue
            if offsets := [offset for offset, attempt in held.items() if partition.holds(offset, attempt)]:
                partition.release_all(offsets, None)


def _check_form(batches: Sequence[AckBatch]) -> None:
    end = -1
    for first, last, types in batches:
        if not end < first <= last:
            raise InvalidRequestError(
                f"offsets {first} to {last} are acknowledged after {end}; name each of them once, in order"
            )
        if len(types) not in (1, last - first + 1):
            raise InvalidRequestError(f"{len(types)} types are given for the offsets {first} to {last}")
        if not all(AckType.GAP <= one <= AckType.RENEW for one in types):
            raise InvalidRequestError(f"no acknowledgement has the type {max(types)}; use 0 to 4")
        end = last


def _check_final(batches: Sequence[AckBatch]) -> None:
    """Where messages are acknowledged before they are handed out, only what agrees with that can be said."""
    if any(one not in _DONE for _, _, types in batches for one in types):
        raise StaleReceiptError("this queue hands out at most once: what was handed out cannot be given back")


def _choose(held: Mapping[int, int], partition: PartitionQueue, batches: Sequence[AckBatch]) -> _ByType:
    """The offsets of each type. StaleReceiptError where one of them is not held any more."""
    if sum(last - first + 1 for first, last, _ in batches) > len(held):
        raise StaleReceiptError(f"only {len(held)} messages of partition {partition.index} are held")
    chosen: _ByType = {}
    for first, last, types in batches:
        for offset in range(first, last + 1):
            attempt = held.get(offset)
            if attempt is None or not partition.holds(offset, attempt):
                raise StaleReceiptError(
                    f"the message at offset {offset} of partition {partition.index} is not held any more: its time is "
                    "over, or it was acknowledged before"
                )
            type_ = AckType(types[0] if len(types) == 1 else types[offset - first])
            chosen.setdefault(type_, []).append(offset)
    return chosen


def _carry_out(
    live: LiveQueue, partition: PartitionQueue, chosen: _ByType, config: GroupConfig, promise: Promise[None]
) -> None:
    if renewed := chosen.get(AckType.RENEW):
        # First, because only this may yet be refused.
        if not config.share_renews:
            raise InvalidRequestError("renewals are switched off by the group's share.renew.acknowledge.enable")
        lease_ms = live.queue.config.lease_ms if config.share_lock_ms is None else config.share_lock_ms
        partition.extend_all(renewed, lease_ms)
    if done := [offset for type_ in _DONE for offset in chosen.get(type_, ())]:
        partition.acknowledge(done, _nobody)
    if released := chosen.get(AckType.RELEASE):
        partition.release_all(released, None)
    if rejected := chosen.get(AckType.REJECT):
        reject(live, partition, rejected, _REJECTED)
    partition.tell_written(keeping(promise))


def reject(live: LiveQueue, partition: PartitionQueue, offsets: Sequence[int], reason: str) -> None:
    """Make dead letters of leased messages, or drop and count them where the queue has no dead-letter queue."""
    if live.queue.dead_letter_name is None:
        partition.drop(offsets)
        return
    for offset in offsets:
        partition.reject(offset, reason, _nobody)


def _nobody(_: HeadraceError | None) -> None:
    """Whoever asked is told when everything is written."""


def keeping(promise: Promise[None]) -> Told:
    def told(error: HeadraceError | None) -> None:
        if error is None:
            promise.keep(None)
        else:
            promise.fail(error)

    return told
