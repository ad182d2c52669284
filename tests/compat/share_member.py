"""A share consumer in a process of its own, to be killed while it holds messages.

    python -m tests.compat.share_member SERVER GROUP TOPIC FILE

Every message is noted in the file (one line: its value) and never acknowledged.
"""

import sys

from confluent_kafka import ShareConsumer

POLL_S = 0.2


def main() -> None:
    server, group, topic, path = sys.argv[1:]
    consumer = ShareConsumer(
        {
            "bootstrap.servers": server,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    with open(path, "w", encoding="utf-8") as file:
        while True:
            messages = consumer.poll(POLL_S)
            file.writelines(message.value().decode() + "\n" for message in messages)
            file.flush()
            if messages:
                sys.stdin.read()  # holds them until it is killed


if __name__ == "__main__":
    main()
