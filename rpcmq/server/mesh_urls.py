"""The endpoints of a mesh: those that a router tells others, and mistakes in those that it is told to link to."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from rpcmq.config import RouterConfig
from rpcmq.config.peers import EVERY_TOPIC, Peer
from rpcmq.errors import ConfigError

__all__ = ["advertised_urls", "check_peers", "wrong_peers"]

_ANY = ("*", "0.0.0.0", "[::]")
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


def advertised_urls(config: RouterConfig, bound: str) -> tuple[str, ...]:
    """Return the endpoints that others are told.

    Args:
        config: has them, or none; then it is the one that the router listens on.
        bound: that endpoint, with its port. On all interfaces others reach it by this host's name.
    """
    if config.mesh.advertise:
        return config.mesh.advertise
    host, colon, port = bound.removeprefix("tcp://").rpartition(":")
    return (f"tcp://{socket.gethostname()}{colon}{port}",) if host in _ANY else (bound,)


def wrong_peers(config: RouterConfig) -> list[str]:
    """Return a text for each peer that no link can be made to, with advice."""
    return [*_own(config), *_twice(config), *_without_key(config), *_limited_without_key(config)]


def check_peers(config: RouterConfig) -> None:
    """Check the peers.

    Raises:
        ConfigError: this router is one of them itself, one is told twice, or has no key though this router has.
    """
    if problems := wrong_peers(config):
        raise ConfigError("\n".join(problems))


def _peers(config: RouterConfig) -> Iterator[tuple[str, Peer]]:
    """Yield each peer with its key in the settings."""
    for url in config.mesh.peers:
        yield "mesh.peers", Peer(url)
    for peer in config.mesh.peer:
        yield "mesh.peer", peer


def _own(config: RouterConfig) -> Iterator[str]:
    listen = config.router.listen
    for key, peer in _peers(config):
        if peer.url in config.mesh.advertise or _is_same(peer.url, listen):
            yield (
                f"{key}: {peer.url!r} is this router itself (router.listen = {listen!r}); name other routers of the "
                "mesh, or none if this is the first"
            )


def _twice(config: RouterConfig) -> Iterator[str]:
    for peer in config.mesh.peer:
        if peer.url in config.mesh.peers:
            yield f"mesh.peers: {peer.url!r} has a table [[mesh.peer]], too; leave it out of mesh.peers"


def _without_key(config: RouterConfig) -> Iterator[str]:
    for key, peer in _peers(config):
        if config.security.keys and not peer.server_key:
            yield (
                f"{key}: {peer.url!r} has no server_key, which a router with keys (security.keys) needs to link to it; "
                f'write a table [[mesh.peer]] with url = "{peer.url}" and server_key = its public key'
            )
        elif peer.server_key and not config.security.keys:
            yield (
                f"{key}: {peer.url!r} has a server_key, but this router has no keys; make them with `rpcmq init`, and "
                "set security.keys"
            )


def _limited_without_key(config: RouterConfig) -> Iterator[str]:
    for peer in config.mesh.peer:
        if not peer.server_key and (peer.allow_in, peer.allow_out) != (EVERY_TOPIC, EVERY_TOPIC):
            yield (
                f"mesh.peer: {peer.url!r} has allow_in or allow_out, by which nobody is limited without keys: any "
                "router could say that it is another one; make keys with `rpcmq init`, or leave them out"
            )


def _is_same(url: str, listen: str) -> bool:
    """Return whether ``url`` is plainly the endpoint ``listen`` of this host. Names are not resolved."""
    if url == listen:
        return True
    if not (url.startswith("tcp://") and listen.startswith("tcp://")):
        return False
    host, _, port = url.removeprefix("tcp://").rpartition(":")
    own_host, _, own_port = listen.removeprefix("tcp://").rpartition(":")
    own_names = (*_LOOPBACK, socket.gethostname()) if own_host in _ANY else _LOOPBACK if own_host in _LOOPBACK else ()
    return port == own_port and host in own_names
