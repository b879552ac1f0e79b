"""Probes of origins."""

from __future__ import annotations

import logging
from typing import Any

import gevent

from rpcmq.proxy.fetcher.connection import OriginConnection, OriginStalled, OriginUnreachable
from rpcmq.proxy.fetcher.fetch import request_head, request_lines
from rpcmq.proxy.fetcher.origins import Origin, Origins
from rpcmq.proxy.fetcher.responses import MalformedResponse
from rpcmq.proxy.http.errors import TruncatedBody

__all__ = ["HealthChecks"]

_log = logging.getLogger("rpcmq.proxy")

#: Probes in a row that must fail before an origin counts as down; one that succeeds brings it back.
_FAILURES = 2
_BODY_BYTES = 64 * 1024


class HealthChecks:
    """Asks each origin of a site for ``health_target`` every ``health_seconds``."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._failures = dict.fromkeys(origins.all, 0)
        self._greenlets: list[Any] = []

    def start(self) -> None:
        """Begin, if the site has a target to probe."""
        if self._origins.site.health_target:
            self._greenlets = [gevent.spawn(self._probe_for_ever, origin) for origin in self._origins.all]

    def stop(self) -> None:
        """End."""
        gevent.killall(self._greenlets)

    def _probe_for_ever(self, origin: Origin) -> None:
        while True:
            self.note(origin, self._probe(origin))
            gevent.sleep(self._origins.site.health_seconds)

    def note(self, origin: Origin, problem: str) -> None:
        """Take the result of a probe; empty: it was answered."""
        self._failures[origin] = self._failures[origin] + 1 if problem else 0
        is_healthy = self._failures[origin] < _FAILURES
        if is_healthy == origin.is_healthy or (problem and is_healthy):
            return
        origin.is_healthy = is_healthy
        site = self._origins.site.name
        if is_healthy:
            _log.info("origin %s of %s is healthy again", origin.name, site)
        else:
            origin.close_idle()
            _log.warning("origin %s of %s is not healthy: %s", origin.name, site, problem)

    def _probe(self, origin: Origin) -> str:
        site = self._origins.site
        host = site.host or (origin.name if site.name.startswith("*") else site.name)
        fields = [("Host", host), ("User-Agent", "rpcmq-proxy"), ("Connection", "close")]
        head = request_head("GET", request_lines("GET", site.health_target, fields), 0)
        connection: OriginConnection | None = None
        try:
            connection = origin.connection(fresh=True)
            response = connection.exchange(
                head, b"", is_head=False, first_byte_seconds=site.first_byte_seconds, idle_seconds=site.idle_seconds
            )
            response.body_at_hand(_BODY_BYTES, 0.0)
        except (OriginUnreachable, OriginStalled, MalformedResponse, TruncatedBody) as error:
            return str(error)
        finally:
            if connection is not None:
                connection.close()
        status = response.parser.status
        return "" if 200 <= status < 400 else f"{site.health_target} was answered with {status}"
