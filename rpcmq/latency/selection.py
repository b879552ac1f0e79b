"""Selection of records: a directory, a range of time, values of dimensions; and its textual form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rpcmq.errors import UsageError
from rpcmq.latency.presence import is_log
from rpcmq.latency.schema import DELIVERIES

__all__ = [
    "FILTERS",
    "Selection",
    "check_dimensions",
    "columns_of_trace",
    "parse_filters",
    "parse_selection",
    "parse_time",
]

#: Dimensions that may be asked for by value.
FILTERS = ("router", "exchange", "topic", "method", "kind", "server", "client", "outcome", "error_class")
#: Dimensions in which a call and its deliveries may differ, but for the server: of a server it is known what it did.
_OWN = ("kind", "outcome", "error_class")
_AGO = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86_400}
_SELECTION = re.compile(r"(?P<path>.+?)(?:@(?P<since>[^@,]*?)\.\.(?P<until>[^@,]*?))?(?P<filters>(?:,[a-z_]+=[^,]*)*)")


@dataclass(frozen=True, slots=True)
class Selection:
    """Records of a dispatch log, or cells that were made of one.

    Attributes:
        path: the directory.
        since, until: range of receive times, seconds since 1970, ``until`` itself not in it; None: no limit.
        where: dimension -> value.
        deliveries: whether with those that another one of the same call has overtaken, which are no calls by
            themselves; also where their kind is asked for.
    """

    path: Path
    since: float | None = None
    until: float | None = None
    where: Mapping[str, str] = field(default_factory=dict)
    deliveries: bool = False

    @property
    def left_out(self) -> tuple[str, ...]:
        """The kinds of records that are not selected."""
        return () if self.deliveries or "kind" in self.where else DELIVERIES

    @property
    def has_whole_calls(self) -> bool:
        """Return whether calls that several servers had can be told of."""
        return not self.without_whole_calls

    @property
    def without_whole_calls(self) -> str:
        """The reason for which nothing can be said of calls that several servers had; empty: it can."""
        own = [name for name in _OWN if name in self.where]
        return f"{' and '.join(own)} select records, and a call and its deliveries differ in that" if own else ""

    @property
    def is_log(self) -> bool:
        """Whether the directory is a dispatch log rather than one of cells."""
        return is_log(self.path)


def parse_selection(text: str, now: float) -> Selection:
    """The selection that ``DIR[@SINCE..UNTIL][,NAME=VALUE]...`` says.

    Args:
        now: seconds since 1970.

    Raises:
        UsageError: it says none, or there is no such directory; names the part that is wrong.
    """
    found = _SELECTION.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r}: expected DIR[@SINCE..UNTIL][,NAME=VALUE], such as log@-2h..-1h,router=r1")
    path = Path(found["path"])
    if not path.is_dir():
        whole = f"{text!r}: " if text != str(path) else ""
        raise UsageError(f"{whole}{str(path)!r} is no directory")
    since = parse_time(found["since"], now) if found["since"] else None
    until = parse_time(found["until"], now) if found["until"] else None
    if since is not None and until is not None and since >= until:
        raise UsageError(f"{text!r}: {found['since']!r} is not before {found['until']!r}")
    return Selection(path, since, until, parse_filters(found["filters"].split(",")[1:]))


def parse_filters(texts: Iterable[str]) -> dict[str, str]:
    """Dimension -> value, of texts such as ``router=r1``.

    Raises:
        UsageError: one is not of that form, or names no dimension, or one that was named before.
    """
    filters: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or name not in FILTERS:
            raise UsageError(f"{text!r}: expected NAME=VALUE with one of {', '.join(FILTERS)}")
        if name in filters:
            raise UsageError(f"{text!r}: {name} was given before, as {filters[name]!r}")
        filters[name] = value
    return filters


def check_dimensions(names: Iterable[str]) -> None:
    """Raise unless all are dimensions.

    Raises:
        UsageError: says which are not.
    """
    if unknown := set(names) - set(FILTERS):
        raise UsageError(f"{', '.join(sorted(unknown))}: expected one of {', '.join(FILTERS)}")


def parse_time(text: str, now: float) -> float:
    """Seconds since 1970 of ``2026-03-02T06:00`` (UTC unless it says), ``-90min`` or ``90min ago``, ``now``, a number.

    Args:
        now: seconds since 1970.

    Raises:
        UsageError: it is none of these.
    """
    if text == "now":
        return now
    if ago := re.fullmatch(r"(?=-|.* ago$)-?(\d+(?:\.\d+)?)(s|min|m|h|d)(?: ago)?", text):
        return now - float(ago[1]) * _AGO[ago[2]]
    if re.fullmatch(r"\d{9,11}(?:\.\d+)?", text):
        return float(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text!r} is no time; expected one such as 2026-03-02T06:00 (UTC), -90min (before now) or now"
        ) from None
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def columns_of_trace(id: str) -> dict[str, str | int]:
    """Return the column values that identify the records of one trace, or of one call.

    Args:
        id: 32 hexadecimal digits; or a correlation id: the caller's router, link and sequence, with colons between.

    Raises:
        UsageError: ``id`` is neither.
    """
    if re.fullmatch("[0-9a-fA-F]{32}", id):
        return {"trace_id": id.lower()}
    if found := re.fullmatch(r"(\d+):(-?\d+):(-?\d+)", id):
        return dict(zip(("origin_router", "origin_link", "origin_seq"), map(int, found.groups()), strict=True))
    raise UsageError(f"{id!r}: expected a trace id of 32 hexadecimal digits, or router:link:seq of the correlation id")
