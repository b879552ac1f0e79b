"""Purges, metrics and state of a front end, over HTTP for operators."""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Callable, Mapping
from time import time
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

from rpcmq.errors import RpcError
from rpcmq.proxy.caching import CachePolicy, Purge, PurgeKind, cache_key, key_prefix
from rpcmq.proxy.front.purges import Purges
from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, RequestHead, ResponseHead

__all__ = ["Admin"]

_AUTHORITY = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::[0-9]{1,5})?")
#: A URL among the arguments of a query; one that is escaped has no colon there.
_PLAIN_URL = re.compile(r"(?<![^&])(url|prefix)=(https?:[^&]*)", re.IGNORECASE)
_NOT_OF_URLS = re.compile(r"[^!-~]+")
_LOCAL = re.compile(rb"(?:localhost|[0-9.]+|\[[0-9a-f:.]+\]|)(?::[0-9]+)?")


class Admin:
    """Answers requests of operators.

    Args:
        metrics: gives the text for Prometheus.
        status: gives the state, for JSON.
        token: that requests must have; empty: none.
    """

    def __init__(
        self,
        purges: Purges,
        policy: CachePolicy,
        metrics: Callable[[], str],
        status: Callable[[], Mapping[str, Any]],
        token: str,
    ) -> None:
        self._purges = purges
        self._policy = policy
        self._metrics = metrics
        self._status = status
        self._token = token.encode()

    def __call__(self, exchange: Exchange) -> None:
        """Answer a request."""
        request = exchange.request
        path, _, query = request.target.decode("latin-1").partition("?")
        given = (request.header(b"authorization") or b"").removeprefix(b"Bearer ")
        if self._token and not hmac.compare_digest(given, self._token):
            exchange.send_error(401, "This needs the header 'Authorization: Bearer' with front.admin_token.")
        elif request.header(b"origin") is not None:
            exchange.send_error(403, "Pages in browsers have no business here.")
        elif not self._token and not _is_local(request.host):
            # A page's own host may lead here by its name server.
            exchange.send_error(403, "Without front.admin_token this is served for localhost and addresses only.")
        elif path == "/purge" and request.method == b"POST":
            self._purge(exchange, query)
        elif request.method not in (b"GET", b"HEAD"):
            exchange.send_error(405, "Only POST /purge changes anything.")
        elif path == "/metrics":
            _send(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics())
        elif path == "/status":
            _send_json(exchange, 200, self._status())
        elif path == "/healthz":
            _send(exchange, 200, "text/plain; charset=utf-8", "ok\n")
        else:
            exchange.send_error(404, "There are /metrics, /status, /healthz, and POST /purge.")

    def _purge(self, exchange: Exchange, query: str) -> None:
        try:
            purge = purge_of(query, self._policy, time())
        except ValueError as error:
            _send_json(exchange, 400, {"error": str(error)})
            return
        try:
            purged = self._purges.purge(purge, confirm=True)
        except RpcError as error:
            problem = f"applied by this front end alone; the others could not be told: {error}"
            _send_json(exchange, 503, {"error": problem})
            return
        done = {"purged": purged.count, "recorded": purged.is_recorded}
        meant = {"kind": purge.kind.value, "value": purge.value, "soft": purge.soft}
        # 202: it is obeyed already, and the store will be told until it has it (RFC 9110 section 15.3.3).
        _send_json(exchange, 200 if purged.is_recorded else 202, done | meant)


def purge_of(query: str, policy: CachePolicy, now: float) -> Purge:
    """Return the purge that a query asks for: one of ``url``, ``prefix``, ``tag`` and ``all``, and perhaps ``soft``.

    Raises:
        ValueError: it asks for none; the text says why.
    """
    # A URL that is not escaped as a whole is taken as it is: its own escapes are part of it.
    query = _PLAIN_URL.sub(_escaped, query)
    given = parse_qsl(query, keep_blank_values=True)
    arguments = dict(given)
    if len(arguments) != len(given):
        raise ValueError("an argument is given twice: send a request for each")
    soft = arguments.pop("soft", "0")
    if soft not in ("0", "1"):
        raise ValueError("soft is 0 or 1")
    if len(arguments) != 1 or not set(arguments) <= {kind.value for kind in PurgeKind}:
        raise ValueError("give one of url, prefix, tag and all, as /purge?url=https://www.example.org/page")
    ((name, value),) = arguments.items()
    kind = PurgeKind(name)
    if kind in (PurgeKind.URL, PurgeKind.PREFIX):
        value = _normalised(value, policy, is_prefix=kind is PurgeKind.PREFIX)
    elif kind is PurgeKind.TAG and not value:
        raise ValueError("tag is empty")
    elif kind is PurgeKind.ALL and value != "1":
        raise ValueError("to purge everything, say all=1")
    return Purge(kind, value, now, soft == "1")


def _escaped(found: re.Match[str]) -> str:
    return f"{found[1]}={quote(found[2], safe='')}"


def _normalised(url: str, policy: CachePolicy, *, is_prefix: bool) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not _AUTHORITY.fullmatch(parts.netloc):
        raise ValueError(f"{url!r} is no URL with https:// or http:// and a host, with a port if need be")
    target = url.partition("://")[2].removeprefix(parts.netloc)
    if is_prefix and not target:
        raise ValueError(f"{url!r} has no path: end it with '/'")
    # No target of a request has such characters.
    target = _NOT_OF_URLS.sub(lambda found: quote(found[0]), target.partition("#")[0])
    target = target if target.startswith("/") else "/" + target
    if is_prefix and not parts.query:
        return key_prefix(parts.scheme, parts.netloc, target)
    return cache_key(RequestHead("GET", target, Headers(), parts.scheme, parts.netloc), policy)


def _is_local(host: bytes) -> bool:
    """Return whether a Host is localhost, or an address: a name that no name server can have lead elsewhere."""
    return _LOCAL.fullmatch(host) is not None


def _send_json(exchange: Exchange, status: int, value: Mapping[str, Any]) -> None:
    _send(exchange, status, "application/json", json.dumps(value, indent=2) + "\n")


def _send(exchange: Exchange, status: int, kind: str, text: str) -> None:
    headers = Headers((("Content-Type", kind), ("Cache-Control", "no-store")))
    exchange.send(ResponseHead(status, headers), text.encode())
