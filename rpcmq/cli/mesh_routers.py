"""Asking each router of a mesh: the routers are those that the first one knows; one that does not answer is named."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import gevent

from rpcmq.cli.options import State, make_client
from rpcmq.config import load_client_config
from rpcmq.errors import CallError, RpcError
from rpcmq.transport.key_files import read_key_file

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["Answers", "RouterClients", "ask_all", "client_of", "mesh_view", "router_of", "routers_in"]

#: Routers that are asked at a time.
_AT_ONCE = 16


@dataclass
class Answers:
    """The answers of the routers of a mesh.

    Attributes:
        view: the view ``mesh`` of the router that was asked first.
        by_router: each router's answer, by its name; that router's first.
        silent: router -> the reason why there is no answer.
    """

    view: dict[str, Any]
    by_router: dict[str, dict[str, Any]] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    def silent_rows(self) -> list[dict[str, str]]:
        """The routers that did not answer, as plain data."""
        return [{"router": name, "text": text} for name, text in self.silent.items()]


def mesh_view(client: Client, timeout: float) -> dict[str, Any]:
    """The view ``mesh`` of the client's router.

    Raises:
        RpcError: the router is of a version that knows no mesh; or as for ``Client.query``.
    """
    try:
        return client.query("mesh", timeout)
    except CallError as error:
        if "is unknown" not in str(error):
            raise
        raise RpcError("this router is of a version that knows no mesh; update it") from None


class RouterClients:
    """A client of each router of a mesh, made when a router is seen for the first time, and closed with this.

    Args:
        timeout: seconds that each router has.
    """

    def __init__(self, state: State, timeout: float) -> None:
        self._state = state
        self._timeout = timeout
        self._first: Client | None = None
        self._clients: dict[str, Client] = {}
        self._stack = ExitStack()

    def __enter__(self) -> RouterClients:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def ask(self, view: str) -> Answers:
        """Ask the client's router, and each router of the mesh that it knows, for ``view``.

        Raises:
            RpcError: the client's own router does not answer.
        """
        if self._first is None:
            self._first = self._stack.enter_context(make_client(self._state, self._timeout))
        answers = Answers(mesh_view(self._first, self._timeout))
        name = answers.view["router"]
        answers.by_router[name] = answers.view if view == "mesh" else self._first.query(view, self._timeout)
        others = [row for row in routers_in(answers.view) if row["state"] != "left"]
        others.sort(key=lambda row: str(row["name"]))
        for begin in range(0, len(others), _AT_ONCE):
            gevent.joinall([gevent.spawn(self._ask, row, view, answers) for row in others[begin : begin + _AT_ONCE]])
        names = (name, *(row["name"] for row in others))
        answers.by_router = {name: answers.by_router[name] for name in names if name in answers.by_router}
        return answers

    def _ask(self, row: dict[str, Any], view: str, answers: Answers) -> None:
        name = row["name"]
        try:
            if name not in self._clients:
                self._clients[name] = self._stack.enter_context(client_of(self._state, row, self._timeout))
            client = self._clients[name]
            answer = client.query(view, self._timeout)
            if client.process.connection.url not in row["urls"]:
                # Its router is gone, and it has gone on at another one.
                raise RpcError("it has gone")
        except RpcError as error:
            answers.silent[name] = str(error)
            if name in self._clients:
                self._clients.pop(name).close()
        else:
            answers.by_router[name] = answer


def ask_all(state: State, view: str, timeout: float) -> Answers:
    """Ask the client's router, and each router of the mesh that it knows, for ``view``, once.

    Raises:
        RpcError: the client's own router does not answer.
    """
    with RouterClients(state, timeout) as clients:
        return clients.ask(view)


@contextmanager
def client_of(state: State, row: dict[str, Any], timeout: float) -> Iterator[Client]:
    """A client of the router of ``row``, and of no other."""
    if not row["urls"]:
        raise RpcError("it is not known where it listens")
    with _key_file(state, row.get("key") or "") as key_file:
        own = replace(state, router=",".join(row["urls"]), key_file=key_file)
        with make_client(own, timeout) as client:
            yield client


@contextmanager
def _key_file(state: State, router: str) -> Iterator[str | None]:
    """The path of this process's key file with the public key of another router in it; in memory, not on disk."""
    path = load_client_config(os.environ, {"key_file": state.key_file}).key_file
    if not path or not router:
        yield state.key_file
        return
    descriptor = os.memfd_create("rpcmq key file")
    try:
        os.fchmod(descriptor, 0o600)
        os.write(descriptor, replace(read_key_file(path, client=True), router=router).text().encode())
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def routers_in(view: dict[str, Any]) -> list[dict[str, Any]]:
    """The other routers that a router knows of, as its view ``mesh`` has them."""
    return [row for row in view["routers"] if row["name"]]


def router_of(view: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The router called ``name``, or with that id, in a view ``mesh``; None if there is none."""
    own = {"name": view["router"], "id": view["router_id"], "urls": view["urls"], "key": view["key"]}
    return next((row for row in (own, *routers_in(view)) if name in (row["name"], str(row["id"]))), None)
