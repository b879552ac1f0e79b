"""The service that front ends call."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from time import monotonic
from typing import Any

import gevent

from rpcmq import Client, Service
from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.errors import RpcError
from rpcmq.proxy.answers import Answer, failure
from rpcmq.proxy.fetcher.connection import CHUNK_BYTES
from rpcmq.proxy.fetcher.fetch import Fetched, FetchFailed, fetch
from rpcmq.proxy.fetcher.health import HealthChecks
from rpcmq.proxy.fetcher.origins import Origins
from rpcmq.proxy.fetcher.sharing import SharedFetches
from rpcmq.proxy.http.errors import TruncatedBody
from rpcmq.proxy.settings import ProxySettings

__all__ = ["ALIVE_SECONDS", "Fetcher"]

#: Seconds between two signs of life of a fetcher.
ALIVE_SECONDS = 1.0

#: Bytes of a body that come with its head; a longer one follows as a stream.
_FIRST_BYTES = 256 * 1024
#: Seconds that a head waits for more of a body that is long, or whose length is not known.
_FIRST_SECONDS = 0.02
#: Seconds after which the rest of a body that nobody has asked for is given up.
_REST_SECONDS = 15.0


class Fetcher:
    """Asks origins for front ends, as a service of ``settings.fetch.topic``.

    Args:
        name: of this fetcher among all; letters, digits, ``-`` and ``_``.

    Raises:
        ConfigError: see :class:`Origins`.
    """

    def __init__(self, client: Client, settings: ProxySettings, name: str) -> None:
        self._client = client
        self._topic = settings.fetch.topic
        self._seconds = settings.fetch.seconds
        self._name = name
        self._sites = {site.name: Origins(site) for site in settings.sites}
        share = settings.fetch.concurrency if len(settings.sites) == 1 else max(1, settings.fetch.concurrency // 2)
        self._most = {site.name: site.max_requests or share for site in settings.sites}
        self._checks = [HealthChecks(origins) for origins in self._sites.values()]
        self._shared = SharedFetches()
        #: token -> the response whose body goes on, and the time until which it is kept.
        self._rests: dict[str, tuple[Fetched, float]] = {}
        self._requests = 0
        self._log = RateLimitedLog(logging.getLogger("rpcmq.proxy"))
        self._service = Service(
            self._topic, _Endpoint(self), client=client, host=name, concurrency=settings.fetch.concurrency
        )
        self._keeper: Any = None

    def start(self, timeout: float) -> None:
        """Serve, once the router knows of it.

        Args:
            timeout: seconds that this may take.
        """
        self._service.start(timeout)
        for check in self._checks:
            check.start()
        self._keeper = gevent.spawn(self._keep)

    def stop(self, seconds: float) -> None:
        """Take no more requests, and answer what runs, for so long."""
        self._keeper.kill()
        self._tell(is_alive=False)
        self._service.stop(seconds)
        for check in self._checks:
            check.stop()
        for fetched, _ in self._rests.values():
            fetched.close()
        self._rests.clear()
        for origins in self._sites.values():
            origins.close()

    def fetch(self, site: str, method: str, lines: bytes, body: Any, share: str) -> Answer:
        """Return the response of an origin.

        Args:
            lines: the request line and the fields; see :func:`rpcmq.proxy.fetcher.fetch.request_lines`.
            share: requests of the same site and text here may have the same response; empty: this one may not.
        """
        self._requests += 1
        origins = self._sites.get(site)
        if origins is None:
            return failure(502, f"the fetcher {self._name} knows no site {site!r}")
        if share:
            return self._shared.answer((site, share), lambda: self._ask(origins, method, lines, body))
        return self._ask(origins, method, lines, body)

    def _ask(self, origins: Origins, method: str, lines: bytes, body: Any) -> Answer:
        most = self._most[origins.site.name]
        if sum(origin.in_flight for origin in origins.all) >= most:
            # One whose origins stall must not have all that this fetcher can do.
            return failure(503, f"{most} requests of {origins.site.name} are under way (sites.max_requests)")
        try:
            fetched = fetch(origins, method, lines, body, monotonic() + self._seconds)
        except FetchFailed as failed:
            return failure(failed.status, str(failed))
        parser = fetched.response.parser
        try:
            first = fetched.response.body_at_hand(_FIRST_BYTES, _FIRST_SECONDS)
        except TruncatedBody as error:
            fetched.origin.has_failed()
            fetched.close()
            return failure(502, f"the origin {fetched.origin.name} of {origins.site.name} failed: {error}")
        except BaseException:
            fetched.close()
            raise
        token = ""
        if parser.is_complete and not parser.chunks:
            fetched.close()
        else:
            token = secrets.token_hex(16)
            self._rests[token] = (fetched, monotonic() + _REST_SECONDS)
        return Answer(
            parser.status, parser.reason, parser.fields, first, self._name, token, parser.ends_with_connection
        )

    def rest(self, token: str, most: int) -> Iterator[bytes]:
        """Yield what follows the beginning of a body; an error within it is raised at its place.

        Args:
            most: bytes of a piece.
        """
        fetched, _ = self._rests.pop(token, (None, 0.0))
        if fetched is None:
            raise TimeoutError("the rest of the body was given up, because nobody had asked for it")
        try:
            for piece in fetched.response.body():
                if len(piece) <= most:
                    yield piece
                else:
                    for start in range(0, len(piece), most):
                        yield piece[start : start + most]
        except TruncatedBody as error:
            fetched.origin.has_failed()
            raise ConnectionError(str(error)) from None
        finally:
            fetched.close()

    def drop(self, token: str) -> None:
        """Give up what follows the beginning of a body, which nobody wants."""
        fetched, _ = self._rests.pop(token, (None, 0.0))
        if fetched is not None:
            fetched.close()

    def statistics(self) -> dict[str, Any]:
        """Counts since the start, and the state of each origin."""
        now = monotonic()
        return {
            "name": self._name,
            "requests": self._requests,
            "shared": self._shared.shared,
            "sites": {
                name: {
                    origin.name: {
                        "up": origin.is_up(now),
                        "requests": origin.requests,
                        "failed": origin.failed,
                        "in_flight": origin.in_flight,
                    }
                    for origin in origins.all
                }
                for name, origins in self._sites.items()
            },
        }

    def _keep(self) -> None:
        while True:
            self._tell(is_alive=True)
            now = monotonic()
            for token, (fetched, until) in list(self._rests.items()):
                if now > until:
                    del self._rests[token]
                    fetched.close()
            for origins in self._sites.values():
                for origin in origins.all:
                    origin.close_old()
            gevent.sleep(ALIVE_SECONDS)

    def _tell(self, *, is_alive: bool) -> None:
        try:
            self._client.publish(None, f"{self._topic}.fetcher", {"name": self._name, "is_alive": is_alive})
        except RpcError as error:
            self._log.warning("alive", f"no sign of life could be sent: {error}")


class _Endpoint:
    """The methods that are served."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def fetch(self, ctx: Any, site: str, method: str, lines: bytes, body: Any = b"", share: str = "") -> list[Any]:
        """See :meth:`Fetcher.fetch`."""
        return self._fetcher.fetch(site, method, lines, body, share).to_list()

    def fetch_or_raise(self, ctx: Any, site: str, method: str, lines: bytes, share: str = "") -> list[Any]:
        """Fetch for a caller that asks several fetchers, and wants a failure from the last of them only.

        Raises:
            ConnectionError, TimeoutError: there is no response.
        """
        answer = self._fetcher.fetch(site, method, lines, b"", share)
        if answer.failed:
            raise TimeoutError(answer.reason) if answer.failed == 504 else ConnectionError(answer.reason)
        return answer.to_list()

    def rest(self, ctx: Any, token: str, most: int = CHUNK_BYTES) -> Iterator[bytes]:
        """See :meth:`Fetcher.rest`."""
        return self._fetcher.rest(token, max(most, 1))

    def drop(self, ctx: Any, token: str) -> None:
        """See :meth:`Fetcher.drop`."""
        self._fetcher.drop(token)

    def statistics(self, ctx: Any) -> dict[str, Any]:
        """See :meth:`Fetcher.statistics`."""
        return self._fetcher.statistics()
