"""The directory of authorised keys: a file for each, read again when it changes.

::

    name = "node-7"                     # as the file is called: node-7.toml
    public = "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID"
    owner = "cloud-ops@example.org"     # optional: whom to ask about it
    expires = 2027-01-01T00:00:00Z      # optional
    identities = ["node-7"]             # optional: which identities its processes may have
    max_links = 10                      # optional
    messages_per_second = 1000          # optional
    formats = ["json", "pickle"]        # optional: what its payloads may be

    [[rights]]
    verbs = ["serve"]
    topics = ["compute", "compute.node-7"]
    exchanges = ["nova"]                # optional: ["*"] is all; without it: the one without a name
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from time import time

from rpcmq.core.common.right_tables import read_right, read_texts, right_as_toml, shown_right
from rpcmq.core.router.rights import KNOWN_VERBS, MESH_VERB, Key, Right
from rpcmq.errors import ConfigError, UsageError
from rpcmq.payload.format import accept_mask_with_json, accept_names
from rpcmq.toml import quoted
from rpcmq.transport.curve import is_key
from rpcmq.transport.key_files import is_name, read_trusted_toml

__all__ = ["AUTHORIZED", "ROUTER_KEY", "AuthorizedKey", "AuthorizedKeys", "mixed_rights", "read_authorised"]

#: In the folder of keys: the router's own pair, and the folder with those who may connect.
ROUTER_KEY = "router.key"
AUTHORIZED = "authorized"

_KNOWN: dict[str, type | tuple[type, ...]] = {
    "name": str, "public": str, "owner": str, "expires": datetime, "identities": list, "max_links": int,
    "messages_per_second": (int, float), "formats": list, "rights": list,
}  # fmt: skip
#: Resolution of file times (seconds): writes within it may get the same time.
_SETTLED = 2.0


@dataclass(frozen=True)
class AuthorizedKey:
    """An authorised key, and when it expires (seconds since the epoch; None: never)."""

    key: Key
    until: float | None

    def is_valid(self, wall: float) -> bool:
        """Return whether it has not expired at the time ``wall``."""
        return self.until is None or wall < self.until


def _formats(path: str, value: object) -> int:
    names = read_texts(path, "formats", value)
    try:
        return accept_mask_with_json(names)
    except UsageError as error:
        raise ConfigError(f"{path}: formats = {value!r}: {error}") from None


def _rights(path: str, tables: list[object]) -> tuple[Right, ...]:
    rights = tuple(read_right(path, f"rights[{number}]", table, KNOWN_VERBS) for number, table in enumerate(tables))
    if problem := mixed_rights(rights):
        raise ConfigError(f"{path}: rights: {problem}")
    return rights


def mixed_rights(rights: Iterable[Right]) -> str:
    """Say why one key cannot have these rights; empty if it can."""
    verbs = frozenset().union(*(right.verbs for right in rights))
    others = sorted(verbs - {MESH_VERB})
    if MESH_VERB not in verbs or not others:
        return ""
    return f"a key with the right {MESH_VERB!r} is a router's and can have no other ({', '.join(others)})"


def read_authorised(path: str) -> AuthorizedKey:
    """The key that the file ``path`` authorises.

    Raises:
        ConfigError: it cannot be read, or something in it is missing, unknown or wrong; names file and key.
    """
    values = read_trusted_toml(path, _KNOWN)
    for needed in ("name", "public", "rights"):
        if needed not in values:
            raise ConfigError(f"{path}: {needed} is missing")
    stem = os.path.basename(path).removesuffix(".toml")
    if not is_name(values["name"]) or values["name"] != stem:
        raise ConfigError(f"{path}: name = {values['name']!r}: expected {stem!r}, as the file is called")
    if not is_key(values["public"]):
        raise ConfigError(f"{path}: public: {values['public']!r} is no key; a key has 40 characters of Z85")
    for name in ("max_links", "messages_per_second"):
        if not 0 <= values.get(name, 0) < inf:
            raise ConfigError(f"{path}: {name} = {values[name]!r}: expected 0 or more")
    expires: datetime | None = values.get("expires")
    if expires is not None and expires.tzinfo is None:
        raise ConfigError(f"{path}: expires = {expires}: expected a time with its offset, as 2027-01-01T00:00:00Z")
    try:
        until = expires.timestamp() if expires is not None else None
        shown = expires.astimezone(UTC).isoformat() if expires is not None else ""
    except (OverflowError, ValueError):
        raise ConfigError(f"{path}: expires = {expires}: is out of the range of clocks") from None
    identities = read_texts(path, "identities", values["identities"]) if "identities" in values else ()
    key = Key(
        name=values["name"],
        public=values["public"],
        rights=_rights(path, values["rights"]),
        identities=identities,
        owner=values.get("owner", ""),
        expires=shown,
        max_links=values.get("max_links"),
        messages_per_second=values.get("messages_per_second"),
        formats=_formats(path, values["formats"]) if "formats" in values else None,
    )
    return AuthorizedKey(key, until)


def _is_there(entry: os.DirEntry[str]) -> bool:
    try:
        return bool(entry.stat())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # to be read, and what is wrong to be said


def _look(entry: os.DirEntry[str]) -> tuple[tuple[int, ...], float]:
    """Return a file's signature, which changes when the file does, and its modification time (epoch seconds)."""
    try:
        status = entry.stat()
    except OSError as error:
        return (-(error.errno or 1),), 0.0
    return (status.st_dev, status.st_ino, status.st_mode, status.st_mtime_ns, status.st_ctime_ns, status.st_size), (
        status.st_ctime
    )


