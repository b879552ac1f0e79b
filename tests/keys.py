"""Folders of keys for tests."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import Any

from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.server.authorized_keys import to_toml
from rpcmq.transport.curve import new_pair
from rpcmq.transport.key_files import KeyFile, write_private


def right(verbs: str, *topics: str, exchanges: tuple[str, ...] = ("",)) -> Right:
    return Right(frozenset(verbs.split(",")), topics, exchanges)


class Folder:
    """A router's folder of keys, and the key files of its clients beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path / "keys"
        self._clients = path / "clients"
        for folder in (self.path, self.path / "authorized", self._clients):
            folder.mkdir(mode=0o700)
        self.router, secret = new_pair()
        write_private(self.path / "router.key", KeyFile(self.router, secret).text())

    def __str__(self) -> str:
        return str(self.path)

    def file(self, name: str) -> Path:
        return self.path / "authorized" / f"{name}.toml"

    def add(self, name: str, *rights: Right, until: datetime | None = None, **fields: Any) -> str:
        """A key with ``rights`` (default: all); returns its key file."""
        public = self.client(name)[0]
        self.authorise(Key(name, public, rights or (EVERYTHING,), **fields), until)
        return str(self._clients / f"{name}.key")

    def client(self, name: str, router: str | None = None) -> tuple[str, str]:
        """A client's key file that nobody has authorised: public key, file."""
        public, secret = new_pair()
        path = self._clients / f"{name}.key"
        path.unlink(missing_ok=True)
        write_private(path, KeyFile(public, secret, name, router or self.router).text())
        return public, str(path)

    def authorise(self, key: Key, until: datetime | None = None) -> None:
        path = self.file(key.name)
        begun = path.with_suffix(".new")
        begun.write_text(to_toml(key, until))
        os.replace(begun, path)

    def revoke(self, name: str) -> None:
        self.file(name).unlink()
