"""A Python prompt into a running process. Whoever can connect can do anything: bind it to localhost."""

from __future__ import annotations

from typing import Any

from gevent.backdoor import BackdoorServer

__all__ = ["backdoor", "backdoor_server"]


def backdoor_server(sock: Any, locals: dict[str, Any] | None = None) -> None:
    """Give each who connects to the listening socket a prompt with these variables, until killed."""
    server = BackdoorServer(sock, locals=locals)
    try:
        server.serve_forever()
    finally:
        sock.close()


def backdoor(conn_info: tuple[Any, Any], locals: dict[str, Any] | None = None) -> None:
    """Give a prompt over one connection, a socket and an address, that was accepted."""
    conn, addr = conn_info
    server = BackdoorServer(("127.0.0.1", 0), locals=locals)
    server.do_handle(conn, addr)
