"""TLS of the gateway: a certificate that is read again when its file changes."""

from __future__ import annotations

import os

from gevent import ssl

from rpcmq.errors import ConfigError

__all__ = ["Certificate"]


class Certificate:
    """The certificate in the file ``path`` and its key in ``key_path``.

    One that becomes wrong, or whose key has not come yet, leaves the former one in use.

    Raises:
        ConfigError: a file is missing or wrong when this is made.
    """

    def __init__(self, path: str, key_path: str) -> None:
        self._path, self._key_path = path, key_path or path
        self._told = ""
        self._seen = self._look()
        #: For connections that begin now.
        self.context = self._load()

    def refresh(self) -> str:
        """Read the files again if they have changed; return what is wrong with them, once."""
        seen = self._look()
        if seen == self._seen:
            return ""
        try:
            self.context = self._load()
        except ConfigError as error:
            # Certificate and key are written one after the other: look again.
            told, self._told = self._told, str(error)
            return "" if told == self._told else self._told
        self._seen, self._told = seen, ""
        return ""

    def _look(self) -> list[tuple[int, ...]]:
        found: list[tuple[int, ...]] = []
        for path in (self._path, self._key_path):
            try:
                status = os.stat(path)
            except OSError as error:
                found.append((-(error.errno or 1),))
            else:
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return found

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            context.load_cert_chain(self._path, self._key_path)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"listen.certificate = {self._path!r}, listen.key = {self._key_path!r}: cannot be used: {error}"
            ) from None
        return context
