"""Requests of clients as heads, and the fields that go to origins."""

from __future__ import annotations

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, RequestHead, end_to_end, without_named

__all__ = ["fields_for_origin", "request_head"]

#: Set anew for the origin.
_SET_ANEW = frozenset(("host", "content-length", "expect", "via"))
#: Said by proxies about their clients, and about the URL that those asked for. A client that says so itself could have
#: the response to something else stored for all, for no key has these fields.
_FORWARDED = frozenset(
    ("forwarded", "true-client-ip", "x-client-ip", "x-cluster-client-ip", "x-forwarded", "x-host", "x-host-override",
     "x-http-host-override", "x-original-host", "x-original-url", "x-real-ip", "x-rewrite-url")
)  # fmt: skip
_X_FORWARDED = "x-forwarded-"
#: Fields by which some origins take a GET for something else.
_OTHER_METHOD = frozenset(("x-http-method", "x-http-method-override", "x-method-override"))
#: Origins to which ``_`` is the same as ``-`` (CGI and its successors) must not find these under that spelling.
_NEVER_ALIASED = frozenset(("connection", "transfer-encoding"))


def request_head(exchange: Exchange) -> RequestHead:
    """Return the head of a request, without the fields that are about the client's connection by name."""
    request = exchange.request
    headers = Headers([(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers])
    return RequestHead(
        request.method.decode("latin-1"),
        request.target.decode("latin-1"),
        # The cache must not tell responses apart by fields that no origin gets.
        without_named(headers),
        exchange.scheme,
        request.host.decode("latin-1"),
        (1, 1) if request.is_http_11 else (1, 0),
    )


def fields_for_origin(
    request: RequestHead, peer: str, host: str, *, trust_forwarded: bool, upgrade: str = ""
) -> list[tuple[str, str]]:
    """Return the fields of a request as they go to an origin, Host first.

    Args:
        peer: the client's address.
        host: instead of the client's; empty: that.
        trust_forwarded: keep what the client says about its own clients.
        upgrade: the protocol to switch to; empty: none.
    """
    headers = request.headers
    is_safe = request.method in ("GET", "HEAD")
    dropped = {name for name in headers.names() if _is_dropped(name, is_safe, trust_forwarded)}
    found = [("Host", host or request.authority)]
    found += end_to_end(headers).without(dropped).fields
    before = headers.joined("via")
    found.append(("Via", (f"{before}, " if before else "") + f"{request.version[0]}.{request.version[1]} rpcmq"))
    if trust_forwarded:
        chain = headers.joined("x-forwarded-for")
        found = [field for field in found if field[0].lower() != "x-forwarded-for"]
        found.append(("X-Forwarded-For", f"{chain}, {peer}" if chain else peer))
        if "x-forwarded-proto" not in headers:
            found.append(("X-Forwarded-Proto", request.scheme))
        if "x-forwarded-host" not in headers:
            found.append(("X-Forwarded-Host", request.authority))
    else:
        found += [
            ("X-Forwarded-For", peer),
            ("X-Forwarded-Proto", request.scheme),
            ("X-Forwarded-Host", request.authority),
        ]
    if upgrade:
        found += [("Connection", "Upgrade"), ("Upgrade", upgrade)]
    return found


def _is_dropped(name: str, is_safe: bool, trust_forwarded: bool) -> bool:
    if "_" in name:
        alias = name.replace("_", "-")
        return alias in _NEVER_ALIASED or _is_dropped(alias, is_safe, trust_forwarded=False)
    if name in _SET_ANEW or (is_safe and name in _OTHER_METHOD):
        return True
    return not trust_forwarded and (name in _FORWARDED or name.startswith(_X_FORWARDED))
