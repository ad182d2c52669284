"""The Kafka gateway, put together: a broker in, a listener out.

One frame's way: `connection` cuts it out of the stream and keeps the order of answers, `dispatch` finds its API, a file
in `apis` makes one call of the broker, `errors` has the code for whatever goes wrong. Nothing here outlives a restart.
"""

from headrace.broker.group.port import GroupPort
from headrace.broker.group.share_port import SharePort
from headrace.gateways.answers import AnswerBudget
from headrace.gateways.kafka.apis import (
    add_offsets_to_txn_25,
    add_partitions_to_txn_24,
    alter_configs_33,
    alter_share_group_offsets_91,
    api_versions_18,
    consumer_group_describe_69,
    consumer_group_heartbeat_68,
    create_partitions_37,
    create_topics_19,
    delete_groups_42,
    delete_records_21,
    delete_share_group_offsets_92,
    delete_topics_20,
    describe_client_quotas_48,
    describe_cluster_60,
    describe_configs_32,
    describe_groups_15,
    describe_log_dirs_35,
    describe_producers_61,
    describe_quorum_55,
    describe_share_group_offsets_90,
    describe_topic_partitions_75,
    describe_transactions_65,
    end_txn_26,
    fetch_1,
    find_coordinator_10,
    heartbeat_12,
    incremental_alter_configs_44,
    init_producer_id_22,
    join_group_11,
    leave_group_13,
    list_config_resources_74,
    list_groups_16,
    list_offsets_2,
    list_transactions_66,
    metadata_3,
    offset_commit_8,
    offset_delete_47,
    offset_fetch_9,
    offset_for_leader_epoch_23,
    produce_0,
    share_acknowledge_79,
    share_fetch_78,
    share_group_describe_77,
    share_group_heartbeat_76,
    sync_group_14,
    txn_offset_commit_28,
)
from headrace.gateways.kafka.context import AnyApi, Context
from headrace.gateways.kafka.counters import KafkaCounters
from headrace.gateways.kafka.dispatch import Dispatcher
from headrace.gateways.kafka.limits import KafkaLimits
from headrace.gateways.kafka.listener import KafkaListener, listen
from headrace.gateways.kafka.port import BrokerPort, TransactionPort
from headrace.host.clock import Clock
from headrace.host.transport import Transport

SERVED: tuple[AnyApi, ...] = (
    produce_0.API,
    fetch_1.API,
    list_offsets_2.API,
    metadata_3.API,
    find_coordinator_10.API,
    api_versions_18.API,
    create_topics_19.API,
    delete_topics_20.API,
    delete_records_21.API,
    init_producer_id_22.API,
    offset_for_leader_epoch_23.API,
    describe_configs_32.API,
    alter_configs_33.API,
    describe_log_dirs_35.API,
    create_partitions_37.API,
    incremental_alter_configs_44.API,
    describe_client_quotas_48.API,
    describe_quorum_55.API,
    describe_cluster_60.API,
    list_config_resources_74.API,
    describe_topic_partitions_75.API,
)

# Served where the node has groups.
GROUPS_SERVED: tuple[AnyApi, ...] = (
    offset_commit_8.API,
    offset_fetch_9.API,
    join_group_11.API,
    heartbeat_12.API,
    leave_group_13.API,
    sync_group_14.API,
    describe_groups_15.API,
    list_groups_16.API,
    delete_groups_42.API,
    offset_delete_47.API,
    consumer_group_heartbeat_68.API,
    consumer_group_describe_69.API,
)


# Clients raise a producer's epoch with every transaction where the cluster says that it can (KIP-890).
_TRANSACTION_VERSION = 2

# Served where the node has transactions.
TRANSACTIONS_SERVED: tuple[AnyApi, ...] = (
    add_partitions_to_txn_24.API,
    add_offsets_to_txn_25.API,
    end_txn_26.API,
    txn_offset_commit_28.API,
    describe_producers_61.API,
    describe_transactions_65.API,
    list_transactions_66.API,
)

# Served where the node has groups and queues.
SHARES_SERVED: tuple[AnyApi, ...] = (
    share_group_heartbeat_76.API,
    share_group_describe_77.API,
    share_fetch_78.API,
    share_acknowledge_79.API,
    describe_share_group_offsets_90.API,
    alter_share_group_offsets_91.API,
    delete_share_group_offsets_92.API,
)


async def start_kafka(
    broker: BrokerPort,
    *,
    groups: GroupPort | None = None,
    transactions: TransactionPort | None = None,
    shares: SharePort | None = None,
    transport: Transport,
    clock: Clock,
    host: str,
    port: int,
    limits: KafkaLimits | None = None,
    answers: AnswerBudget | None = None,
) -> KafkaListener:
    """Serve Kafka clients on an address until the listener is stopped."""
    limits = limits or KafkaLimits()
    answers = answers or AnswerBudget()
    counters = KafkaCounters()
    context = Context(
        broker,
        groups=groups,
        transactions=transactions,
        shares=shares,
        limits=limits,
        clock=clock,
        counters=counters,
        answers=answers,
    )
    served = SERVED if groups is None else SERVED + GROUPS_SERVED
    features: dict[str, int] = {}
    if transactions is not None:
        served += TRANSACTIONS_SERVED
        features["transaction.version"] = _TRANSACTION_VERSION
    if shares is not None:
        served += SHARES_SERVED
    dispatcher = Dispatcher(context, served, features)
    return await listen(
        transport,
        host,
        port,
        serve=dispatcher.serve,
        limits=limits,
        clock=clock,
        counters=counters,
        answers=answers,
    )
