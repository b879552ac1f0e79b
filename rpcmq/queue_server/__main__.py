"""``python -m rpcmq.queue_server``: the queue server of a router, which starts it."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

import gevent

from rpcmq.client import Client
from rpcmq.queue_server.server import QueueServer
from rpcmq.server.limits import tune_gc
from rpcmq.server.log import log_event, log_hub_errors, start_logging
from rpcmq.store.contract import StoreError

__all__ = ["main"]

log = logging.getLogger("rpcmq.queue")

#: Exit code of a server whose store or settings cannot be used.
_HOPELESS = 2


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rpcmq.queue_server", description=__doc__)
    parser.add_argument("--router", required=True, help="url of the router")
    parser.add_argument("--owner", required=True, help="name of the router, under which its items are kept")
    parser.add_argument("--store", required=True, help="directory, or postgresql:// url")
    parser.add_argument("--drain-seconds", type=float, default=30.0, help="how long a stop waits for what runs")
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    parser.add_argument("--log-level", default="info")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; return the exit code."""
    arguments = _arguments(given)
    start_logging(arguments.log_format, arguments.log_level)
    log_hub_errors(log)
    client = Client(arguments.router, f"queue-server:{arguments.owner}", shell="gevent")
    try:
        server = QueueServer(client, arguments.owner, arguments.store)
    except StoreError as error:
        log_event(log, logging.ERROR, "queue refused", str(error))
        client.close(0)
        return _HOPELESS
    for number in (signal.SIGTERM, signal.SIGINT):
        gevent.signal_handler(number, lambda: gevent.spawn(server.stop, arguments.drain_seconds))
    log_event(log, logging.INFO, "queue server", f"queues of {arguments.owner} in {arguments.store} are served")
    tune_gc()
    server.run()
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
