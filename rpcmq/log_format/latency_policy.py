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
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

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
#: Larger files are none of ours: a method takes 400 bytes.
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
        PolicyRefused: it is no such file, of another version, damaged, too old, from the future, or has a value that
            cannot be.
    """
    try:
        policy = _policy(_parsed(data))
        if policy.made_at > now + _SKEW:
            raise _Invalid(f"made_at is {policy.made_at - now:.0f} s in the future")
        if policy.valid_until < now:
            raise _Invalid(f"too old: valid_until was {now - policy.valid_until:.0f} s ago")
    except _Invalid as error:
        raise PolicyRefused(f"{name}: {error}") from None
    return policy.at(now)


def check_policy(policy: Policy) -> bytes:
    """The content of a file with ``policy``.

    Raises:
        ValueError: it has no entries, or one that a reader would refuse.
    """
    text = json.dumps(as_json(policy), indent=1)
    try:
        _policy(json.loads(text))
    except _Invalid as error:
        raise ValueError(str(error)) from None
    return text.encode() + b"\n"


class _Invalid(Exception):
    """Raised with a description of invalid content."""


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _Invalid(f"no JSON: {error}") from None


def _policy(source: object) -> Policy:
    if not isinstance(source, dict) or source.get("policy") != _KIND:
        raise _Invalid("no latency policy")
    if source.get("version") != VERSION:
        raise _Invalid(f"version {source.get('version')!r}: expected {VERSION}")
    made_at = _number(source, "made_at", 0, _FAR)
    valid_until = _number(source, "valid_until", 0, _FAR)
    min_samples = _whole(source, "min_samples", 1)
    methods = source.get("methods")
    if not isinstance(methods, list) or not methods:
        raise _Invalid("methods: expected a list that is not empty")
    entries: dict[tuple[str, str, str], Entry] = {}
    for place, each in enumerate(methods):
        try:
            entry = _entry(each, min_samples)
            key = entry.exchange, entry.topic, entry.method
            if key in entries:
                raise _Invalid("a second one of that name")
            if entry.newest > made_at + _SKEW or entry.valid_until > valid_until:
                raise _Invalid("newest after made_at, or valid_until after that of the file")
        except _Invalid as error:
            raise _Invalid(f"methods[{place}]: {error}") from None
        entries[key] = entry
    return Policy(made_at, valid_until, min_samples, entries)


def _entry(source: object, min_samples: int) -> Entry:
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
        _whole(source, "samples", min_samples),
        newest,
        _number(source, "valid_until", newest, _FAR),
        (p50, p95, p99),
        (first, second, third),
    )


def _interval(source: Mapping[str, Any], name: str) -> tuple[float, float]:
    pair = source.get(f"{name}_interval_us")
    if not isinstance(pair, list) or len(pair) != 2:
        raise _Invalid(f"{name}_interval_us = {pair!r}: expected two numbers")
    low, high = (_checked(f"{name}_interval_us", value, 0, LONGEST_US) for value in pair)
    if not low <= source[f"{name}_us"] <= high:
        raise _Invalid(f"{name}_interval_us = {pair!r}: does not contain {source[f'{name}_us']}")
    return low, high


def _text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str):
        raise _Invalid(f"{name} = {value!r}: expected text")
    return value


def _whole(source: Mapping[str, Any], name: str, low: int) -> int:
    value = source.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise _Invalid(f"{name} = {value!r}: expected an integer of at least {low}")
    return value


def _number(source: Mapping[str, Any], name: str, low: float, high: float) -> float:
    return _checked(name, source.get(name), low, high)


def _checked(name: str, value: object, low: float, high: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or not low <= value <= high:
        raise _Invalid(f"{name} = {value!r}: expected a number from {low:g} to {high:g}")
    return float(value)
