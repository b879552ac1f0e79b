"""Tokens: who has one may do what its rights say. A file has their hashes, and is read again when it changes.

::

    [[token]]
    name = "web"
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    expires = 2027-01-01T00:00:00Z        # optional
    origins = ["https://app.example.org"] # optional: pages that may use it, of those that may connect at all
    messages_per_second = 500             # optional: of all its connections
    takes_context = false                 # optional: whether its messages may bring a request context
    context = {user_id = "web"}           # optional: request context of all its calls, before what they bring

    [[token.rights]]
    verbs = ["call", "cast"]
    topics = ["compute.#"]
    exchanges = ["nova"]                  # optional: ["*"] is all; without it: the one without a name

A token is 256 random bits, so a plain hash of it gives nothing away.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from math import inf
from pathlib import Path
from re import fullmatch
from secrets import token_hex, token_urlsafe
from time import time
from typing import Any

from rpcmq.adapters.rights import Right, read_right, read_texts, right_as_toml
from rpcmq.adapters.settings import is_name, quoted, read_trusted_toml
from rpcmq.errors import ConfigError

__all__ = ["VERBS", "Token", "TokenFile", "edited_tokens", "hash_of", "new_secret", "read_tokens"]

VERBS = ("call", "cast", "fanout", "publish", "subscribe")
"""The verbs that a token's right can have."""

_PREFIX = "rpcmqt_"
_KNOWN: Mapping[str, type | tuple[type, ...]] = {
    "name": str, "sha256": str, "expires": datetime, "origins": list, "messages_per_second": (int, float),
    "takes_context": bool, "context": dict, "rights": list,
}  # fmt: skip
#: Resolution of file times (seconds): writes within it may get the same time.
_SETTLED = 2.0


@dataclass(frozen=True)
class Token:
    """A token, by its hash.

    Attributes:
        name: unique; for the log and for ``revoke``.
        sha256: of the token itself, in hexadecimal.
        rights: what it may do; nothing else is allowed.
        expires: seconds since the epoch; None: never.
        origins: pages that may use it; None: all that may connect.
        messages_per_second: of all its connections; 0: no limit.
        takes_context: whether its messages may bring a request context.
        context: request context of all its calls, before what they bring.
    """

    name: str
    sha256: str = field(repr=False)
    rights: tuple[Right, ...] = ()
    expires: float | None = None
    origins: tuple[str, ...] | None = None
    messages_per_second: float = 0.0
    takes_context: bool = False
    context: Mapping[str, Any] = field(default_factory=dict)

    def is_valid(self, wall: float) -> bool:
        """Return whether it has not expired at the time ``wall`` (seconds since the epoch)."""
        return self.expires is None or wall < self.expires

    def allows(self, verb: str, exchange: str, name: str) -> bool:
        """Return whether a right covers ``verb`` on ``name``: a topic, for ``subscribe`` a pattern."""
        return any(right.allows(verb, exchange, name) for right in self.rights)


