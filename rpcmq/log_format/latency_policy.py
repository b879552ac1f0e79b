"""The latency policy: a small file from which routers learn how long each method usually takes.

``rpcmq latency policy`` writes it from the dispatch log. It is JSON, version 1::

    {
      "policy": "rpcmq latency",
      "version": 1,
      "made_at": 1772431200.0,
      "valid_until": 1772517600.0,
      "min_samples": 1000,
      "methods": [
        {"exchange": "", "topic": "compute", "method": "boot", "samples": 48210,
         "newest": 1772431140.0, "valid_until": 1772517540.0,
         "p50_us": 8120, "p95_us": 15300, "p99_us": 41800,
         "p50_interval_us": [8010, 8230], "p95_interval_us": [15100, 15500], "p99_interval_us": [40300, 43900]}
      ]
    }

Times are seconds since 1970, durations microseconds. A reader takes all of it or nothing: what is not as written here
is refused with the reason, and so is a file that is too old or comes from the future. Of a file that is good, methods
whose own records have become too old are left out.

A reader that others wait for takes it in steps, a method each: :func:`policy_in_steps`.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rpcmq.log_format.bounded_json import BoundedJson, NotJson

__all__ = [
    "LARGEST_BYTES",
    "LONGEST_US",
    "PERCENTILES",
    "VERSION",
    "Entry",
    "Policy",
    "PolicyRefused",
    "as_json",
    "check_policy",
    "parse_policy",
    "policy_in_steps",
    "too_large",
]

VERSION = 1
_KIND = "rpcmq latency"
PERCENTILES = ("p50", "p95", "p99")
#: Longest plausible duration of a call: a day.
LONGEST_US = 86_400_000_000.0
#: Clocks of two machines may differ so much (seconds).
_SKEW = 60.0
#: Seconds since 1970 that no clock will show.
_FAR = 1e11
#: Members that a file has at most, beside its methods; ours has six.
_MEMBERS = 64
#: More samples than any log has.
_MANY = 1 << 62
#: Bytes of the largest file: 40,000 methods, of 400 bytes.
LARGEST_BYTES = 16 << 20


class PolicyRefused(Exception):
    """The file is not to be used; the text says which one and why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The usual durations of one method.

    Attributes:
        samples: records that it is known from.
        newest: when the window with the newest of them ended, seconds since 1970.
        valid_until: do not use it after this, seconds since 1970.
        us: microseconds of ``PERCENTILES``, which rise.
        intervals_us: what each lies between, with 95 %.
    """

    exchange: str
    topic: str
    method: str
    samples: int
    newest: float
    valid_until: float
    us: tuple[float, float, float]
    intervals_us: tuple[tuple[float, float], tuple[float, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Policy:
    """The content of a policy file.

    Attributes:
        made_at: when it was written, seconds since 1970.
        valid_until: when the last of the entries becomes too old.
        min_samples: no entry has fewer.
        entries: by exchange, topic and method.
    """

    made_at: float
    valid_until: float
    min_samples: int
    entries: Mapping[tuple[str, str, str], Entry]

    def at(self, now: float) -> Policy:
        """The policy without methods that are too old at ``now`` (seconds since 1970)."""
        fresh = {key: entry for key, entry in self.entries.items() if entry.valid_until >= now}
        return Policy(self.made_at, self.valid_until, self.min_samples, fresh)


def as_json(policy: Policy) -> dict[str, Any]:
    """Return the file's content as JSON data."""
    return {
        "policy": _KIND,
        "version": VERSION,
        "made_at": policy.made_at,
        "valid_until": policy.valid_until,
        "min_samples": policy.min_samples,
        "methods": [_as_json(policy.entries[key]) for key in sorted(policy.entries)],
    }


def _as_json(entry: Entry) -> dict[str, Any]:
    return {
        "exchange": entry.exchange,
        "topic": entry.topic,
        "method": entry.method,
        "samples": entry.samples,
        "newest": entry.newest,
        "valid_until": entry.valid_until,
        **{f"{name}_us": us for name, us in zip(PERCENTILES, entry.us, strict=True)},
        **{f"{name}_interval_us": list(us) for name, us in zip(PERCENTILES, entry.intervals_us, strict=True)},
    }


