"""The router as a daemon: an engine with its shell, signals, a log, and a view over HTTP.

SIGTERM, SIGINT   drain: accept nothing new, let running work finish, notify everyone, exit
a second signal   exit at once
SIGHUP            read the configuration again and change what can be changed live
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

import gevent
from gevent.event import Event

from rpcmq import __version__
from rpcmq.config import RouterConfig, apply_live, diff_live
from rpcmq.core.router.router import Router
from rpcmq.core.router.views import overview
from rpcmq.errors import ConfigError
from rpcmq.nodes.desk import rows_of
from rpcmq.nodes.loading import plans_for
from rpcmq.server.drain import LINGER, drain
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.server.limits import pin, raise_open_files, tune_gc
from rpcmq.server.log import EventLog, log_event, log_hub_errors, start_logging
from rpcmq.server.metrics import metrics_text
from rpcmq.server.monitor import Monitor, Page
from rpcmq.server.queue_command import check_queues, start_queue_server
from rpcmq.server.queue_process import QueueProcess
from rpcmq.server.sd_notify import Notifier
from rpcmq.server.sidecar import start_shipper
from rpcmq.store.location import shown

__all__ = ["Daemon"]

log = logging.getLogger("rpcmq.router")

#: Recovery window below which processes have too little time to return (seconds).
LEAST_RECOVERY = 1.0
#: Time for the shipper to process the router's last records (seconds).
SHIP = 10.0
#: Open files beside the links: sockets of ZeroMQ and HTTP, epoll, standard streams.
SPARE_FILES = 100
_SWEEP = 1.0


class Daemon:
    """A router that runs until a signal ends it.

    Args:
        load: reads the configuration; called at start and for each reload.
        engine: makes the engine, of what :class:`Router` takes.

    Raises:
        ConfigError: the configuration is wrong.
        NotInstalled: the store of its work queues needs a package that is not there.
    """

    def __init__(self, load: Callable[[], RouterConfig], engine: Callable[..., Router] = Router) -> None:
        self._load = load
        self._engine = engine
        self.config = load()
        check_queues(self.config)
        plans_for(self.config.node)  # before the log is that of the router: a wrong one is said like any setting
        self._notifier = Notifier(os.environ)
        self._stop = Event()
        self._stopped = Event()
        self._signalled = False
        self._queues: QueueProcess | None = None
        self._queue_state = ""
        self._has_namesake = False
        self._max_files = 0

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT.

        Returns:
            The exit code, 0.

        Raises:
            ConfigError: an endpoint cannot be bound, or ``router.cpu`` is no core.
        """
        settings = self.config.router
        start_logging(settings.log_format, settings.log_level)
        self._errors = log_hub_errors(log)
        for number in (signal.SIGTERM, signal.SIGINT):
            gevent.signal_handler(number, self._on_stop, number)
        gevent.signal_handler(signal.SIGHUP, self._on_reload)
        self._max_files = raise_open_files()
        # Before ZeroMQ starts its threads: a message changes hands within the core.
        cores = pin(settings.cpu)
        self._notes = EventLog(log)
        self._router = EmbeddedRouter(self.config, self._notes, self._engine)
        self._monitor = self._start_monitor(settings.http)
        self._log_started()
        self._queues = start_queue_server(self.config, self._router, cores)
        if self._queues is not None:
            self._tell_of_queues()
        sidecar = start_shipper(self.config, cores) if self._ships() else None
        tune_gc()
        housekeeping = gevent.spawn(self._housekeeping)
        self._notifier.ready(self._status())
        self._stop.wait()
        self._notifier.stopping(f"draining, for at most {self.config.router.drain_seconds:g} s")
        stopping = monotonic()
        if self._queues is not None:
            # The router refuses it nothing that has begun: items that workers have end like any other call.
            self._queues.begin_stop()
        drain(self._router, self.config.router.drain_seconds, self._has_queue_server)
        housekeeping.kill()
        if self._monitor is not None:
            self._monitor.close()
        self._router.close(LINGER)
        if self._queues is not None:
            self._queues.stop(max(0.0, stopping + self.config.router.drain_seconds - monotonic()))
        if sidecar is not None:
            sidecar.stop(SHIP)
        log_event(log, logging.INFO, "stopped", "stopped")
        self._notifier.close()
        return 0

    def _has_queue_server(self) -> bool:
        return self._queues is not None and not self._queues.ended

    def _ships(self) -> bool:
        return self.config.dispatch_log.ship and bool(self.config.dispatch_log.directory)

    def _start_monitor(self, address: str) -> Monitor | None:
        if not address:
            return None
        try:
            return Monitor(address, self._pages(), self.config.router.http_hosts)
        except ConfigError:
            self._router.close(0)
            raise

    def _log_started(self) -> None:
        router = self._router
        fields: dict[str, Any] = {"url": router.url, "version": __version__, "pid": os.getpid()}
        text = f"listening on {router.url}"
        if self._monitor is not None:
            fields["http"] = self._monitor.url
            text += f", views on {self._monitor.url}"
        text += f" (rpcmq {__version__}, router {router.settings.router_name}, pid {os.getpid()})"
        # The first line tells where it listens, however little is to be logged.
        record = log.makeRecord(
            log.name, logging.INFO, "", 0, "%s", (text,), None, extra={"event": "listening", "fields": fields}
        )
        log.handle(record)
        for warning in self._router.engine.warnings:
            log_event(log, logging.WARNING, "insecure", warning)
        self._check_max_links()
        self._check_recovery()

    def _check_recovery(self) -> None:
        seconds = self.config.router.recovery_seconds
        if 0 < seconds < LEAST_RECOVERY:
            text = (
                f"router.recovery_seconds = {seconds:g}: processes may need {LEAST_RECOVERY:g} s to come back after a "
                "restart; those that come later may have casts run a second time elsewhere, and miss events"
            )
            log_event(log, logging.WARNING, "short recovery", text, recovery_seconds=seconds)

    def _check_max_links(self) -> None:
        wanted, files = self.config.link.max_links, self._max_files
        if files != resource.RLIM_INFINITY and wanted > files - SPARE_FILES:
            text = (
                f"link.max_links = {wanted}, but this process may open {files} files: "
                f"raise the limit (LimitNOFILE=, ulimit -n) to {wanted + SPARE_FILES} or lower link.max_links"
            )
            log_event(log, logging.WARNING, "open files", text, max_links=wanted, max_open_files=files)

    def _housekeeping(self) -> None:
        """Sweep the log and notify the watchdog; runs in the hub, so that a stuck hub is noticed."""
        watchdog = self._notifier.watchdog_seconds
        step = _SWEEP if watchdog is None else min(_SWEEP, watchdog / 2)
        while True:
            self._notes.sweep()
            if self._router.spool is not None:
                self._router.spool.report(monotonic())
            if self._queues is not None:
                self._tell_of_queues()
                self._check_name()
            if watchdog is not None:
                self._notifier.watchdog()
            gevent.sleep(step)

    def _tell_of_queues(self) -> None:
        """Let whoever finds no queue server know how it is, at each router of the mesh."""
        assert self._queues is not None
        state = self._queues.state
        if state != self._queue_state:
            self._queue_state = state
            self._router.engine.mesh.queue_servers.tell(monotonic(), state)
            self._router.shell.wake()
            self._notifier.status(self._status())

    def _status(self) -> str:
        """One line for whoever looks at the service."""
        queues = f"; queue server: {self._queue_state}" if self._queue_state else ""
        return f"listening on {self._router.url}{queues}"

    def _check_name(self) -> None:
        """Say once that another router has the name that the items of work queues are known by."""
        name, linked = self._router.settings.router_name, self._router.engine.mesh.neighbours.by_id.values()
        has_namesake = any(neighbour.identity.name == name for neighbour in linked)
        if has_namesake and not self._has_namesake:
            text = (
                f"another router of the mesh is called {name!r}, too, and items of work queues are known by that name: "
                "only one of their queue servers can serve it. Give each router a name of its own: router.name"
            )
            log_event(log, logging.ERROR, "queue name taken", text, name=name)
        self._has_namesake = has_namesake

    # --- signals -----------------------------------------------------------------------------

    def _on_stop(self, number: int) -> None:
        name = signal.Signals(number).name
        if self._signalled:
            log_event(log, logging.WARNING, "forced stop", f"second signal ({name}): exiting at once", signal=name)
            # Whatever holds up an orderly end must not hold up this.
            os._exit(128 + number)
        self._signalled = True
        log_event(log, logging.INFO, "draining", f"{name}: draining, accepting nothing new", signal=name)
        self._stop.set()

    def _on_reload(self) -> None:
        if self._stop.is_set():
            return
        self._notifier.reloading()
        try:
            changes, refused = diff_live(self.config, self._load())
        except ConfigError as error:
            for line in str(error).splitlines():
                log_event(log, logging.ERROR, "reload failed", f"SIGHUP: nothing changed: {line}")
        else:
            self._apply(changes, refused)
        self._notifier.ready(self._status())

    def _apply(self, changes: dict[str, Any], refused: dict[str, Any]) -> None:
        self.config = apply_live(self.config, changes)
        self._router.reconfigure(self.config)
        # Log at the old level: a change to a less verbose one must itself be logged.
        for key, value in refused.items():
            value = shown(value) if key == "queue.store" else value
            text = f"SIGHUP: {key} = {value!r} needs a restart; not changed"
            log_event(log, logging.WARNING, "reload refused", text, key=key, value=value)
        for key, value in changes.items():
            log_event(log, logging.INFO, "reload", f"SIGHUP: {key} = {value!r}", key=key, value=value)
        if not changes and not refused:
            log_event(log, logging.INFO, "reload", "SIGHUP: nothing has changed")
        logging.getLogger().setLevel(self.config.router.log_level.upper())
        if "link.max_links" in changes:
            self._check_max_links()

    # --- views -------------------------------------------------------------------------------

    def _pages(self) -> dict[str, Page]:
        pages: dict[str, Page] = {"/healthz": self._health, "/varz": self._variables}
        for view in self._router.engine.views:
            if view not in ("overview", "summary"):
                pages[f"/{view}"] = partial(self._view, view)
        if self.config.queue.has_server:
            pages["/queues"] = self._queue_page
        pages["/metrics"] = self._metrics
        return pages

    def _metrics(self) -> tuple[int, Any]:
        return 200, metrics_text(overview(self._router.engine, monotonic(), "stats"), self._variables()[1])

    def _view(self, name: str) -> tuple[int, Any]:
        return 200, overview(self._router.engine, monotonic(), name)

    def _queue_page(self) -> tuple[int, Any]:
        return 200, self._queues.view() if self._queues is not None else {}

    def _health(self) -> tuple[int, Any]:
        if self._stop.is_set():
            return 503, {"status": "draining"}
        out = {row["name"]: row["why"] for row in rows_of(self._router.engine.nodes, monotonic()) if row["why"]}
        # Not unhealthy: the router does all else, and a restart by whoever watches this would cost more than the node.
        return 200, {"status": "ok", **({"nodes_out": out} if out else {})}

    def _variables(self) -> tuple[int, Any]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        process = {
            "version": __version__,
            "url": self._router.url,
            "pid": os.getpid(),
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
            "max_rss_bytes": usage.ru_maxrss * 1024,
            "max_open_files": self._max_files,
            "gc_collections": [generation["collections"] for generation in gc.get_stats()],
            "lost_wakeups": self._router.shell.lost_wakeups,
            "internal_errors": dict(self._errors),
        }
        queue = {} if self._queues is None else {"queue": self._queues.view()}
        nodes = {"nodes": rows_of(self._router.engine.nodes, monotonic())} if self.config.node else {}
        return 200, overview(self._router.engine, monotonic(), "summary") | {"process": process} | queue | nodes
