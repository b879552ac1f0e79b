"""Key files: a key pair in TOML, readable by its owner only.

A router's has ``public`` and ``secret``; a client's also ``name`` and ``router``, the public key of the
router that it trusts. It may have a table ``routers`` with the public keys of further ones, by their urls.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from rpcmq.errors import ConfigError
from rpcmq.toml import parse_toml, quoted
from rpcmq.transport.curve import Curve, is_key, public_of

__all__ = [
    "KeyFile",
    "check_folder",
    "check_private",
    "curve_for",
    "is_name",
    "read_key_file",
    "read_trusted_toml",
    "write_private",
]

#: Longest key file (bytes); usual ones have some hundreds.
_MAX_BYTES = 1 << 20
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class KeyFile:
    """A key pair, in Z85.

    Attributes:
        public, secret: the pair.
        name: of a client's key; the router's has none.
        router: of a client's: the public key of the router.
        routers: of a client's: url -> the public key of another router of the mesh.
    """

    public: str
    secret: str = field(repr=False)
    name: str = ""
    router: str = ""
    routers: Mapping[str, str] = field(default_factory=dict)

    def text(self, *comments: str) -> str:
        """As the file's content, below ``comments``."""
        lines = [f"# {comment}" for comment in comments]
        values = {"name": self.name, "public": self.public, "secret": self.secret, "router": self.router}
        lines += [f"{key} = {quoted(value)}" for key, value in values.items() if value]
        if self.routers:
            lines += ["", "[routers]", *(f"{quoted(url)} = {quoted(key)}" for url, key in self.routers.items())]
        return "\n".join(lines) + "\n"


def curve_for(keys: KeyFile | None) -> Curve | None:
    """Return the CURVE parameters of a client's socket; None without keys."""
    return Curve(keys.public, keys.secret, keys.router, server_keys=keys.routers) if keys is not None else None


def is_name(text: object) -> bool:
    """Return whether ``text`` can be the name of a key: up to 64 letters, digits, ``.``, ``_`` and ``-``."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None


def _read(path: str | os.PathLike[str]) -> bytes:
    """Return the content of the file ``path``, which only its owner may be able to change."""
    try:
        # Opening a FIFO would block.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigError(f"{path}: is no regular file")
            if status.st_mode & 0o022:
                raise ConfigError(f"{path}: mode {stat.S_IMODE(status.st_mode):04o}: others can change it: chmod go-w")
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > _MAX_BYTES:
        raise ConfigError(f"{path}: has more than {_MAX_BYTES} bytes: not a key file")
    return content


def read_trusted_toml(path: str | os.PathLike[str], keys: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    """The values of a TOML file that has no other keys than ``keys``, each of its type.

    Raises:
        ConfigError: it cannot be read, others can change it, it is no TOML, or has a key that is unknown or
            of another type.
    """
    content = parse_toml(path, _read(path))
    for key, value in content.items():
        if key not in keys:
            raise ConfigError(f"{path}: {key}: unknown; known: {', '.join(keys)}")
        if not isinstance(value, keys[key]) or isinstance(value, bool):
            kinds = keys[key]
            names = " or ".join(kind.__name__ for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
            raise ConfigError(f"{path}: {key} = {value!r}: expected {names}")
    return content


def check_private(path: str | os.PathLike[str]) -> None:
    """Raise unless only its owner can read or change ``path``.

    Raises:
        ConfigError: others can, or it cannot be looked at.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(f"{path}: is no regular file")
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise ConfigError(f"{path}: has a secret key and mode {mode:04o}; nobody but its owner may read it: chmod 600")


def check_folder(path: str | os.PathLike[str]) -> None:
    """Raise unless only its owner can put files into the folder ``path``.

    Raises:
        ConfigError: others can, or there is no such folder.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; `rpcmq init` makes a folder of keys") from None
    if not stat.S_ISDIR(status.st_mode):
        raise ConfigError(f"{path}: expected a folder of keys, as `rpcmq init` makes it")
    if status.st_mode & 0o022:
        mode = stat.S_IMODE(status.st_mode)
        raise ConfigError(f"{path}: mode {mode:04o}: others could authorise keys there: chmod 700")


def read_key_file(path: str | os.PathLike[str], client: bool) -> KeyFile:
    """The key pair in ``path``.

    Args:
        client: whether it must be a client's, with ``name`` and ``router``.

    Raises:
        ConfigError: it cannot be read, others can read it, or something in it is missing or wrong.
    """
    check_private(path)
    known: dict[str, type] = dict.fromkeys(
        ("name", "public", "secret", "router") if client else ("public", "secret"), str
    )
    values = read_trusted_toml(path, known | ({"routers": dict} if client else {}))
    for url, public in values.get("routers", {}).items():
        if not is_key(public):
            raise ConfigError(f"{path}: routers: {url!r} = {public!r} is no key; a key has 40 characters of Z85")
    for key in known:
        if key not in values:
            if client and "secret" in values and "name" not in values and "router" not in values:
                raise ConfigError(f"{path}: has no `name` and no `router`: it is a router's own key, not a process's")
            raise ConfigError(f"{path}: {key} is missing")
        if key != "name" and not is_key(values[key]):
            shown = "it" if key == "secret" else repr(values[key])
            counted = "" if len(values[key]) == 40 else f", and this has {len(values[key])}"
            raise ConfigError(f"{path}: {key}: {shown} is no key; a key has 40 characters of Z85{counted}")
    if client and not is_name(values["name"]):
        raise ConfigError(f"{path}: name = {values['name']!r}: expected up to 64 letters, digits, '.', '_' and '-'")
    if public_of(values["secret"]) != values["public"]:
        raise ConfigError(f"{path}: public and secret are not of the same pair")
    return KeyFile(**values)


def write_private(path: str | os.PathLike[str], text: str) -> None:
    """Make the file ``path``, which only its owner can read: the folder's, where this process is the superuser's.

    Raises:
        ConfigError: it is there already, or cannot be made.
    """
    begun = f"{os.fspath(path)}.{token_hex(8)}.tmp"
    try:
        # Never open an existing file or follow a link that somebody else may have planted.
        descriptor = os.open(begun, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, 0o600)  # whatever the umask is
                if os.geteuid() == 0:
                    # A router that runs as another user is to read what root adds to its folder of keys.
                    os.fchown(descriptor, os.stat(os.path.dirname(begun) or ".").st_uid, -1)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            # Readers of the folder see the whole file or none; an existing file is never replaced.
            os.link(begun, path)
        finally:
            os.unlink(begun)
    except FileExistsError:
        raise ConfigError(f"{path}: exists already; key files are never overwritten") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
