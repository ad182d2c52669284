"""A program that moves messages from one queue to another, each in a transaction, until it is killed.

Run as `python -m tests.cluster.moving_worker ADDRESS SOURCE TARGET SEED`. It does what a careful user's would, and no
more: whatever fails is left to be received again.
"""

import random
import sys

from headrace import Client, HeadraceError
from headrace.client.settings import QueueClientConfig

LEASE_S = 3.0
TIMEOUT_S = 4.0
PATIENT = QueueClientConfig(deadline_ms=60_000)


def move(client: Client, source: str, target: str, chance: random.Random) -> None:
    """Some messages at a time, with one transaction for all of them or for each."""
    messages = client.queue(source).receive(max=chance.randint(1, 8), wait=1, lease=LEASE_S)
    steps = [messages] if messages and chance.random() < 0.5 else [[message] for message in messages]
    for step in steps:
        with client.transaction(timeout=TIMEOUT_S) as tx:
            tx.queue(target).send_many([message.body for message in step])
            if len(step) == 1:
                step[0].ack(tx)
            else:
                tx.ack_all(step)
            if chance.random() < 0.05:
                raise RuntimeError("a worker that fails after it has done everything")


def main() -> None:
    address, source, target, seed = sys.argv[1:]
    chance = random.Random(int(seed))
    with Client(address, config=PATIENT) as client:
        while True:
            try:
                move(client, source, target, chance)
            except (HeadraceError, RuntimeError) as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
