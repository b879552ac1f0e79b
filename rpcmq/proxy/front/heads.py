"""Requests of clients as heads, and the fields that go to origins."""

from __future__ import annotations

from rpcmq.proxy.http.exchange import Exchange
from rpcmq.proxy.messages import Headers, RequestHead, end_to_end

__all__ = ["fields_for_origin", "request_head"]

#: Set anew for the origin.
_SET_ANEW = frozenset(("host", "content-length", "expect", "via"))
_FORWARDED = frozenset(("x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "x-real-ip", "forwarded"))


def request_head(exchange: Exchange) -> RequestHead:
    """Return the head of a request."""
    request = exchange.request
    return RequestHead(
        request.method.decode("latin-1"),
        request.target.decode("latin-1"),
        Headers((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers),
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
    dropped = _SET_ANEW if trust_forwarded else _SET_ANEW | _FORWARDED
    found = [("Host", host or request.authority)]
    found += end_to_end(request.headers).without(dropped).fields
    headers = request.headers
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
