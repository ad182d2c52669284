"""moto's server, which most programs that use SQS are tested with, as a process that says where it listens.

Run as `python -m benchmarks.moto_node`; the first line printed is the address.
"""

import json
import logging
import threading

from moto.server import ThreadedMotoServer


def main() -> None:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request would be measured too
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    print(json.dumps({"http": f"{host}:{port}"}), flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
