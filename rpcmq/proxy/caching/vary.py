"""Selection of a stored response by the fields that its Vary names (RFC 9111 section 4.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b

from rpcmq.proxy.caching.dates import parse_date
from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.messages import Headers, list_members

__all__ = ["matches", "select", "selecting_fields", "variant_id", "varies_by_all"]

#: Fields whose members are told apart in no case, so that their case does not make a variant.
_ANY_CASE = frozenset(("accept-encoding", "accept-language", "accept-charset", "accept"))
_WEIGHT = re.compile(r"q\s*=\s*([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)
#: Longest name and value that are remembered in their normal form: clients choose values.
_SHORT = 256

Selecting = tuple[tuple[str, str | None], ...]


def varies_by_all(response: Headers) -> bool:
    """Return whether Vary says that no field of a request tells when the response can be used again."""
    value = response.joined("vary")
    return value is not None and "*" in list_members(value)


def selecting_fields(response: Headers, request: Headers) -> Selecting:
    """Return the fields of ``request`` that the Vary of ``response`` names, with their normalised values."""
    value = response.joined("vary")
    if not value:
        return ()
    return tuple((name, _normal(name, request)) for name in sorted({each.lower() for each in list_members(value)}))


def variant_id(selecting: Selecting) -> str:
    """Return letters and digits that are the same for the same selecting fields."""
    return blake2b(repr(selecting).encode(), digest_size=8).hexdigest() if selecting else "0"


def matches(entry: StoredResponse, request: Headers) -> bool:
    """Return whether ``request`` has the selecting fields that the request of ``entry`` had."""
    return all(_normal(name, request) == value for name, value in entry.selecting)


def select(stored: Iterable[StoredResponse], request: Headers, now: float) -> StoredResponse | None:
    """Return the stored response that ``request`` selects, the most recent by Date of several; None: there is none."""
    found = [entry for entry in stored if not entry.selecting or matches(entry, request)]
    if len(found) < 2:
        return found[0] if found else None
    return _latest(found, now)


def _latest(entries: Sequence[StoredResponse], now: float) -> StoredResponse:
    return max(entries, key=lambda entry: (parse_date(entry.headers.get("date"), now) or 0.0, entry.responded_at))


def _normal(name: str, request: Headers) -> str | None:
    value = request.joined(name)
    if value is None:
        return None
    return _normal_short(name, value) if len(name) + len(value) <= _SHORT else _normal_value(name, value)


@lru_cache(maxsize=4096)
def _normal_short(name: str, value: str) -> str:
    return _normal_value(name, value)


def _normal_value(name: str, value: str) -> str:
    """Return the value of a field in a form that is the same for values that mean the same by its definition."""
    if name not in _ANY_CASE:
        return ", ".join(" ".join(each.split()) for each in list_members(value)) if "," in value else value
    members = [_normal_member(each) for each in list_members(value.lower())]
    # The order of content codings means nothing: their weights do.
    return ", ".join(sorted(set(members)) if name == "accept-encoding" else members)


def _normal_member(member: str) -> str:
    before, semicolon, last = member.rpartition(";")
    found = _WEIGHT.fullmatch(last.strip()) if semicolon else None
    if found is None:
        return "".join(member.split()) if '"' not in member else member
    weight = f"{float(found[1]):g}"
    text = "".join(before.split())
    return text if weight == "1" else f"{text};q={weight}"
