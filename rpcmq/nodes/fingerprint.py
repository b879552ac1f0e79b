"""The digest by which two calls or casts are told to ask for the same."""

from __future__ import annotations

from hashlib import blake2b

from rpcmq.core.router.model import Destination
from rpcmq.wire import FORMAT_AT, payload_of

__all__ = ["fingerprint_of"]

#: Bytes of a payload that are looked at; of a longer one the first of them, and its length.
_MOST_BYTES = 1 << 20
_DIGEST_BYTES = 16


def fingerprint_of(destination: Destination, message: bytes) -> str:
    """The digest of address, method, payload format and payload, as hexadecimal text.

    A payload of more than 1 MiB counts with its first MiB and its length.
    """
    payload = payload_of(message)
    address = destination.topic.address
    server = destination.server.name if destination.server is not None else ""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for text in (address.exchange, address.topic, server, destination.method):
        encoded = text.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    digest.update(b"%d:%d:" % (message[FORMAT_AT], len(payload)))
    digest.update(payload[:_MOST_BYTES])
    return digest.hexdigest()
