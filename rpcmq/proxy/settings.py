"""The settings of the proxy: one TOML file for front ends and fetchers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from rpcmq.config.keys import fields_of
from rpcmq.config.loading import Values
from rpcmq.config.values import (
    BYTES,
    COUNT,
    FLAG,
    OPTIONAL_ADDRESS,
    ValueType,
    choice,
    integer,
    number,
    seconds,
    setting,
    size,
)
from rpcmq.errors import ConfigError
from rpcmq.proxy.http.tls import Certificate
from rpcmq.toml import read_toml

__all__ = [
    "AccessLogSettings",
    "CacheSettings",
    "FetchSettings",
    "FrontSettings",
    "LimitSettings",
    "OriginUrl",
    "ProxySettings",
    "RouterSettings",
    "SiteSettings",
    "load_settings",
]

_KIB, _MIB, _GIB = 2**10, 2**20, 2**30
_DAY = 86400.0
_NAME = re.compile(r"(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*|\[[0-9a-f:]+\]|\*")


def _words(expected: str, pattern: str, *, least: int = 0) -> ValueType:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or len(value) < least:
            raise ValueError
        if not all(isinstance(each, str) and re.fullmatch(pattern, each) for each in value):
            raise ValueError
        return tuple(value)

    return ValueType("list", expected, check, lambda text: text.split(","))


def _text(expected: str, pattern: str) -> ValueType:
    def check(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError
        return value

    return ValueType("text", expected, check)


class OriginUrl(NamedTuple):
    """A server: scheme (``http`` or ``https``), host and port."""

    scheme: str
    host: str
    port: int


def _origins(value: object) -> tuple[OriginUrl, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError
    found = []
    for each in value:
        if not isinstance(each, str):
            raise ValueError
        parts = urlsplit(each)
        is_bare = not parts.query and not parts.fragment and parts.path in ("", "/") and "@" not in parts.netloc
        if parts.scheme not in ("http", "https") or not parts.hostname or not is_bare:
            raise ValueError
        found.append(OriginUrl(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)))
    return tuple(found)


_ORIGINS = ValueType("urls", "a list of URLs like 'http://10.0.0.5:8080', without a path", _origins)
_SITE_NAMES = ValueType(
    "names",
    "a list of host names in small letters, without ports, like 'www.example.org', '*.example.org', or '*' for all",
    _words("", _NAME.pattern, least=1).check,
)
_PATH = _text("a path, or '' for none", r"[^\0]*")
_MONGODB = _text("a URI like 'mongodb://10.0.0.9/', or '' for none", r"(?:mongodb(?:\+srv)?://[!-~]+)?")
_TARGET = _text("a path that begins with '/', or '' for none", r"(?:/[!-~]*)?")
_HOST = _text("a host, with a port if need be, or '' for that of the client", r"(?:[A-Za-z0-9._-]+(?::[0-9]{1,5})?)?")
_TOPIC = _text("a topic of words between dots", r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True)
class RouterSettings:
    """``[router]``"""

    urls: tuple[str, ...] = setting(
        (), _words("a list of URLs like 'tcp://10.0.0.1:7700'", r"\S+"), "routers; empty: as for every command"
    )


@dataclass(frozen=True)
class FrontSettings:
    """``[front]``"""

    https: str = setting("127.0.0.1:8443", OPTIONAL_ADDRESS, "where HTTPS is served; empty: nowhere")
    http: str = setting("", OPTIONAL_ADDRESS, "where plain HTTP is served; empty: nowhere")
    admin: str = setting("127.0.0.1:8081", OPTIONAL_ADDRESS, "where purges and metrics are served; empty: nowhere")
    admin_token: str = setting(
        "", _text("text without spaces, or ''", r"[!-~]*"), "that operators must send; needed where others can reach it"
    )
    processes: int = setting(1, integer(1, 256), "front ends of this command, each a process; about one for each core")
    drain_seconds: float = setting(30.0, seconds(0, 3600), "time for requests under way when a front end stops")
    trust_forwarded: bool = setting(
        False, FLAG, "keep X-Forwarded-* of clients, who are proxies of yours, rather than set them anew"
    )


@dataclass(frozen=True)
class AccessLogSettings:
    """``[access_log]``"""

    path: str = setting("", _PATH, "file that gets a line for each request; '-': standard error; empty: none")
    format: str = setting("combined", choice("combined", "json"), "form of its lines")


@dataclass(frozen=True)
class LimitSettings:
    """``[limits]``"""

    target_bytes: int = setting(8 * _KIB, size(64, 60 * _KIB), "longest target of a request")
    header_bytes: int = setting(32 * _KIB, size(256, _MIB), "all fields of a request")
    header_count: int = setting(100, integer(8, 10_000), "number of fields of a request")
    body_bytes: int = setting(_GIB, size(0), "longest body of a request")
    header_seconds: float = setting(10.0, seconds(0.1, 3600), "from a request's first byte to the end of its head")
    idle_seconds: float = setting(60.0, seconds(0.1, _DAY), "silence between two requests of a connection")
    min_rate: int = setting(512, size(0), "bytes a second at which bodies must come and responses be read")
    rate_seconds: float = setting(10.0, seconds(0.1, 3600), "time over which that rate is measured")
    connections: int = setting(10_000, COUNT, "connections of one front end")
    connections_for_address: int = setting(1_000, COUNT, "connections of one front end from one address")
    requests_for_connection: int = setting(100_000, COUNT, "requests after which a connection is closed")
    fetches_for_address: int = setting(
        100, integer(0), "requests of one address, at one front end, for which origins are asked at a time; 0: no bound"
    )
    unread_bytes: int = setting(
        512 * _MIB,
        size(16 * _MIB),
        "of responses that clients of one front end have yet to read, of all together; then the slowest is cut off",
    )


@dataclass(frozen=True)
class CacheSettings:
    """``[cache]``"""

    memory_bytes: int = setting(256 * _MIB, BYTES, "memory for stored responses, of each front end")
    memory_body: int = setting(_MIB, BYTES, "longest body that is kept in memory")
    directory: str = setting("", _PATH, "directory of the file store, shared by the front ends of a host; empty: none")
    directory_bytes: int = setting(10 * _GIB, BYTES, "bytes of that directory")
    mongodb: str = setting("", _MONGODB, "URI of a MongoDB server as store, shared by all front ends; empty: none")
    mongodb_database: str = setting("rpcmq_proxy", _text("a name", r"[A-Za-z0-9_-]{1,60}"), "name of its database")
    mongodb_bytes: int = setting(64 * _GIB, BYTES, "bytes of that database")
    max_body: int = setting(_GIB, BYTES, "longest body that is stored")
    stale_while_revalidate: float = setting(
        0.0, seconds(0, 365 * _DAY), "time for which stale responses are served while they are fetched anew"
    )
    stale_if_error: float = setting(
        0.0, seconds(0, 365 * _DAY), "time for which stale responses are served while origins fail"
    )
    stale_if_disconnected: float = setting(
        3600.0, seconds(0, 365 * _DAY), "at least this time for which they are where no origin answers at all"
    )
    stale_beside_s_maxage: bool = setting(
        False,
        FLAG,
        "s-maxage does not forbid stale responses where stale-while-revalidate or stale-if-error allow them",
    )
    heuristic_fraction: float = setting(
        0.1, number(0, 1), "of the age of a response without explicit freshness, for which it is fresh"
    )
    ignored_query: tuple[str, ...] = setting(
        (), _words("a list of names, as 'utm_*'", r"[^\s&=]+"), "arguments of queries that tell no resources apart"
    )
    sort_query: bool = setting(False, FLAG, "the order of a query's arguments tells no resources apart")
    obey_requests: bool = setting(
        True, FLAG, "Cache-Control of requests counts, so that clients may have origins asked"
    )
    collapse: bool = setting(True, FLAG, "requests for the same URL wait for one response, where they may share it")
    collapse_seconds: float = setting(20.0, seconds(0.1, 3600), "time after which a request waits for another no more")


@dataclass(frozen=True)
class FetchSettings:
    """``[fetch]``"""

    topic: str = setting("proxy", _TOPIC, "topic of the fetchers, and first word of the proxy's events")
    concurrency: int = setting(512, COUNT, "requests under way in one fetcher")
    hedge_after: float = setting(
        0.0, seconds(0, 600), "time after which a second fetcher is asked, too, by safe requests; 0: never"
    )
    first_of: int = setting(1, integer(1, 8), "fetchers that are asked at once by safe requests; 1: one")
    # The last one: it has the name of the type of values.
    seconds: float = setting(60.0, seconds(0.1, 3600), "longest wait for a response's head, all origins together")


@dataclass(frozen=True)
class SiteSettings:
    """A table of ``[[sites]]``."""

    names: tuple[str, ...] = setting((), _SITE_NAMES, "hosts that clients ask for")
    origins: tuple[OriginUrl, ...] = setting((), _ORIGINS, "servers that have the site")
    host: str = setting("", _HOST, "Host for the origins; empty: that of the client")
    ca: str = setting("", _PATH, "certificates in PEM that those of origins must lead to; empty: the system's")
    verify: bool = setting(True, FLAG, "check the certificates of origins")
    connect_seconds: float = setting(3.0, seconds(0.05, 600), "time for a connection to an origin")
    first_byte_seconds: float = setting(30.0, seconds(0.05, 3600), "time from a request to the head of its response")
    idle_seconds: float = setting(30.0, seconds(0.05, 3600), "longest silence within a body")
    keep_connections: int = setting(64, integer(0, 10_000), "idle connections that are kept to an origin")
    keep_seconds: float = setting(30.0, seconds(0, 3600), "time for which they are kept")
    max_requests: int = setting(
        0,
        integer(0),
        "requests under way of one fetcher; 0: half of fetch.concurrency, or all where this is the only site",
    )
    max_failures: int = setting(3, integer(1, 1000), "failures in a row after which an origin is left alone")
    down_seconds: float = setting(5.0, seconds(0.1, 3600), "time for which it is")
    health_target: str = setting("", _TARGET, "path that is probed, and must be answered with 2xx or 3xx; empty: none")
    health_seconds: float = setting(5.0, seconds(0.1, 3600), "time between two probes of an origin")

    @property
    def name(self) -> str:
        """The first one of its names."""
        return self.names[0]


@dataclass(frozen=True)
class ProxySettings:
    """All settings.

    Attributes:
        certificates: tables of ``[[tls.certificates]]``.
        sites: tables of ``[[sites]]``.
    """

    router: RouterSettings = field(default_factory=RouterSettings)
    front: FrontSettings = field(default_factory=FrontSettings)
    access_log: AccessLogSettings = field(default_factory=AccessLogSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)
    certificates: tuple[Certificate, ...] = ()
    sites: tuple[SiteSettings, ...] = ()

    def site_of(self, host: str) -> SiteSettings | None:
        """Return the site that ``host``, in small letters and without a port, belongs to."""
        for name in (host, "*." + host.partition(".")[2], "*"):
            for site in self.sites:
                if name in site.names:
                    return site
        return None


@dataclass(frozen=True)
class _CertificateSettings:
    names: tuple[str, ...] = setting((), _SITE_NAMES, "hosts that it is for")
    chain: str = setting("", _text("a path", r"[^\0]+"), "the certificate, and those that lead to its issuer's, in PEM")
    key: str = setting("", _text("a path", r"[^\0]+"), "its private key, in PEM")


@dataclass(frozen=True)
class _Tables:
    router: RouterSettings = field(default_factory=RouterSettings)
    front: FrontSettings = field(default_factory=FrontSettings)
    access_log: AccessLogSettings = field(default_factory=AccessLogSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    fetch: FetchSettings = field(default_factory=FetchSettings)


def load_settings(path: str, options: Mapping[str, Any] | None = None) -> ProxySettings:
    """Return the settings of a TOML file, with those of ``options`` before them.

    Args:
        options: values by their keys, as ``front.https``; None: not given.

    Raises:
        ConfigError: one line for each value that is missing, unknown or wrong.
    """
    tables = dict(read_toml(path))
    values = Values({info.key: info for info in fields_of(_Tables(), has_flags=False)})
    problems = values.problems
    sites = _list_of(tables.pop("sites", []), SiteSettings, f"{path}: sites", ("names", "origins"), problems)
    tls = tables.pop("tls", {})
    listed: Any = []
    if isinstance(tls, dict) and set(tls) <= {"certificates"}:
        listed = tls.get("certificates", [])
    else:
        problems.append(f"{path}: tls: expected tables [[tls.certificates]] with names, chain and key")
    found = _list_of(listed, _CertificateSettings, f"{path}: tls.certificates", ("names", "chain", "key"), problems)
    for table, content in tables.items():
        if isinstance(content, dict):
            for name, value in content.items():
                values.take_key(path, f"{table}.{name}", value)
        else:
            values.unknown(path, table, values.known)
    for key, value in (options or {}).items():
        if value is not None:
            values.take_key("argument", key, value)
    _check_sites(path, sites, problems)
    settings = ProxySettings(
        certificates=tuple(Certificate(each.names, each.chain, each.key) for each in found), sites=tuple(sites)
    )
    for key, value in values.finish().items():
        table, _, name = key.partition(".")
        settings = replace(settings, **{table: replace(getattr(settings, table), **{name: value})})
    if wrong := _contradictions(path, settings):
        raise ConfigError("\n".join(wrong))
    return settings


def _list_of(listed: Any, kind: type[Any], shown: str, required: tuple[str, ...], problems: list[str]) -> list[Any]:
    """Return the tables of a list as instances of ``kind``; add to ``problems`` all that is wrong with them."""
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        problems.append(f"{shown}: expected tables, each with a head of its own in two brackets")
        return []
    made = []
    for position, table in enumerate(listed, 1):
        values = Values({info.key: info for info in fields_of(kind(), has_flags=False)})
        where = f"{shown}, number {position}"
        for name, value in table.items():
            values.take_key(where, name, value)
        values.problems += [f"{where}: {name} is missing" for name in required if name not in table]
        if values.problems:
            problems += values.problems
        else:
            made.append(kind(**values.values))
    return made


def _contradictions(path: str, settings: ProxySettings) -> list[str]:
    """Return a line for each fault of settings that are right one by one."""
    front, cache = settings.front, settings.cache
    wrong = []
    if front.https and not settings.certificates:
        wrong.append(
            f"{path}: front.https = {front.https!r} needs a certificate: add [[tls.certificates]] with names, chain "
            "and key, or set front.https = ''"
        )
    if cache.directory and cache.mongodb:
        wrong.append(f"{path}: a cache has one shared store: set cache.directory or cache.mongodb, not both")
    if front.admin and not front.admin_token and not front.admin.startswith(("127.", "localhost:", "[::1]:")):
        wrong.append(
            f"{path}: front.admin = {front.admin!r} can be reached by others: set front.admin_token, or a loopback "
            "address"
        )
    return wrong


def _check_sites(path: str, sites: list[SiteSettings], problems: list[str]) -> None:
    if not sites and not problems:
        problems.append(f"{path}: no site is given: add [[sites]] with names and origins")
    names = [name for site in sites for name in site.names]
    problems += [
        f"{path}: sites: {name!r} is in two of them" for name in sorted({n for n in names if names.count(n) > 1})
    ]
