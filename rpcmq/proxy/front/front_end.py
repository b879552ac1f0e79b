"""A front end: listeners, cache and the way to the fetchers."""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, time
from typing import Any

import gevent

from rpcmq import Client
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import ConfigError
from rpcmq.proxy.caching import CachePolicy
from rpcmq.proxy.fetcher.origins import Origins
from rpcmq.proxy.front.access_log import AccessLog
from rpcmq.proxy.front.admin import Admin
from rpcmq.proxy.front.fetchers import KnownFetchers
from rpcmq.proxy.front.fetching import Fetching
from rpcmq.proxy.front.handler import Handler
from rpcmq.proxy.front.hot import HotResponses
from rpcmq.proxy.front.metrics import Metrics, Sample, exposition
from rpcmq.proxy.front.purges import Purges
from rpcmq.proxy.front.websocket import tunnel
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.http.limits import Limits
from rpcmq.proxy.http.server import HttpServer, listen
from rpcmq.proxy.http.tls import Certificates
from rpcmq.proxy.settings import ProxySettings
from rpcmq.proxy.store.contract import Store
from rpcmq.proxy.store.opening import open_store

__all__ = ["FrontEnd", "limits_of", "policy_of", "store_of"]

_log = logging.getLogger("rpcmq.proxy")

#: Files that a front end has open whatever its clients do, about.
_OTHER_FILES = 100
_HOT_BYTES = 16 * 1024 * 1024
_MAINTAIN_SECONDS = 10.0
_CERTIFICATE_SECONDS = 2.0


def store_of(settings: ProxySettings) -> Store:
    """Open the store that ``settings`` ask for.

    Raises:
        ConfigError: it cannot be used.
    """
    cache = settings.cache
    return open_store(
        memory_bytes=cache.memory_bytes,
        memory_body=cache.memory_body,
        directory=cache.directory,
        directory_bytes=cache.directory_bytes,
        mongodb=cache.mongodb,
        database=cache.mongodb_database,
        mongodb_bytes=cache.mongodb_bytes,
    )


def policy_of(settings: ProxySettings) -> CachePolicy:
    """Return the policy of the cache that ``settings`` ask for."""
    cache = settings.cache
    return CachePolicy(
        stale_while_revalidate=cache.stale_while_revalidate,
        stale_if_error=cache.stale_if_error,
        stale_if_disconnected=cache.stale_if_disconnected,
        stale_beside_s_maxage=cache.stale_beside_s_maxage,
        heuristic_fraction=cache.heuristic_fraction,
        ignored_query=cache.ignored_query,
        sorts_query=cache.sort_query,
        request_directives=cache.obey_requests,
        max_body=cache.max_body,
    )


