"""The origins of a site: which one is asked, which ones are down, and the connections that are kept to each."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any

from gevent import ssl

from rpcmq.errors import ConfigError
from rpcmq.proxy.fetcher.connection import OriginConnection
from rpcmq.proxy.settings import OriginUrl, SiteSettings

__all__ = ["Origin", "Origins"]

#: Seconds for which no connection is kept to an origin that says more than it was asked for.
_DISTRUST_SECONDS = 600.0

_log = logging.getLogger("rpcmq.proxy")


class Origin:
    """A server that has the site.

    Attributes:
        in_flight: requests that it has not answered yet.
        failures: in a row.
        is_healthy: by the last probes; True where there are none.
    """

    def __init__(self, url: OriginUrl, site: SiteSettings, context: Any) -> None:
        self.url = url
        self.in_flight = 0
        self.failures = 0
        self.is_healthy = True
        self.requests = self.failed = 0
        self._site = site
        self._context = context
        self._idle: deque[OriginConnection] = deque()
        self._down_until = 0.0
        self._distrusted_until = 0.0

    @property
    def name(self) -> str:
        """Its host and port."""
        return f"{self.url.host}:{self.url.port}"

    def is_up(self, now: float) -> bool:
        """Return whether it may be asked at ``now`` (monotonic seconds)."""
        return self.is_healthy and now >= self._down_until

    def succeeded(self) -> None:
        """Note that it has answered."""
        self.failures = 0
        self._down_until = 0.0

    def has_failed(self) -> None:
        """Note that it has not; after a few times in a row it is left alone for a while."""
        self.failures += 1
        self.failed += 1
        if self.failures >= self._site.max_failures:
            self._down_until = monotonic() + self._site.down_seconds
            self.close_idle()

    def connection(self, *, fresh: bool = False) -> OriginConnection:
        """A connection that was kept, or a new one.

        Args:
            fresh: a new one.

        Raises:
            OriginUnreachable, OriginStalled: there is none.
        """
        idle, site = self._idle, self._site
        oldest = monotonic() - site.keep_seconds
        while idle and not fresh:
            connection = idle.pop()
            # Looked at in any case: bytes that nobody asked for would be taken for the next response.
            if connection.idle_since >= oldest and connection.is_usable():
                return connection
            connection.close()
            if connection.has_said_more:
                self.has_said_more()
        name = self.url.host if site.host == "" else site.host.rpartition(":")[0] or site.host
        return OriginConnection((self.url.host, self.url.port), self._context, name, site.connect_seconds)

    def keep(self, connection: OriginConnection) -> None:
        """Keep a connection that can be used again."""
        connection.idle_since = now = monotonic()
        if now < self._distrusted_until:
            connection.close()
            return
        self._idle.append(connection)
        if len(self._idle) > self._site.keep_connections:
            self._idle.popleft().close()

    def has_said_more(self) -> None:
        """Note that it has sent bytes that nobody had asked for: for a while no connection to it is used again.

        Such bytes may come when the next request has just been sent, and would then be taken for its response.
        """
        now = monotonic()
        if now >= self._distrusted_until:
            _log.warning(
                "the origin %s of %s sent more than its response has: for %g s no connection to it is kept",
                self.name, self._site.name, _DISTRUST_SECONDS,
            )  # fmt: skip
        self._distrusted_until = now + _DISTRUST_SECONDS
        self.close_idle()

    def close_old(self) -> None:
        """Close those that were not used for long."""
        oldest = monotonic() - self._site.keep_seconds
        while self._idle and self._idle[0].idle_since < oldest:
            self._idle.popleft().close()

    def close_idle(self) -> None:
        """Close all that are kept."""
        while self._idle:
            self._idle.pop().close()


class Origins:
    """All origins of one site.

    Raises:
        ConfigError: the file of certificates cannot be used.
    """

    def __init__(self, site: SiteSettings) -> None:
        self.site = site
        context = _context(site)
        self.all: Sequence[Origin] = [
            Origin(url, site, context if url.scheme == "https" else None) for url in site.origins
        ]
        self._turn = 0

    def in_order(self) -> Iterable[Origin]:
        """Yield origins in the order in which to try them: the least busy one that is up first.

        Those that are down come last: if all are, one of them is asked all the same.
        """
        if len(self.all) == 1:
            return self.all
        now = monotonic()
        self._turn += 1
        count = len(self.all)
        turned = [self.all[(self._turn + number) % count] for number in range(count)]
        turned.sort(key=lambda origin: (not origin.is_up(now), origin.in_flight))
        return turned

    def close(self) -> None:
        """Close the connections that are kept."""
        for origin in self.all:
            origin.close_idle()


def _context(site: SiteSettings) -> Any:
    if all(url.scheme == "http" for url in site.origins):
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not site.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    try:
        if site.ca:
            context.load_verify_locations(site.ca)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:
        raise ConfigError(f"sites.ca = {site.ca!r}: cannot be used: {error}") from None
    return context
