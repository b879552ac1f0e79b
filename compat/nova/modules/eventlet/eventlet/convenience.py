"""Sockets in one line."""

from __future__ import annotations

import ssl as plain_ssl
from collections.abc import Callable
from typing import Any

from gevent import socket, ssl
from greenlet import GreenletExit, getcurrent

from . import greenpool, greenthread

__all__ = ["StopServe", "connect", "listen", "serve", "wrap_ssl"]


def connect(addr: Any, family: int = socket.AF_INET, bind: Any = None) -> socket.socket:
    """Connect to ``addr``, from the local address ``bind`` if given."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if bind is not None:
            sock.bind(bind)
        sock.connect(addr)
    except BaseException:
        sock.close()
        raise
    return sock


def listen(addr: Any, family: int = socket.AF_INET, backlog: int = 50) -> socket.socket:
    """Listen on ``addr``; a port of 0 means any that is free."""
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(addr)
        sock.listen(backlog)
    except BaseException:
        sock.close()
        raise
    return sock


class StopServe(Exception):
    """Raised in a handler to have ``serve`` return."""


def serve(sock: Any, handle: Callable[[Any, Any], Any], concurrency: int = 1000) -> None:
    """Accept connections for ever, each handled by ``handle(socket, address)`` in a green thread of its own.

    Returns once a handler raises StopServe; any other exception of one is raised here.
    """
    pool = greenpool.GreenPool(concurrency)
    server = getcurrent()
    while True:
        try:
            conn, addr = sock.accept()
            pool.spawn(handle, conn, addr).link(_stop_checker, server, conn)
        except StopServe:
            return


def _stop_checker(thread: greenthread.GreenThread, server: Any, conn: Any) -> None:
    try:
        try:
            thread.wait()
        finally:
            conn.close()
    except GreenletExit:
        pass  # killed, as a service that stops does with its connections
    except Exception as error:
        greenthread.kill(server, error)


def wrap_ssl(
    sock: Any,
    keyfile: str | None = None,
    certfile: str | None = None,
    server_side: bool = False,
    cert_reqs: int = plain_ssl.CERT_NONE,
    ssl_version: int | None = None,
    ca_certs: str | None = None,
    do_handshake_on_connect: bool = True,
    suppress_ragged_eofs: bool = True,
    ciphers: str | None = None,
) -> Any:
    """Wrap a socket, also one that listens, in TLS with the arguments that ``ssl.wrap_socket`` had.

    Any version of TLS that is safe today is taken; ``ssl_version`` is ignored.
    """
    context = ssl.SSLContext(plain_ssl.PROTOCOL_TLS_SERVER if server_side else plain_ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = plain_ssl.VerifyMode(cert_reqs)
    if certfile:
        context.load_cert_chain(certfile, keyfile)
    if ca_certs:
        context.load_verify_locations(ca_certs)
    if ciphers:
        context.set_ciphers(ciphers)
    return context.wrap_socket(
        sock,
        server_side=server_side,
        do_handshake_on_connect=do_handshake_on_connect,
        suppress_ragged_eofs=suppress_ragged_eofs,
    )
