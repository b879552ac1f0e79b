"""CURVE key pairs, their use on sockets, and the libzmq that is required."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import zmq
from zmq.utils import z85

from rpcmq.errors import ConfigError

__all__ = ["OLDEST_SAFE", "Curve", "check_libzmq", "derived_pair", "is_key", "libzmq_version", "new_pair", "public_of"]

#: Earlier versions can be crashed by peers without a key, with or without CURVE.
OLDEST_SAFE = (4, 3, 3)


@dataclass(frozen=True)
class Curve:
    """CURVE parameters of a socket, in Z85.

    Attributes:
        public, secret: the own pair.
        server_key: the public key of the other side, for a socket that connects.
        domain: for one that binds: the ZAP domain, by which its handler is found.
        server_keys: those of other servers than that of ``server_key``, by url.
    """

    public: str
    secret: str = field(repr=False)
    server_key: str = ""
    domain: str = ""
    server_keys: Mapping[str, str] = field(default_factory=dict)

    def apply(self, socket: zmq.Socket[Any]) -> None:
        """Make ``socket`` a CURVE server if there is a domain, else a client of ``server_key``."""
        if self.domain:
            socket.zap_domain = self.domain.encode()
            # Without it libzmq accepts any key while there is no handler of that domain.
            socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
            socket.curve_server = True
            socket.curve_secretkey = self.secret.encode()
        else:
            self.towards(socket, self.server_key)

    def towards(self, socket: zmq.Socket[Any], server_key: str) -> None:
        """Set ``server_key`` for connections that ``socket`` makes from now on. Its bound endpoints stay servers."""
        socket.curve_serverkey = server_key.encode()
        socket.curve_publickey = self.public.encode()
        socket.curve_secretkey = self.secret.encode()


def new_pair() -> tuple[str, str]:
    """A new key pair: public, secret."""
    public, secret = zmq.curve_keypair()
    return public.decode(), secret.decode()


def derived_pair(secret: bytes, purpose: bytes) -> tuple[str, str]:
    """The key pair that follows from ``secret`` for a ``purpose`` of at most 16 bytes: public, secret."""
    seed = blake2b(secret, digest_size=32, person=purpose).digest()
    derived = z85.encode(seed).decode()
    return public_of(derived), derived


def public_of(secret: str) -> str:
    """The public key that belongs to ``secret``.

    Raises:
        ValueError: it is no secret key.
    """
    if not is_key(secret):
        raise ValueError("a key has 40 characters of Z85")
    return zmq.curve_public(secret.encode()).decode()


def is_key(text: object) -> bool:
    """Return whether ``text`` can be a key: 32 bytes in Z85."""
    if not isinstance(text, str) or len(text) != 40 or not text.isascii():
        return False
    try:
        return z85.encode(z85.decode(text.encode())) == text.encode()
    except (ValueError, KeyError, OverflowError, IndexError, zmq.ZMQError):
        return False
    except Exception:  # z85 raises struct.error for digits that exceed 32 bits
        return False


def libzmq_version() -> tuple[int, int, int]:
    """Return the version of the libzmq that pyzmq has loaded."""
    return zmq.zmq_version_info()


def check_libzmq(version: tuple[int, int, int] | None = None, curve: bool | None = None) -> None:
    """Raise unless libzmq is safe on an open network.

    Raises:
        ConfigError: it has no CURVE, or can be crashed by peers without a key.
    """
    found = libzmq_version() if version is None else version
    shown = ".".join(map(str, found))
    if not (zmq.has("curve") if curve is None else curve):
        raise ConfigError(f"this libzmq ({shown}) was built without CURVE: install the wheel of pyzmq, which has it")
    if found < OLDEST_SAFE:
        raise ConfigError(
            f"libzmq {shown} can be crashed by peers without a key, even with CURVE on; "
            f"CURVE needs {'.'.join(map(str, OLDEST_SAFE))} or later: upgrade pyzmq"
        )
