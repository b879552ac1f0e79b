"""Certificates of a front end: chosen by the name that a client asks for, and loaded anew while it serves."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gevent import ssl

from rpcmq.errors import ConfigError

__all__ = ["Certificate", "Certificates", "pass_over_bad_names"]


@dataclass(frozen=True)
class Certificate:
    """Files in PEM.

    Attributes:
        names: of the servers that it is for; ``*.example.org`` stands for all names with one more label.
        chain: the certificate, and those that lead to its issuer's.
        key: its private key.
    """

    names: tuple[str, ...]
    chain: str
    key: str


class Certificates:
    """Contexts of TLS 1.2 and 1.3 that offer ``http/1.1``, with session tickets.

    Connections are made with :attr:`context`, which stays the same, so that tickets stay good when certificates are
    loaded anew, and in processes that fork afterwards.

    Args:
        certificates: the first one is for clients that ask for no name, or for an unknown one.

    Raises:
        ConfigError: there is none, a name is in two of them, or a file is missing, damaged, or no match for its key.
    """

    def __init__(self, certificates: Sequence[Certificate]) -> None:
        if not certificates:
            raise ConfigError("tls: no certificate is given; name at least one [[tls.certificates]]")
        self._certificates = tuple(certificates)
        names = [name.lower() for each in self._certificates for name in each.names]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"tls.certificates: {twice[0]} is in two of them")
        self._stamp: tuple[Any, ...] = ()
        self._default, self._by_name = self._load()
        self._stamp = self._stamp_now()
        #: Take this one for each connection.
        self.context = _context(self._certificates[0])
        self.context.sni_callback = self._choose

    def reload(self) -> None:
        """Load all files anew; handshakes from now on use them.

        Raises:
            ConfigError: one of them cannot be used; the former ones stay.
        """
        # Of before they are read: a change while they are is seen the next time.
        stamp = self._stamp_now()
        try:
            self._default, self._by_name = self._load()
        finally:
            self._stamp = stamp

    def reload_if_changed(self) -> bool:
        """Load the files if one of them has changed; return whether one has. Raises as :meth:`reload`."""
        if self._stamp_now() == self._stamp:
            return False
        self.reload()
        return True

    def _load(self) -> tuple[Any, Mapping[str, Any]]:
        contexts = [_context(each) for each in self._certificates]
        pairs = zip(self._certificates, contexts, strict=True)
        return contexts[0], {name.lower(): context for each, context in pairs for name in each.names}

    def _stamp_now(self) -> tuple[Any, ...]:
        return tuple(_file_stamp(path) for each in self._certificates for path in (each.chain, each.key))

    def _choose(self, connection: Any, name: str | None, context: Any) -> None:
        connection.context = self._find(name.lower() if name else "")

    def _find(self, name: str) -> Any:
        found = self._by_name.get(name)
        if found is None and name:
            found = self._by_name.get("*." + name.partition(".")[2])
        return found if found is not None else self._default


def pass_over_bad_names() -> None:
    """Have this process not write a traceback for each client that asks for a server by a name that is no text.

    OpenSSL's callback has nobody to raise the error to. Such a handshake fails, and is counted as one.
    """
    before = sys.unraisablehook

    def hook(unraisable: Any) -> None:
        if not (isinstance(unraisable.exc_value, UnicodeDecodeError) and isinstance(unraisable.object, bytes)):
            before(unraisable)

    sys.unraisablehook = hook


def _file_stamp(path: str) -> tuple[int, ...] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _context(certificate: Certificate) -> Any:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        # An encrypted key would ask at the terminal.
        context.load_cert_chain(certificate.chain, certificate.key, password=lambda: b"")
    except FileNotFoundError:
        missing = next(path for path in (certificate.chain, certificate.key) if not os.path.exists(path))
        raise ConfigError(f"tls.certificates: {missing} does not exist") from None
    except (OSError, ValueError) as error:
        names = ", ".join(certificate.names) or "the default"
        raise ConfigError(
            f"tls.certificates: {certificate.chain} and {certificate.key} (for {names}) cannot be used: {error}"
        ) from None
    return context
