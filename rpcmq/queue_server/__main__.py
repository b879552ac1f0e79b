"""``python -m rpcmq.queue_server``: the queue server of a router, which starts it.

SIGTERM   take nothing more, wait for what workers run, end in order
SIGINT    the same, without waiting
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import gevent

from rpcmq.client import Client
from rpcmq.errors import RpcError
from rpcmq.queue_server.claim import Claimed
from rpcmq.queue_server.router_watch import watch_router
from rpcmq.queue_server.server import QueueServer
from rpcmq.queue_server.status_report import StatusReport
from rpcmq.queue_server.store_process import StoreProcess
from rpcmq.queue_server.takeover import Heirs, heir_command, until_over
from rpcmq.server.limits import tune_gc
from rpcmq.server.log import log_event, log_hub_errors, start_logging
from rpcmq.store.contract import StoreError
from rpcmq.store.location import STORE_VARIABLE, is_database, shown

__all__ = ["main"]

log = logging.getLogger("rpcmq.queue")

#: Exit code of a server whose store or settings cannot be used.
_HOPELESS = 2
_FAILED = 1
#: Seconds for which the heir of an owner that is back waits for what runs. The owner waits as long.
_GIVING_BACK = 5.0


def _arguments(given: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m rpcmq.queue_server", description=__doc__)
    parser.add_argument("--router", required=True, help="url of the router")
    parser.add_argument("--owner", required=True, help="name of the router, under which its items are kept")
    where = os.environ.get(STORE_VARIABLE)
    text = f"directory; a postgresql:// url, which may have a password, is better in ${STORE_VARIABLE}"
    parser.add_argument("--store", default=where, required=where is None, help=text)
    parser.add_argument("--status-fd", type=int, help="pipe to write the state to")
    parser.add_argument("--key-fd", type=int, help="file with the key")
    parser.add_argument("--parent", type=int, help="pid of the router: without it this process ends")
    parser.add_argument("--orphan-seconds", type=float, default=0.0, help="how long it waits for its next life")
    parser.add_argument(
        "--takeover-seconds", type=float, default=10.0, help="take over owners that are gone for so long"
    )
    parser.add_argument("--heir", default="", help="name of the router that has taken over the items of the owner")
    parser.add_argument("--tell-deaths", action="store_true", help="of items, to the router, which has a dispatch log")
    parser.add_argument("--log-format", default="text", choices=("text", "json"))
    parser.add_argument("--log-level", default="info")
    return parser.parse_args(given)


class _Program:
    """The process: one store, one client, and the server between them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._url, self._owner = arguments.router, arguments.owner
        key = "" if arguments.key_fd is None else f"/proc/self/fd/{arguments.key_fd}"
        name = f"{self._owner}@{arguments.heir}" if arguments.heir else self._owner
        self._client = Client(self._url, f"rpcmq.queue:{name}", shell="gevent", key_file=key)
        self._store = StoreProcess(arguments.store, self._owner, is_heir=bool(arguments.heir))
        self._heirs: Heirs | None = None
        self._server: QueueServer | None = None
        self._stopping: gevent.Greenlet[..., None] | None = None
        self._report: StatusReport | None = None
        #: The reason for which another one serves instead.
        self._refusal = ""
        self._main = gevent.getcurrent()

    def run(self) -> int:
        """Serve until a signal, or the end of the router; return the exit code."""
        arguments = self._arguments
        for number, waits in ((signal.SIGTERM, True), (signal.SIGINT, False)):
            gevent.signal_handler(number, self._stop, waits)
        if arguments.status_fd is not None:
            self._report = StatusReport(arguments.status_fd, self._about, self._figures)
        if arguments.parent is not None:
            gevent.spawn(self._watch_router)
        code = 0
        try:
            self._serve()
        except StoreError as error:
            log_event(log, logging.ERROR, "queue refused", str(error))
            # The next life reads anew what is there.
            code = _FAILED if self._store.was_taken else _HOPELESS
        except Claimed as error:
            self._refusal = str(error)
            log_event(log, logging.ERROR, "queue name taken", self._refusal, name=self._owner)
            code = _HOPELESS
        except RpcError as error:
            log_event(log, logging.ERROR, "queue refused", f"the router at {self._url}: {error}")
            code = _FAILED
        except gevent.GreenletExit:
            pass  # it was to end before the store was there
        if self._heirs is not None:
            self._heirs.stop(is_in_order=code == 0)
        if self._report is not None:
            self._report.close()
        self._store.close()
        self._client.close()
        return code

    def _serve(self) -> None:
        heir, recovered = self._arguments.heir, self._store.wait()
        try:
            self._server = QueueServer(
                self._client, self._owner, self._store, recovered, heir, self._arguments.tell_deaths
            )
        except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
            log.exception("what the store says of its queues")
            damage = f"what it says of its queues is damaged ({type(error).__name__}: {error})"
            self._refusal = f"{shown(self._arguments.store)}: {damage}: restore it from a copy, or move it away"
            raise StoreError(self._refusal) from error
        if heir:
            gevent.spawn(self._give_back)
        elif is_database(self._arguments.store):
            self._heirs = self._new_heirs()
        self._server.start()
        where = shown(self._arguments.store)
        log_event(log, logging.INFO, "queue server", f"queues of {self._owner} in {where} are served")
        self._server.run()
        if self._store.refusal:
            raise StoreError(self._store.refusal)

    def _new_heirs(self) -> Heirs:
        arguments = self._arguments
        given = ["--router", self._url, "--heir", self._owner]
        given += ["--log-format", arguments.log_format, "--log-level", arguments.log_level]
        given += ["--tell-deaths"] if arguments.tell_deaths else []
        inherited = [] if arguments.key_fd is None else [arguments.key_fd]
        if inherited:
            given += ["--key-fd", str(arguments.key_fd)]
        os.environ[STORE_VARIABLE] = arguments.store
        return Heirs(self._store, heir_command(given), inherited, arguments.takeover_seconds)

    def _give_back(self) -> None:
        """End when the owner is back, or has nothing left."""
        server = self._server
        assert server is not None
        reason = until_over(self._store, lambda: not server.queues.is_empty or server.periodic.count > 0)
        log_event(log, logging.INFO, "queue given back", f"the items of {self._owner} are given back: {reason}")
        self._stopping = gevent.spawn(server.stop, _GIVING_BACK)

    # --- state -------------------------------------------------------------------------------

    @property
    def _is_linked(self) -> bool:
        return self._client.process.uplink.ready

    def _about(self) -> Mapping[str, Any]:
        waits_for = self._refusal or self._store.problem or self._store.lost
        is_opening = self._server is None and not waits_for
        if not waits_for and not is_opening and not self._is_linked:
            waits_for = f"the router at {self._url}"
        about = {"url": self._url, "owner": self._owner, "waits_for": waits_for, "is_opening": is_opening}
        return {**about, "store": self._store.state()}

    def _figures(self) -> Mapping[str, Any]:
        return {} if self._server is None else self._server.observer.rows

    # --- the end -----------------------------------------------------------------------------

    def _stop(self, waits: bool) -> None:
        if self._server is None:
            # It waits for its store.
            gevent.kill(self._main)
            return
        if self._stopping is not None:
            if waits:
                return  # a service manager may tell all processes what the router tells this one
            self._stopping.kill()
        self._stopping = gevent.spawn(self._server.stop, None if waits else 0.0)

    def _watch_router(self) -> None:
        arguments = self._arguments
        alone = watch_router(arguments.parent, arguments.orphan_seconds, lambda: self._is_linked)
        text = f"its router is gone, and none came to {self._url} in {alone:.1f} s: the queue server ends"
        log_event(log, logging.WARNING, "queue server orphaned", text)
        self._stop(waits=False)


def main(given: Sequence[str] | None = None) -> int:
    """Serve until a signal, or the end of the router; return the exit code."""
    arguments = _arguments(given)
    start_logging(arguments.log_format, arguments.log_level)
    log_hub_errors(log)
    tune_gc()
    return _Program(arguments).run()


if __name__ == "__main__":
    sys.exit(main())