class TokenFile:
    """The tokens of the file ``path``.

    One that becomes wrong, or is gone, leaves the tokens as they were, so that an edit half done cuts nobody off;
    what is wrong is said.

    Raises:
        ConfigError: the file is missing or wrong when this is made.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._seen = self._look()
        self._take(read_tokens(path))

    def __len__(self) -> int:
        return len(self._by_name)

    def refresh(self) -> str:
        """Read the file again if it has changed; return what is wrong with it, once for each change."""
        seen = self._look()
        if seen == self._seen:
            return ""
        self._seen = seen
        try:
            self._take(read_tokens(self.path))
        except ConfigError as error:
            return str(error)
        return ""

    def by_secret(self, secret: str) -> Token | None:
        """The token ``secret``, if it is one, expired or not."""
        return self._by_hash.get(hash_of(secret))

    def by_name(self, name: str) -> Token | None:
        """The token of this name, expired or not."""
        return self._by_name.get(name)

    def _take(self, tokens: Sequence[Token]) -> None:
        self._by_hash = {token.sha256: token for token in tokens}
        self._by_name = {token.name: token for token in tokens}

    def _look(self) -> tuple[int, ...]:
        """Return a signature of the file, which changes when the file does."""
        try:
            status = os.stat(self.path)
        except OSError as error:
            return (-(error.errno or 1),)
        signature = (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_size)
        # What is written in the same instant would not show: it is read again until the instant is over.
        return (*signature, int(time())) if time() - status.st_ctime < _SETTLED else signature


def hash_of(secret: str) -> str:
    """Return the hash by which the token ``secret`` stands in the file."""
    return sha256(secret.encode(errors="surrogatepass")).hexdigest()


def new_secret() -> str:
    """Make a token: a prefix that scanners for secrets can find, and 256 random bits."""
    return _PREFIX + token_urlsafe(32)


def read_tokens(path: str) -> list[Token]:
    """Return the tokens of the file ``path``.

    Raises:
        ConfigError: it cannot be read, others can change it, or something in it is missing, unknown or wrong.
    """
    if not os.path.exists(path):
        hint = f"make it: rpcmq gateway token add NAME --tokens {path} --allow 'call:TOPIC'"
        raise ConfigError(f"{path}: there is no such file of tokens; {hint}")
    tokens: list[Token] = []
    for number, table in enumerate(read_trusted_toml(path, {"token": list}).get("token", [])):
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: token[{number}] = {table!r}: expected a table [[token]]")
        token = _token(path, f"token[{number}]", table)
        for other in tokens:
            if other.name == token.name or other.sha256 == token.sha256:
                what = "name" if other.name == token.name else "sha256"
                raise ConfigError(f"{path}: token[{number}].{what}: another token has it, too")
        tokens.append(token)
    return tokens


@contextmanager
def edited_tokens(path: str) -> Iterator[list[Token]]:
    """Give the list of tokens of the file ``path``, to be changed within the block, and write it afterwards.

    Two commands take turns, and readers see the file as it was or as it will be.

    Raises:
        ConfigError: it is wrong, or cannot be written.
    """
    try:
        lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tokens = read_tokens(path) if os.path.exists(path) else []
        yield tokens
        _write(path, tokens)
    finally:
        os.close(lock)


def _write(path: str, tokens: Sequence[Token]) -> None:
    begun = f"{path}.{token_hex(8)}.tmp"
    lines = ["# Tokens of rpcmq gateway, by their hashes. A running gateway notices changes by itself."]
    for token in tokens:
        lines += ["", *_as_toml(token)]
    try:
        descriptor = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(descriptor)
            if os.path.exists(path):
                former = os.stat(path)
                os.fchmod(descriptor, former.st_mode & 0o7755)
                if os.geteuid() == 0:
                    os.fchown(descriptor, former.st_uid, former.st_gid)
        os.replace(begun, path)
    except OSError as error:
        Path(begun).unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _token(path: str, where: str, table: Mapping[str, Any]) -> Token:
    for key, value in table.items():
        if key not in _KNOWN:
            raise ConfigError(f"{path}: {where}.{key}: unknown; known: {', '.join(_KNOWN)}")
        kinds = _KNOWN[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
            expected = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise ConfigError(f"{path}: {where}.{key} = {value!r}: expected {expected}")
    for needed in ("name", "sha256", "rights"):
        if needed not in table:
            raise ConfigError(f"{path}: {where}.{needed} is missing")
    if not is_name(table["name"]):
        text = "expected up to 64 letters, digits, '.', '_' and '-'"
        raise ConfigError(f"{path}: {where}.name = {table['name']!r}: {text}")
    if not fullmatch("[0-9a-f]{64}", table["sha256"]):
        raise ConfigError(f"{path}: {where}.sha256: expected 64 hexadecimal digits, lower case")
    rate = table.get("messages_per_second", 0.0)
    if not 0 <= rate < inf:
        raise ConfigError(f"{path}: {where}.messages_per_second = {rate!r}: expected 0 or more")
    return Token(
        name=table["name"],
        sha256=table["sha256"],
        rights=tuple(
            read_right(path, f"{where}.rights[{number}]", right, VERBS) for number, right in enumerate(table["rights"])
        ),
        expires=_expires(path, where, table.get("expires")),
        origins=read_texts(path, f"{where}.origins", table["origins"]) if "origins" in table else None,
        messages_per_second=float(rate),
        takes_context=table.get("takes_context", False),
        context=_context(path, where, table.get("context", {})),
    )


def _expires(path: str, where: str, value: datetime | None) -> float | None:
    if value is None:
        return None
    if value.tzinfo is None:
        raise ConfigError(
            f"{path}: {where}.expires = {value}: expected a time with its offset, as 2027-01-01T00:00:00Z"
        )
    try:
        return value.timestamp()
    except (OverflowError, ValueError):
        raise ConfigError(f"{path}: {where}.expires = {value}: is out of the range of clocks") from None


def _context(path: str, where: str, value: dict[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(value)
    except TypeError:
        raise ConfigError(f"{path}: {where}.context: expected texts, numbers, booleans, lists and tables") from None
    return value


def _as_toml(token: Token) -> list[str]:
    lines = ["[[token]]", f"name = {quoted(token.name)}", f"sha256 = {quoted(token.sha256)}"]
    if token.expires is not None:
        lines.append(f"expires = {datetime.fromtimestamp(token.expires, UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    if token.origins is not None:
        lines.append(f"origins = {quoted(token.origins)}")
    if token.messages_per_second:
        lines.append(f"messages_per_second = {token.messages_per_second:g}")
    if token.takes_context:
        lines.append("takes_context = true")
    if token.context:
        lines.append(f"context = {_inline(token.context)}")
    if not token.rights:
        lines.append("rights = []")
    for right in token.rights:
        lines += right_as_toml(right, VERBS, "token.rights")
    return lines


def _inline(value: Any) -> str:
    """Return a value of a context as TOML."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)} = {_inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    return json.dumps(value) if not isinstance(value, float) else repr(value)
