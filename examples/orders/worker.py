"""Whoever ships: a headrace worker on the queue that the pipeline fills.

headrace worker worker:ship
"""

import os
from pathlib import Path

import headrace

SHIPPED = Path(os.environ.get("SHIPPED", "shipped.txt"))


@headrace.worker("shipments", concurrency=4)
def ship(message: headrace.Message) -> None:
    """A message that this function returns from is done; one that it raises for comes again."""
    order = message.json()
    with SHIPPED.open("a", encoding="utf-8") as file:
        file.write(f"{order['order']} {order['count']} {order['product']} to {order['customer']}\n")
