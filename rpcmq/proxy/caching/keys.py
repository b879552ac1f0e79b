"""Keys under which responses are stored: normalised URLs (RFC 9111 section 2, RFC 3986 section 6.2)."""

from __future__ import annotations

import re
from functools import lru_cache
from urllib.parse import urljoin, urlsplit

from rpcmq.proxy.caching.policy import CachePolicy
from rpcmq.proxy.messages import RequestHead

__all__ = ["cache_key", "key_prefix", "related_key", "url_key"]

_DEFAULT_PORTS = {"http": ":80", "https": ":443"}
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
#: The end of a text that may be the beginning of an escape.
_BEGUN_ESCAPE = re.compile(r"%[0-9A-Fa-f]?\Z")
_MALFORMED = re.compile(r"%(?![0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def cache_key(request: RequestHead, policy: CachePolicy) -> str:
    """Return the key of the target of ``request``.

    Only spellings that mean the same by the RFCs have the same key: letters of scheme and host, the default port, an
    empty path, escapes of what needs none. Segments of dots stay: what an origin makes of them is its affair. The
    policy may have arguments of the query ignored or sorted.
    """
    return _key(request.scheme, request.authority, request.target, policy)


def key_prefix(scheme: str, authority: str, target: str) -> str:
    """Return the beginning of the keys of all targets that begin with ``target``, whose end may be any."""
    begun = _BEGUN_ESCAPE.search(target)
    whole = target[: begun.start()] if begun else target
    return f"{_origin(scheme, authority)}{_normal_escapes(whole)}{target[len(whole) :]}"


def url_key(url: str, policy: CachePolicy) -> str | None:
    """Return the key of an absolute URL, as in an order to purge it; None: it has no scheme of the web, or no host."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.netloc:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _key(parts.scheme, parts.netloc, target, policy)


def related_key(request: RequestHead, reference: str | None, policy: CachePolicy) -> str | None:
    """Return the key of a URL in the response to ``request``; None: there is none, or it is of another origin.

    Of another origin nothing may be invalidated (RFC 9111 section 4.4).
    """
    if not reference:
        return None
    try:
        key = url_key(urljoin(request.url, reference), policy)
    except ValueError:
        return None
    own = _origin(request.scheme, request.authority)
    return key if key is not None and key.startswith(f"{own}/") else None


def _key(scheme: str, authority: str, target: str, policy: CachePolicy) -> str:
    target = _normal_escapes(target)
    if not target.startswith("/") and target != "*":
        target = f"/{target}"
    if "?" in target and (policy.ignored_query or policy.sorts_query):
        target = _normal_query(target, policy)
    return f"{_origin(scheme, authority)}{target}"


@lru_cache(maxsize=1024)
def _origin(scheme: str, authority: str) -> str:
    scheme = scheme.lower()
    return f"{scheme}://{authority.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ':'))}"


def _normal_escapes(target: str) -> str:
    return _ESCAPE.sub(_normal_escape, target) if "%" in target and not _MALFORMED.search(target) else target


def _normal_escape(found: re.Match[str]) -> str:
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


def _normal_query(target: str, policy: CachePolicy) -> str:
    path, _, query = target.partition("?")
    arguments = [each for each in query.split("&") if not _is_ignored(each.partition("=")[0], policy.ignored_query)]
    if policy.sorts_query:
        # Arguments of one name stay in their order, which may mean something.
        arguments.sort(key=lambda argument: argument.partition("=")[0])
    return f"{path}?{'&'.join(arguments)}" if arguments else path


def _is_ignored(name: str, ignored: tuple[str, ...]) -> bool:
    return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in ignored)
