"""The name by which routers know the process of a consumer: its origin, which each of its lives has anew, and identity.

An identity alone may be that of the next life of a process that was killed, which knows nothing of what that had.
"""

from __future__ import annotations

from typing import NamedTuple

from rpcmq.errors import ProtocolError
from rpcmq.wire.header import ORIGIN_OF_KEY, SEQUENCE_OF_KEY

__all__ = ["NOBODY", "ORIGIN_BYTES", "ConsumerName"]

#: Bytes of an origin.
ORIGIN_BYTES = ORIGIN_OF_KEY.stop
_NO_SEQUENCE = bytes(SEQUENCE_OF_KEY.stop - ORIGIN_BYTES)


class ConsumerName(NamedTuple):
    """The process of a consumer.

    Attributes:
        origin: as in the keys of its messages; it keeps that at other routers of the mesh.
        identity: for people.
    """

    origin: bytes
    identity: str

    def encode(self) -> bytes:
        """The origin, then the identity as UTF-8."""
        return self.origin + self.identity.encode()

    @classmethod
    def decode(cls, raw: bytes) -> ConsumerName:
        """Read what :meth:`encode` returns.

        Raises:
            ProtocolError: it is too short, or no UTF-8.
        """
        if len(raw) < ORIGIN_BYTES:
            raise ProtocolError(f"{len(raw)} bytes are too few for the origin and identity of a consumer", "identity")
        try:
            return cls(raw[:ORIGIN_BYTES], raw[ORIGIN_BYTES:].decode())
        except UnicodeDecodeError:
            raise ProtocolError("an identity is not UTF-8", "identity") from None

    @property
    def key(self) -> bytes:
        """The origin in the place of a key, for a header."""
        return self.origin + _NO_SEQUENCE


#: In the place of a name where a router speaks for itself.
NOBODY = ConsumerName(bytes(ORIGIN_BYTES), "")
