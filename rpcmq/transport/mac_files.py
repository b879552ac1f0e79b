"""Files of the keys that payloads are signed with: TOML, readable by its owner only.

``write`` names the key that signs; all keys of the table ``keys`` are good to read, so that keys can be
changed one process after the other.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from rpcmq.errors import ConfigError
from rpcmq.payload.seal import KEY_BYTES, MacKeys
from rpcmq.toml import quoted
from rpcmq.transport.key_files import check_private, is_name, read_trusted_toml, write_private

__all__ = ["new_mac_key", "read_mac_keys", "use_mac_key"]

_HEX = re.compile(f"[0-9a-f]{{{2 * KEY_BYTES}}}")


def read_mac_keys(path: str | os.PathLike[str]) -> MacKeys:
    """The keys in ``path``.

    Raises:
        ConfigError: it cannot be read, others can read it, or something in it is missing or wrong.
    """
    check_private(path)
    values = read_trusted_toml(path, {"write": str, "keys": dict})
    keys = values.get("keys", {})
    for name, secret in keys.items():
        if not is_name(name):
            raise ConfigError(f"{path}: keys.{name}: expected up to 64 letters, digits, '.', '_' and '-'")
        if not isinstance(secret, str) or not _HEX.fullmatch(secret):
            raise ConfigError(f"{path}: keys.{name}: it is no key; a key has {2 * KEY_BYTES} hexadecimal digits")
    write = values.get("write", "")
    if write not in keys:
        raise ConfigError(f"{path}: write = {write!r}: expected one of its keys: {', '.join(keys) or 'it has none'}")
    return MacKeys(write, {name: bytes.fromhex(secret) for name, secret in keys.items()})


def new_mac_key(path: str | os.PathLike[str], name: str) -> bool:
    """Add a new key to ``path``, which is made if it is not there; then the key is the one that signs.

    Returns:
        Whether the file was made.

    Raises:
        ConfigError: there is a key of that name, the file is wrong, or it cannot be written.
    """
    if not is_name(name):
        raise ConfigError(f"{name!r} is no name of a key: expected up to 64 letters, digits, '.', '_' and '-'")
    secret = secrets.token_bytes(KEY_BYTES)
    if not Path(path).exists():
        write_private(path, _text(MacKeys(name, {name: secret})))
        return True
    keys = read_mac_keys(path)
    if name in keys.secrets:
        raise ConfigError(f"{path}: has a key {name!r} already")
    _replace(path, MacKeys(keys.write, {**keys.secrets, name: secret}))
    return False


def use_mac_key(path: str | os.PathLike[str], name: str) -> None:
    """From now on the key ``name`` of ``path`` signs.

    Raises:
        ConfigError: there is none, the file is wrong, or it cannot be written.
    """
    keys = read_mac_keys(path)
    if name not in keys.secrets:
        raise ConfigError(f"{path}: has no key {name!r}; it has {', '.join(keys.secrets)}")
    _replace(path, MacKeys(name, keys.secrets))


def _replace(path: str | os.PathLike[str], keys: MacKeys) -> None:
    begun = f"{os.fspath(path)}.new"
    write_private(begun, _text(keys))
    os.replace(begun, path)


def _text(keys: MacKeys) -> str:
    lines = [
        "# mac_file (RPCMQ_MAC_FILE): whoever has this file can sign payloads and be believed. Keep it secret.",
        f"write = {quoted(keys.write)}",
        "",
        "[keys]",
        *(f"{quoted(name)} = {quoted(secret.hex())}" for name, secret in keys.secrets.items()),
    ]
    return "\n".join(lines) + "\n"