class AuthorizedKeys:
    """The authorised keys in ``directory``.

    A file that is gone is a key that is revoked. One that has become unreadable or wrong leaves its key as
    it was, so that an edit half done cuts nobody off; what is wrong is said.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._files: dict[str, tuple[int, ...]] = {}
        self._keys: dict[str, AuthorizedKey] = {}
        self._valid: dict[str, Key] = {}
        #: File that was refused because another has its key -> that other one, and the key.
        self._twins: dict[str, tuple[str, str]] = {}
        self._listed: str = ""

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def all(self) -> Mapping[str, AuthorizedKey]:
        """Each key by file, expired ones too."""
        return self._keys

    def read(self) -> list[str]:
        """Read new and changed files, drop missing ones; return the problems."""
        try:
            # A link to a file that is gone is gone, too.
            entries = {e.path: e for e in os.scandir(self.directory) if e.name.endswith(".toml") and _is_there(e)}
        except OSError as error:
            problem = f"{self.directory}: cannot be read: {error.strerror}"
            problems = [problem] if problem != self._listed else []
            self._listed = problem
            return problems
        self._listed = ""
        problems = []
        for path in [path for path in self._files if path not in entries]:
            del self._files[path]
            self._keys.pop(path, None)
            self._twins.pop(path, None)
        for path, (other, public) in list(self._twins.items()):
            if other not in self._keys or self._keys[other].key.public != public:
                # The conflicting file is gone, as when a file was renamed by a copy.
                self._files[path] = ()
        found: dict[str, AuthorizedKey] = {}
        young: list[str] = []
        for path in sorted(entries):
            seen, written_at = _look(entries[path])
            if self._files.get(path) == seen:
                continue
            self._files[path] = seen
            self._twins.pop(path, None)
            try:
                found[path] = read_authorised(path)
            except ConfigError as error:
                problems.append(str(error))
            else:
                if time() - written_at < _SETTLED:
                    young.append(path)
        problems += self._take(found)
        for path in young:
            if path not in self._twins:
                # What is written in the same instant would not show: to be read again.
                self._files[path] = ()
        return problems

    def _take(self, found: Mapping[str, AuthorizedKey]) -> list[str]:
        """Replace the keys by ``found``; return the conflicts."""
        # All at once: two of them may have exchanged theirs.
        owners = {
            known.key.public: path
            for path, known in self._keys.items()
            if path not in found or found[path].key.public == known.key.public
        }
        problems: list[str] = []
        for path, new in found.items():
            other = owners.setdefault(new.key.public, path)
            if other == path:
                continue
            self._twins[path] = other, new.key.public
            text = f"{path}: public: is the key of {other}, too; each process or host needs its own"
            problems.append(text)
        for path, new in found.items():
            before = self._keys.get(path)
            if path not in self._twins:
                self._keys[path] = new
            elif before is not None and owners.setdefault(before.key.public, path) != path:
                # Not even the key that it had: another has it now.
                del self._keys[path]
        return problems

    def changed(self, wall: float) -> bool:
        """Return whether the set of valid keys has changed at the time ``wall`` since the last call."""
        valid = {a.key.public: a.key for a in self._keys.values() if a.is_valid(wall)}
        if valid == self._valid:
            return False
        self._valid = valid
        return True

    @property
    def valid(self) -> Mapping[str, Key]:
        """The keys that may connect, by public key."""
        return self._valid

    def refusal_reason(self, public: str) -> str:
        """Return why the key ``public`` may not connect; empty if it may."""
        if public in self._valid:
            return ""
        expired = (a.key.name for a in self._keys.values() if a.key.public == public)
        name = next(expired, None)
        return f"key {name!r} has expired" if name is not None else "unknown key"


def summary(key: Key) -> str:
    """The rights of ``key``, for readers: ``call,cast compute.#; serve [nova] image``."""
    return "; ".join(shown_right(right, KNOWN_VERBS) for right in key.rights) or "none"


def to_toml(key: Key, until: datetime | None) -> str:
    """The file that authorises ``key``."""
    lines = [f"name = {quoted(key.name)}", f"public = {quoted(key.public)}"]
    if key.owner:
        lines.append(f"owner = {quoted(key.owner)}")
    if until is not None:
        lines.append(f"expires = {until.astimezone(UTC).strftime('%Y-%m-%dT%H:%M:%SZ')}")
    if key.identities:
        lines.append(f"identities = {quoted(key.identities)}")
    if key.max_links is not None:
        lines.append(f"max_links = {key.max_links}")
    if key.messages_per_second is not None:
        lines.append(f"messages_per_second = {key.messages_per_second:g}")
    if key.formats is not None:
        lines.append(f"formats = {quoted(accept_names(key.formats))}")
    if not key.rights:
        lines.append("rights = []")
    for right in key.rights:
        lines += right_as_toml(right, KNOWN_VERBS)
    return "\n".join(lines) + "\n"
