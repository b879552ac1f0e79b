"""The trust policy of a process: which payloads it decodes, by topic. A TOML file, read once at start.

::

    window = 3600                       # seconds that a signed cast or event may be on its way
    skew = 30                           # seconds that clocks may differ
    remember = 250000                   # signed messages remembered, to recognise one that is repeated

    [[topics]]
    topics = ["compute.#"]              # patterns: "*" one word, "#" any number
    exchanges = [""]                    # default: the exchange without a name; ["*"]: all
    formats = ["json", "pickle"]        # default: what the process accepts
    allow = ["nova.objects:Instance"]   # globals that a pickle may name, beside those the process allows
    only = false                        # true: `allow` is all of them
    require = true                      # refuse what is not signed
    max_bytes = 1048576
    max_depth = 20
    keys = {api = ["json"]}             # formats by the key that signed; a key not named here: none

The first table whose pattern stands for the topic applies; to a topic without one applies what the process
is configured to accept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from dataclasses import replace as with_fields
from typing import Any

from rpcmq.errors import ConfigError, UsageError
from rpcmq.payload.allow_list import AllowList
from rpcmq.payload.codec import Codec
from rpcmq.payload.format import Format, accept_mask_with_json, accept_names
from rpcmq.toml import quoted, read_toml

__all__ = ["Policy", "Rule", "read_policy"]

_PATTERN_WORDS = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}


def _compiled(pattern: str) -> re.Pattern[str]:
    """Matches a topic with a dot behind it."""
    return re.compile("".join(_PATTERN_WORDS.get(word, re.escape(word) + r"\.") for word in pattern.split(".")))


@dataclass(frozen=True)
class Rule:
    """A rule: what is accepted for some topics.

    Attributes:
        topics, exchanges: what it is for.
        formats: mask of the formats; None: what the process accepts.
        allow: globals that a pickle may name.
        only: ``allow`` is all of them, whatever the process allows elsewhere.
        require: only what is signed.
        keys: formats by the id of the key that signed; None: any key may send all of ``formats``.
        max_bytes, max_depth: of a payload; None: the process's.
    """

    topics: tuple[str, ...] = ("#",)
    exchanges: tuple[str, ...] = ("",)
    formats: int | None = None
    allow: tuple[str, ...] = ()
    only: bool = False
    require: bool = False
    keys: Mapping[str, int] | None = None
    max_bytes: int | None = None
    max_depth: int | None = None
    _patterns: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", tuple(map(_compiled, self.topics)))

    def covers(self, exchange: str, topic: str) -> bool:
        """Return whether it is for this topic."""
        if exchange not in self.exchanges and "*" not in self.exchanges:
            return False
        return any(pattern.fullmatch(f"{topic}.") for pattern in self._patterns)

    def codec(self, base: Codec) -> Codec:
        """``base`` within what this rule accepts: never more formats than ``base``.

        Raises:
            UsageError: an entry of ``allow`` would undo the list, or a limit is out of range.
        """
        accepted = base.accepted if self.formats is None else base.accepted & self.formats
        allow = base.allow
        if self.only:
            allow = allow.restricted_to(*self.allow)
        elif self.allow:
            allow = allow.allowing(*self.allow)
        return with_fields(
            base,
            accepted=accepted,
            prefer=base.prefer if accepted & base.prefer.bit else Format.JSON,
            allow=allow,
            max_bytes=base.max_bytes if self.max_bytes is None else min(self.max_bytes, base.max_bytes),
            max_depth=base.max_depth if self.max_depth is None else self.max_depth,
        )


#: The rule for topics without one.
ANYTHING = Rule()


@dataclass(frozen=True)
class Policy:
    """An ordered list of rules, and the parameters of signed messages.

    Attributes:
        window: seconds that something signed without a deadline may be on its way.
        skew: seconds that clocks may differ.
        remember: signed messages remembered at a time.
    """

    rules: tuple[Rule, ...] = ()
    window: float = 3600.0
    skew: float = 30.0
    remember: int = 250_000

    def rule_for(self, exchange: str, topic: str) -> Rule:
        """The rule that applies to a topic."""
        return next((rule for rule in self.rules if rule.covers(exchange, topic)), ANYTHING)

    @property
    def needs_keys(self) -> bool:
        """Whether something must be signed to be accepted."""
        return any(rule.require or rule.keys is not None for rule in self.rules)

    def check(self, base: Codec) -> None:
        """Raise unless every rule can be applied to ``base``.

        Raises:
            ConfigError: names the rule and what is wrong.
        """
        for rule in self.rules:
            try:
                rule.codec(base).allow.load_all()
            except UsageError as error:
                raise ConfigError(f"trust policy, topics {list(rule.topics)}: {error}") from None


# --- reading -------------------------------------------------------------------------------------

_FIGURES = {"window": (1, 30 * 86400), "skew": (0, 3600), "remember": (1000, 100_000_000)}
_LIMITS = {"max_bytes": (4096, 1 << 40), "max_depth": (8, 500)}
_KNOWN = tuple(f.name for f in fields(Rule) if f.init)


class _Invalid(Exception):
    """Raised with a description of the error that begins with the key."""


def read_policy(path: str | os.PathLike[str]) -> Policy:
    """The policy in a file.

    Raises:
        ConfigError: it cannot be read, or names file, table, key and what was expected.
    """
    content = read_toml(path)
    where = ""
    try:
        known = (*_FIGURES, "topics")
        for key in content:
            if key not in known:
                raise _Invalid(f"{key}: unknown; known: {', '.join(known)}")
        figures = {key: _number(content, key, *_FIGURES[key]) for key in _FIGURES if key in content}
        tables = content.get("topics", [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            raise _Invalid("topics: expected tables [[topics]]")
        rules = []
        for number, table in enumerate(tables, 1):
            where = f"[[topics]] {number}: "
            rules.append(_rule(table))
    except _Invalid as error:
        raise ConfigError(f"{path}: {where}{error}") from None
    return Policy(tuple(rules), **figures)


def _rule(table: Mapping[str, Any]) -> Rule:
    for key in table:
        if key not in _KNOWN:
            raise _Invalid(f"{key}: unknown; known: {', '.join(_KNOWN)}")
    if "topics" not in table:
        raise _Invalid('topics is missing; ["#"] stands for all')
    values: dict[str, Any] = {"topics": _patterns(table)}
    if "exchanges" in table:
        values["exchanges"] = _texts(table, "exchanges")
    if "formats" in table:
        values["formats"] = _formats("formats", table["formats"])
    if "allow" in table:
        values["allow"] = _allow(table)
    if "keys" in table:
        keys = table["keys"]
        if not isinstance(keys, dict):
            raise _Invalid(f"keys = {keys!r}: expected a table of key ids and the formats each may send")
        values["keys"] = {name: _formats(f"keys.{name}", formats) for name, formats in keys.items()}
    for key in ("only", "require"):
        if not isinstance(table.get(key, False), bool):
            raise _Invalid(f"{key} = {table[key]!r}: expected true or false")
        values[key] = table.get(key, False)
    values |= {key: _number(table, key, *_LIMITS[key]) for key in _LIMITS if key in table}
    if values["only"] and "allow" not in values:
        raise _Invalid("only = true needs allow, be it empty")
    return Rule(**values)


def _texts(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = table[key]
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise _Invalid(f"{key} = {value!r}: expected a list of texts")
    return tuple(value)


def _patterns(table: Mapping[str, Any]) -> tuple[str, ...]:
    patterns = _texts(table, "topics")
    for pattern in patterns:
        if "" in pattern.split("."):
            raise _Invalid(f"topics: {pattern!r}: expected words between dots, none of them empty")
    return patterns


def _formats(key: str, value: object) -> int:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise _Invalid(f"{key} = {value!r}: expected a list of formats")
    try:
        return accept_mask_with_json(value)
    except UsageError as error:
        raise _Invalid(f"{key} = {value!r}: {error}") from None


def _allow(table: Mapping[str, Any]) -> tuple[str, ...]:
    value = table["allow"]
    if not isinstance(value, list):
        raise _Invalid(f"allow = {value!r}: expected a list of 'module:qualname'")
    try:
        AllowList(value)
    except UsageError as error:
        raise _Invalid(f"allow: {error}") from None
    return tuple(value)


def _number(table: Mapping[str, Any], key: str, low: int, high: int) -> Any:
    value: Any = table[key]
    whole = key in ("remember", *_LIMITS)
    right = isinstance(value, int) or (isinstance(value, float) and not whole)
    if isinstance(value, bool) or not right or not low <= value <= high:
        raise _Invalid(f"{key} = {value!r}: expected {'an integer' if whole else 'seconds'} from {low} to {high}")
    return value if whole else float(value)


# --- writing -------------------------------------------------------------------------------------


def to_toml(rules: tuple[Rule, ...]) -> Iterator[str]:
    """Rules as lines of a policy file, with what audits know: topics, exchanges, formats and globals."""
    for rule in rules:
        yield ""
        yield "[[topics]]"
        yield f"topics = {quoted(rule.topics)}"
        yield f"exchanges = {quoted(rule.exchanges)}"
        if rule.formats is not None:
            yield f"formats = {quoted(accept_names(rule.formats))}"
        if rule.only:
            yield "only = true"
            yield "allow = ["
            yield from (f"    {quoted(name)}," for name in rule.allow)
            yield "]"
