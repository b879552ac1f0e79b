"""The routers of a transport url: whether each takes this process, and whether they are one mesh, all of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from rpcmq import threads
from rpcmq.errors import AccessDenied, ConfigError, RpcError
from rpcmq_oslo.doctor.findings import FAIL, OK, WARN, Finding, advice_for
from rpcmq_oslo.doctor.settings import Bus

__all__ = ["routers_of"]

_LEFT = "left"
_ADD = (
    "add them: processes are told of them once they are connected, but cannot start while all routers that they are "
    "given are away"
)


def routers_of(bus: Bus, key_file: str, timeout: float) -> Generator[Finding, None, bool]:
    """Yield what is found about each router of ``bus``; returns whether there is one that takes this process.

    Args:
        key_file: keys with which the mesh is asked for; empty: those of ``bus``.
        timeout: seconds for each router.
    """
    views: dict[str, dict[str, Any]] = {}
    reachable, unasked = 0, ""
    for url in bus.routers:
        try:
            with threads.Client(url, key_file=bus.key_file or None, connect_timeout=timeout) as client:
                client.connect(timeout)
        except (RpcError, ConfigError) as error:
            todo = advice_for(str(error), "see the router's log")
            yield FAIL, f"router {url}", str(error), todo
            continue
        reachable += 1
        how = "with keys, encrypted" if bus.key_file else "without keys"
        yield OK, f"router {url}", f"takes this process, {how}", ""
        try:
            views[url] = _mesh_view(url, key_file or bus.key_file, timeout)
        except (RpcError, ConfigError) as error:
            unasked = str(error)
    if unasked:
        todo = "give --key-file with an operator's key that can ask each router: rpcmq keys add ops --allow 'admin:#'"
        yield WARN, "mesh", f"not asked whether routers are missing in the url: {unasked}", todo
    elif views:
        yield from _mesh(views, len(bus.routers) - reachable)
    return bool(reachable)


def _mesh_view(url: str, key_file: str, timeout: float) -> dict[str, Any]:
    with threads.Client(url, key_file=key_file or None, connect_timeout=timeout) as client:
        try:
            return client.query("mesh", timeout)
        except AccessDenied as error:
            raise RpcError(str(error)) from error


def _mesh(views: dict[str, dict[str, Any]], silent: int) -> Generator[Finding, None, None]:
    """Compare the routers of the url with those that they know; ``silent`` ones of the url may be any of these."""
    named = {view["router"]: url for url, view in views.items()}
    known: dict[str, list[str]] = {}
    for view in views.values():
        linked = {row["name"] for row in view["routers"] if row["name"] and row["state"] != _LEFT}
        known |= {row["name"]: row["urls"] for row in view["routers"] if row["name"] in linked}
        for other, url in named.items():
            if other != view["router"] and other not in linked:
                yield (
                    FAIL,
                    "mesh",
                    f"router {other} at {url} is not in the mesh of router {view['router']}",
                    "link them (mesh.peers, or rpcmq mesh join): services at one would not reach those at the other",
                )
    missing = {name: urls for name, urls in known.items() if name not in named}
    if not missing:
        text = f"the url names all routers that are known: {', '.join(sorted(named))}"
        yield OK, "mesh", text, ""
    elif len(missing) > silent:
        shown = "; ".join(
            f"{name} at {', '.join(urls) or 'an unknown address'}" for name, urls in sorted(missing.items())
        )
        may_be = f" (or one of the {silent} that do not answer)" if silent else ""
        yield (
            WARN,
            "mesh",
            f"not in the url{may_be}: {shown}",
            _ADD,
        )
