"""A transactional producer that keeps sending while its partition joins, as Java 4 and franz-go do from Produce 12."""

import time
from uuid import UUID

import pytest
from tests.support.node import NodeProcess
from tests.support.wire import Wire

from headrace.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headrace.wire.kafka.messages.end_txn import EndTxnRequest
from headrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.kafka.records import Record, encode_batch

_CREATE_TOPICS, _CREATE_TOPICS_VERSION = 19, 7
_PRODUCE, _PRODUCE_VERSION = 0, 12
_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION = 22, 4
_END_TXN, _END_TXN_VERSION = 26, 5
TRANSACTIONS = 15
BATCHES = 8


def _produce(topic: str, producer_id: int, epoch: int, sequence: int) -> ProduceRequest:
    records = encode_batch(
        [Record(1_700_000_000_000, None, b"%d" % sequence)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    data = (TopicProduceData(topic, UUID(int=0), (PartitionProduceData(0, bytes(records)),)),)
    return ProduceRequest(topic, -1, 10_000, data)


@pytest.mark.parametrize("gap_ms", range(6))
def test_batches_that_follow_the_first_of_a_transaction_stay_in_order(
    node: NodeProcess, topic: str, gap_ms: int
) -> None:
    with Wire(node.server) as wire:
        wire.ask(_CREATE_TOPICS, _CREATE_TOPICS_VERSION, CreateTopicsRequest((CreatableTopic(topic, 1, 1),)))
        begun = wire.ask(_INIT_PRODUCER_ID, _INIT_PRODUCER_ID_VERSION, InitProducerIdRequest(topic, 60_000))
        producer = begun.producer_id, begun.producer_epoch
        for _ in range(TRANSACTIONS):
            sent = []
            for sequence in range(BATCHES):
                sent.append(wire.send(_PRODUCE, _PRODUCE_VERSION, _produce(topic, *producer, sequence)))
                time.sleep(gap_ms / 1000)  # what is tested, and nothing waits for it
            answers = [wire.receive(_PRODUCE, _PRODUCE_VERSION, one) for one in sent]
            parts = [answer.responses[0].partition_responses[0] for answer in answers]
            assert [part.error_code for part in parts] == [0] * BATCHES
            first = parts[0].base_offset
            assert [part.base_offset - first for part in parts] == list(range(BATCHES))
            ended = wire.ask(_END_TXN, _END_TXN_VERSION, EndTxnRequest(topic, *producer, committed=True))
            assert ended.error_code == 0
            producer = ended.producer_id, ended.producer_epoch
