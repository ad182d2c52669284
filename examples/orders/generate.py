"""Half an hour in a teashop, as two topics: orders, and the payments for most of them.

    python generate.py --orders 500

Event times lie in the messages, one order every few seconds, ending now. Most orders are paid within minutes; payments
arrive in another order than the orders did; one order in ten is never paid. The same seed makes the same half hour.
"""

import argparse
import asyncio
import json
import random
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.client.stream import StreamClient
from headrace.client.values import Outgoing
from headrace.model.errors import TopicExistsError

SPAN = timedelta(minutes=30)
PRICES_CENTS = {"green tea": 250, "black tea": 220, "rare tea": 900, "cake": 380}


def make(count: int, seed: int, end: datetime) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Orders by time, and payments as they arrive."""
    chance = random.Random(seed)
    orders: list[dict[str, Any]] = []
    payments: list[dict[str, Any]] = []
    for number in range(count):
        at = end - SPAN + SPAN * number / count
        order: dict[str, Any] = {
            "order": f"o-{seed}-{number:05}",
            "customer": chance.choice(["alice", "bob", "carol", "dave"]),
            "product": chance.choice(list(PRICES_CENTS)),
            "count": chance.randint(1, 4),
            "at": at.isoformat(),
        }
        orders.append(order)
        if chance.random() < 0.9:
            paid_at = min(end, at + timedelta(seconds=chance.uniform(5, 240)))
            cents = PRICES_CENTS[order["product"]] * order["count"]
            payments.append({"order": order["order"], "cents": cents, "at": paid_at.isoformat()})
    payments.sort(key=lambda payment: payment["at"])
    return orders, payments


async def send(server: str, count: int, seed: int) -> tuple[int, int]:
    orders, payments = make(count, seed, datetime.now(UTC))
    async with StreamClient(server) as client:
        for topic, messages in (("orders", orders), ("payments", payments)):
            try:
                await client.admin.create_topic(topic, partition_count=2)
            except TopicExistsError:
                pass
            # The key is the order's id, so that all of one order is in one partition.
            await client.produce(
                topic, [Outgoing(json.dumps(message).encode(), key=message["order"].encode()) for message in messages]
            )
    return len(orders), len(payments)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Send half an hour of orders and payments.")
    parser.add_argument("--server", default="127.0.0.1:9092", help="where the node listens for Kafka clients")
    parser.add_argument("--orders", type=int, default=500, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="another one makes other orders")
    given = parser.parse_args()
    sent = asyncio.run(send(given.server, given.orders, given.seed))
    print(f"{sent[0]} orders and {sent[1]} payments sent")