def parse_policy(data: bytes, name: object, now: float) -> Policy:
    """The policy in ``data``, without methods that are too old by now.

    Args:
        name: of the file, for errors.
        now: seconds since 1970.

    Raises:
        PolicyRefused: it is no such file, too large, of another version, damaged, too old, from the future, or has a
            value that cannot be.
    """
    entries: dict[tuple[str, str, str], Entry] = {}
    steps = policy_in_steps(data, name, now)
    while True:
        try:
            entry = next(steps)
        except StopIteration as end:
            made_at, valid_until, min_samples = end.value
            return Policy(made_at, valid_until, min_samples, entries)
        if entry is not None:
            entries[entry.exchange, entry.topic, entry.method] = entry


def policy_in_steps(data: bytes, name: object, now: float) -> Generator[Entry | None, None, tuple[float, float, int]]:
    """:func:`parse_policy` for somebody who has to do other things meanwhile.

    Each step yields a method that is not too old by now, or None, and takes some 20 us; one of a hostile file takes 2
    ms at most. None of them counts until all has been read: then it returns ``made_at``, ``valid_until`` and
    ``min_samples``.

    Raises:
        PolicyRefused: as of :func:`parse_policy`.
    """
    try:
        if len(data) > LARGEST_BYTES:
            raise _Invalid(too_large(len(data)))
        return (yield from _Reading(BoundedJson(data), now).in_steps())
    except NotJson as error:
        raise PolicyRefused(f"{name}: no JSON: {error}") from None
    except _Invalid as error:
        raise PolicyRefused(f"{name}: {error}") from None


def too_large(size: int) -> str:
    """The reason why a file of ``size`` bytes, more than ``LARGEST_BYTES``, is refused."""
    return (
        f"has {size} bytes, more than {LARGEST_BYTES}, the most of a latency policy; "
        "rpcmq latency policy --min-samples leaves out methods with few calls"
    )


def check_policy(policy: Policy) -> bytes:
    """The content of a file with ``policy``.

    Raises:
        ValueError: it has no entries, one that a reader would refuse, or too many for a file.
    """
    content = json.dumps(as_json(policy), indent=1).encode() + b"\n"
    try:
        parse_policy(content, "policy", policy.made_at)
    except PolicyRefused as error:
        raise ValueError(str(error)) from None
    return content


class _Invalid(Exception):
    """Raised with a description of invalid content."""


