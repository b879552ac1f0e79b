"""The tables ``[[mesh.peer]]``: a router to link to, its key, and the topics that pass between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from rpcmq.config.values import ValueType, WrongValue, is_connect_url

__all__ = ["EVERY_TOPIC", "PEER_TABLES", "Peer"]

#: The pattern of all topics in all exchanges.
EVERY_TOPIC = ("*/#",)
_MAX_WORDS = 32
#: Characters of a public key, in Z85.
_KEY_LENGTH = 40
_Z85 = frozenset("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#")


@dataclass(frozen=True)
class Peer:
    """A router to link to.

    Attributes:
        url: its endpoint.
        server_key: its public key in Z85; empty without CURVE.
        allow_in: patterns of the topics whose requests and events it may bring here.
        allow_out: patterns of the topics whose requests and events it may be brought from here.
    """

    url: str
    server_key: str = ""
    allow_in: tuple[str, ...] = EVERY_TOPIC
    allow_out: tuple[str, ...] = EVERY_TOPIC


def _is_key(value: object) -> bool:
    return isinstance(value, str) and (not value or (len(value) == _KEY_LENGTH and set(value) <= _Z85))


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str) or not value.isprintable():
        return False
    words = value.rpartition("/")[2].split(".")
    return "" not in words and len(words) <= _MAX_WORDS


def _are_patterns(value: object) -> bool:
    return isinstance(value, list | tuple) and all(map(_is_pattern, value))


_PATTERNS = "a list of topic patterns like 'compute.#', 'EXCHANGE/compute.#' or '*/#' (every topic of every exchange)"
_MEMBERS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "url": (is_connect_url, "a URL like 'tcp://10.0.0.7:7700'"),
    "server_key": (_is_key, "the router's public key, 40 characters of Z85, or ''"),
    "allow_in": (_are_patterns, _PATTERNS),
    "allow_out": (_are_patterns, _PATTERNS),
}


def _peer(number: int, table: object) -> Peer:
    where = f"[{number}]"
    if isinstance(table, Peer):
        table = {each.name: getattr(table, each.name) for each in fields(table)}
    if not isinstance(table, dict):
        raise WrongValue(where, table, "a table [[mesh.peer]]")
    values: dict[str, Any] = {}
    for name, value in table.items():
        if name not in _MEMBERS:
            raise WrongValue(f"{where}.{name}", value, f"no other keys than {', '.join(_MEMBERS)}")
        is_right, expected = _MEMBERS[name]
        if not is_right(value):
            raise WrongValue(f"{where}.{name}", value, expected)
        values[name] = tuple(value) if isinstance(value, list) else value
    if "url" not in values:
        raise WrongValue(where, table, "a table with url")
    return Peer(**values)


def _check_peers(value: object) -> tuple[Peer, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError
    found: dict[str, Peer] = {}
    for number, table in enumerate(value):
        peer = _peer(number, table)
        if peer.url in found:
            raise WrongValue(f"[{number}].url", peer.url, "another url than in the tables before")
        found[peer.url] = peer
    return tuple(found.values())


PEER_TABLES = ValueType("tables", "tables [[mesh.peer]] with url, and server_key, allow_in or allow_out", _check_peers)