def limits_of(settings: ProxySettings) -> Limits:
    """Return the limits of a front end: no more connections than this process may have files for."""
    limits = Limits(**vars(settings.limits))
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some requests need a file of the store, or a connection of a tunnel, too.
    most = max(1, files * 3 // 4 - _OTHER_FILES)
    if limits.connections > most:
        _log.warning(
            "limits.connections = %d needs more files than this process may open (%d): it takes %d connections; "
            "raise the hard limit of open files (ulimit -Hn)", limits.connections, files, most,
        )  # fmt: skip
        limits = replace(limits, connections=most)
    return limits


class FrontEnd:
    """Serves clients.

    Args:
        store: for responses; closed by :meth:`stop`.
        number: of this process among those that share addresses, from 0; its admin listener has that port higher.

    Raises:
        ConfigError: an address, a certificate or the access log cannot be used.
    """

    def __init__(self, client: Client, settings: ProxySettings, store: Store, number: int = 0) -> None:
        self._settings = settings
        self._store = store
        self._log = RateLimitedLog(_log)
        policy = policy_of(settings)
        topic = settings.fetch.topic
        self._hot = HotResponses(_HOT_BYTES)
        self.known = KnownFetchers()
        self._purges = Purges(client, topic, store, self._hot)
        self._fetching = Fetching(client, settings.fetch, self.known)
        self.handler = Handler(settings, policy, store, self._fetching, self._purges, self._hot)
        self._metrics = Metrics()
        self._certificates = Certificates(settings.certificates) if settings.front.https else None
        self._access_log = AccessLog(settings.access_log) if settings.access_log.path else None
        self._server = HttpServer(self.serve, limits_of(settings))
        admin = Admin(self._purges, policy, self._exposition, self.status, settings.front.admin_token)
        self._admin_server = HttpServer(admin, Limits())
        self._tunnels = {site.name: Origins(site) for site in settings.sites}
        self._alive = client.subscribe(f"{topic}.fetcher", lambda ctx, topic, payload: self.known.take(payload))
        self._listeners = self._listen(number)
        self._keepers: list[Any] = []

    def _listen(self, number: int) -> dict[str, Any]:
        front = self._settings.front
        shared = front.processes > 1
        admin = front.admin
        if admin and number and not admin.endswith(":0"):
            host, _, port = admin.rpartition(":")
            admin = f"{host}:{int(port) + number}"
        found: dict[str, Any] = {}
        try:
            for name, address in (("https", front.https), ("http", front.http), ("admin", admin)):
                if address:
                    found[name] = listen(address, name=f"front.{name}", shared=shared and name != "admin")
        except ConfigError:
            for listener in found.values():
                listener.close()
            raise
        return found

    @property
    def addresses(self) -> dict[str, tuple[str, int]]:
        """Host and port of each listener: ``https``, ``http``, ``admin``."""
        return {name: listener.getsockname()[:2] for name, listener in self._listeners.items()}

    def start(self) -> None:
        """Serve.

        Raises:
            RouterUnreachable: there is no router.
        """
        self._purges.start()
        certificates = self._certificates
        for name, listener in self._listeners.items():
            if name == "admin":
                self._admin_server.serve_on(listener)
            elif name == "https" and certificates is not None:
                self._server.serve_on(listener, lambda: certificates.context)
            else:
                self._server.serve_on(listener)
        self._keepers = [gevent.spawn(self._maintain)]
        if certificates is not None:
            self._keepers.append(gevent.spawn(self._watch_certificates, certificates))

    def stop(self) -> int:
        """Take no more requests, and answer those that run, within ``front.drain_seconds``.

        Returns:
            Number of requests that were broken off.
        """
        broken = self._server.stop(self._settings.front.drain_seconds)
        self._admin_server.stop(1.0)
        self.handler.stop(1.0)
        gevent.killall(self._keepers)
        self._purges.stop()
        self._alive.close()
        if self._access_log is not None:
            self._access_log.close()
        self._store.close()
        return broken

    def reload(self) -> None:
        """Load the certificates anew, and open the access log anew."""
        if self._access_log is not None:
            self._access_log.reopen()
        if self._certificates is not None:
            try:
                self._certificates.reload()
            except ConfigError as error:
                self._log.error("certificates", f"the former certificates go on: {error}")

    def serve(self, exchange: Exchange) -> None:
        """Answer a request, count it, and log it."""
        begun = perf_counter()
        cache = "error"
        try:
            if exchange.request.wants_websocket:
                cache = "tunnel"
                self._tunnel(exchange)
            else:
                cache = self.handler.answer(exchange)
        finally:
            seconds = perf_counter() - begun
            self._metrics.note(cache, exchange.status, exchange.sent, seconds, is_whole=exchange.is_finished)
            if self._access_log is not None:
                self._access_log.note(exchange, cache, seconds)

    def _tunnel(self, exchange: Exchange) -> None:
        host = exchange.request.host.decode("latin-1")
        site = self._settings.site_of(host.rpartition(":")[0] if host[-1:].isdigit() and ":" in host else host)
        if site is None:
            exchange.send_error(421, f"No site of this proxy has the host {host!r}.")
            return
        tunnel(exchange, self._tunnels[site.name], trust_forwarded=self._settings.front.trust_forwarded)

    # --- beside ----------------------------------------------------------------------------------

    def _maintain(self) -> None:
        while True:
            gevent.sleep(_MAINTAIN_SECONDS)
            try:
                for _ in self._store.maintain(time()):
                    gevent.sleep(0)
            except Exception as error:
                self._log.error("maintain", f"the store could not be maintained: {error!r}", error)

    def _watch_certificates(self, certificates: Certificates) -> None:
        while True:
            gevent.sleep(_CERTIFICATE_SECONDS)
            try:
                if certificates.reload_if_changed():
                    _log.info("certificates were loaded anew")
            except ConfigError as error:
                self._log.error("certificates", f"the former certificates go on: {error}")

    def status(self) -> dict[str, Any]:
        """The state, for operators."""
        counters = self._server.counters
        store = self._store.statistics()
        return {
            "fetchers": self.known.names(),
            "connections": self._server.open_connections,
            "requests_under_way": self._server.busy_connections,
            "connections_accepted": counters.accepted,
            "connections_refused": counters.refused_connections,
            "requests_refused": {str(status): count for status, count in sorted(counters.refused_requests.items())},
            "clients_too_slow": counters.too_slow,
            "clients_cut_off": self._server.unread.cut_off,
            "unread_bytes": self._server.unread.total,
            "handshakes_failed": counters.handshakes_failed,
            "fetched": self._fetching.sent,
            "fetches_failed": self._fetching.failed,
            "fetches_refused": self.handler.shares.refused,
            "collapsed": self.handler.flights.followed,
            "purges": self._purges.applied,
            "purges_missed": self._purges.missed,
            "purges_owed": len(self._purges.owed),
            "purge_faults": self._purges.faults,
            "access_log_lines_dropped": self._access_log.dropped if self._access_log is not None else 0,
            "store": {name: getattr(store, name) for name in store.__dataclass_fields__},
        }

    def _exposition(self) -> str:
        return exposition(self._samples())

    def _samples(self) -> Iterator[Sample]:
        yield from self._metrics.samples()
        status = self.status()
        for name in ("connections", "requests_under_way", "unread_bytes"):
            yield f"rpcmq_proxy_{name}", {}, status[name]
        yield "rpcmq_proxy_fetchers", {}, len(status["fetchers"])
        yield "rpcmq_proxy_purges_owed", {}, status["purges_owed"]
        for name in (
            "connections_accepted", "connections_refused", "clients_too_slow", "clients_cut_off", "handshakes_failed",
            "fetched", "fetches_failed", "fetches_refused", "collapsed", "purges", "purges_missed", "purge_faults",
            "access_log_lines_dropped",
        ):  # fmt: skip
            yield f"rpcmq_proxy_{name}_total", {}, status[name]
        for refused, count in status["requests_refused"].items():
            yield "rpcmq_proxy_requests_refused_total", {"status": refused}, count
        for name in ("entries", "size_bytes", "max_bytes", "is_storing"):
            yield f"rpcmq_proxy_store_{name}", {}, status["store"][name]
        for name in ("hits", "misses", "stored", "evicted", "removed", "failed", "corrupt", "disk_full"):
            yield f"rpcmq_proxy_store_{name}_total", {}, status["store"][name]