@dataclass(slots=True)
class _Reading:
    """A policy that is being read. Its members may come in any order."""

    source: BoundedJson
    now: float
    head: dict[str, Any] = field(default_factory=dict)
    #: The methods that were read.
    keys: set[tuple[str, str, str]] = field(default_factory=set)
    #: The entries with the fewest samples, the newest record, and the longest validity, with their places.
    fewest: tuple[int, int] = (_MANY, 0)
    newest: tuple[float, int] = (0.0, 0)
    longest: tuple[float, int] = (0.0, 0)

    def in_steps(self) -> Generator[Entry | None, None, tuple[float, float, int]]:
        source = self.source
        if source.next() != "{" or (source.take("{") and source.next() == "}"):
            raise _Invalid("no latency policy")
        more = True
        while more:
            name = source.value()
            source.take(":")
            if not isinstance(name, str) or name in self.head:
                raise _Invalid(f"{_shown(name)}: expected a name that is not there twice")
            if name == "methods" and source.next() == "[":
                self.head[name] = None
                yield from self._methods()
            else:
                self.head[name] = source.value()
                yield None
            if len(self.head) > _MEMBERS:
                raise _Invalid(f"more than {_MEMBERS} members")
            more = source.take(",}") == ","
        if source.next():
            raise NotJson("more after the end")
        return self._checked()

    def _methods(self) -> Generator[Entry | None, None, None]:
        source, place = self.source, 0
        more = source.take("[") and source.next() != "]"
        if not more:
            source.take("]")
        while more:
            try:
                entry = _entry(source.value())
                self._count(entry, place)
            except _Invalid as error:
                raise _Invalid(f"methods[{place}]: {error}") from None
            yield entry if entry.valid_until >= self.now else None
            place += 1
            more = source.take(",]") == ","

    def _count(self, entry: Entry, place: int) -> None:
        key = entry.exchange, entry.topic, entry.method
        if key in self.keys:
            raise _Invalid("a second one of that name")
        self.keys.add(key)
        self.fewest = min(self.fewest, (entry.samples, place))
        self.newest = max(self.newest, (entry.newest, place))
        self.longest = max(self.longest, (entry.valid_until, place))

    def _checked(self) -> tuple[float, float, int]:
        head = self.head
        if head.get("policy") != _KIND:
            raise _Invalid("no latency policy")
        if head.get("version") != VERSION:
            raise _Invalid(f"version {_shown(head.get('version'))}: expected {VERSION}")
        made_at = _number(head, "made_at", 0, _FAR)
        valid_until = _number(head, "valid_until", 0, _FAR)
        min_samples = _whole(head, "min_samples", 1)
        if not self.keys:
            raise _Invalid("methods: expected a list that is not empty")
        samples, place = self.fewest
        if samples < min_samples:
            raise _Invalid(f"methods[{place}]: samples = {samples}: expected an integer of at least {min_samples}")
        for (time, place), most in ((self.newest, made_at + _SKEW), (self.longest, valid_until)):
            if time > most:
                raise _Invalid(f"methods[{place}]: newest after made_at, or valid_until after that of the file")
        if made_at > self.now + _SKEW:
            raise _Invalid(f"made_at is {made_at - self.now:.0f} s in the future")
        if valid_until < self.now:
            raise _Invalid(f"too old: valid_until was {self.now - valid_until:.0f} s ago")
        return made_at, valid_until, min_samples


def _entry(source: object) -> Entry:
    if not isinstance(source, dict):
        raise _Invalid("expected an object")
    p50, p95, p99 = (_number(source, f"{name}_us", 0, LONGEST_US) for name in PERCENTILES)
    if not 0 < p50 <= p95 <= p99:
        raise _Invalid(f"percentiles {p50}, {p95}, {p99}: expected numbers above 0 that rise")
    first, second, third = (_interval(source, name) for name in PERCENTILES)
    newest = _number(source, "newest", 0, _FAR)
    return Entry(
        _text(source, "exchange"),
        _text(source, "topic"),
        _text(source, "method"),
        _whole(source, "samples", 1),
        newest,
        _number(source, "valid_until", newest, _FAR),
        (p50, p95, p99),
        (first, second, third),
    )


def _interval(source: Mapping[str, Any], name: str) -> tuple[float, float]:
    pair = source.get(f"{name}_interval_us")
    if not isinstance(pair, list) or len(pair) != 2:
        raise _Invalid(f"{name}_interval_us = {_shown(pair)}: expected two numbers")
    low, high = (_checked(f"{name}_interval_us", value, 0, LONGEST_US) for value in pair)
    if not low <= source[f"{name}_us"] <= high:
        raise _Invalid(f"{name}_interval_us = {_shown(pair)}: does not contain {source[f'{name}_us']}")
    return low, high


def _text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str):
        raise _Invalid(f"{name} = {_shown(value)}: expected text")
    return value


def _whole(source: Mapping[str, Any], name: str, low: int) -> int:
    value = source.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= _MANY:
        raise _Invalid(f"{name} = {_shown(value)}: expected an integer of at least {low}")
    return value


def _number(source: Mapping[str, Any], name: str, low: float, high: float) -> float:
    return _checked(name, source.get(name), low, high)


def _checked(name: str, value: object, low: float, high: float) -> float:
    # Not a number is between no two.
    if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
        raise _Invalid(f"{name} = {_shown(value)}: expected a number from {low:g} to {high:g}")
    return float(value)


def _shown(value: object) -> str:
    """A value of any size and depth, as an error can have it."""
    return _SHORT.repr(value)


_SHORT = reprlib.Repr()
_SHORT.maxother = _SHORT.maxstring = _SHORT.maxlong = 60
