"""A conversation of several routers about their mesh, as text; see :mod:`tests.core.transcripts.conversation`.

Such a transcript begins with the event ``mesh``. Its lines:

====================  ====================================================================
``a > b HELLO ...``   router a sends it to router b, or a router to a process
``a ! text``          a log event of router a
``a ! Dial b``        router a asks for a connection to b
``at 1.500``          seconds since the beginning; what stands below happens then
====================  ====================================================================

Events are ``router NAME [peers=...] [id=...]``, ``NAME kill|start|pause|resume|leave|join URL``,
``cut|heal|reset A B``, ``process NAME router=...`` and ``advance SECONDS``. Only the messages that concern links and
members are told.
"""

from __future__ import annotations

import shlex
from typing import Any

from rpcmq.core.router.actions import Action, Dial, LogEvent
from rpcmq.core.router.settings import Settings
from rpcmq.testing.connections import Connection, Way
from rpcmq.testing.mesh_network import MeshNetwork, Message
from rpcmq.testing.router_host import RouterHost
from rpcmq.wire import Kind

__all__ = ["MeshConversation"]

_TOLD = {Kind.HELLO, Kind.WELCOME, Kind.REFUSED, Kind.GOODBYE, Kind.DRAIN, Kind.MEMBERS, Kind.ROUTERS}
_BOOT = 1_700_000_000_000


class _Recording(MeshNetwork):
    """Writes down what goes between routers, and what they ask for."""

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        super().__init__(names=(), settings=Settings(recovery_seconds=0.0))
        self._began = self._told_at = self.now

    def note(self, line: str) -> None:
        if self.now != self._told_at:
            self._told_at = self.now
            self._lines.append(f"at {self.now - self._began:.3f}")
        self._lines.append(line)

    def put(self, connection: Connection | None, way: Way | None, messages: list[bytes]) -> None:
        if connection is not None:
            ends = connection.route.partition(b"#")[0].decode(), connection.url.removeprefix("inproc://")
            sender, receiver = ends if way is connection.to_router else ends[::-1]
            for message in map(Message, messages):
                if message.kind in _TOLD:
                    self.note(f"{sender} > {receiver} {' '.join([message.kind.name, *_words(message)])}")
        super().put(connection, way, messages)


def _words(message: Message) -> list[str]:
    kind = message.kind
    if kind is Kind.GOODBYE:
        return []
    body = message.body
    if kind is Kind.MEMBERS:
        return ["; ".join(map(_member, body["members"]))]
    if kind is Kind.ROUTERS:
        return [" ".join(row["name"] for row in body["routers"])]
    words = [f"{name}={body[name]}" for name in ("reason", "resumed", "received", "incarnation") if name in body]
    if "routers" in body.get("mesh", {}):
        words.append("routers=" + ",".join(row["name"] for row in body["mesh"]["routers"]))
    elif body.get("mesh"):
        words.append(f"from {_identity(body['mesh'])}")
    return words + ([repr(body["text"])] if "text" in body else [])


def _identity(said: dict[str, Any]) -> str:
    life = (said["incarnation"] - _BOOT) / 1000
    return f"{said['name']} (id {said['id']}{f', life {life:g}' if life else ''})"


def _member(said: dict[str, Any]) -> str:
    neighbours = " ".join(map(str, said["neighbours"])) or "nobody"
    return f"{_identity(said)} {'left' if said.get('left') else f'linked to {neighbours}'}"


class MeshConversation:
    """Runs one event after the other."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._net = _Recording(self._lines)

    def run(self, event: str) -> list[str]:
        """Run one event; return what followed, a line each.

        Raises:
            ValueError: there is no such event.
        """
        self._lines.clear()
        what, *words = shlex.split(event)
        given = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        if what in self._net.hosts:
            self._let(self._net.hosts[what], *plain)
        elif what in ("cut", "heal", "reset"):
            getattr(self._net, what)(*plain)
        elif what == "advance":
            self._net.advance(float(plain[0]))
        elif what == "process":
            self._net.process(plain[0], **given)
        elif what == "router":
            self._add(plain[0], **given)
        elif what != "mesh":
            raise ValueError(f"{what!r} is no event of a transcript of routers")
        self._net.run()
        return self._lines

    def _add(self, name: str, peers: str = "", id: str = "", mesh: str = "rpcmq") -> None:
        number = int(id) if id else len(self._net.hosts) + 1
        urls = tuple(f"inproc://{peer}" for peer in peers.split(",") if peer)
        host = self._net.add_router(name, peers=(), router_id=number, mesh_name=mesh)
        host.on_action = lambda action: self._note(name, action)
        for url in urls:
            host.router.mesh.targets.configure(self._net.now, url)
        host.settings.mesh_peers = urls
        self._net.advance(0.0)

    def _note(self, name: str, action: Action) -> None:
        if isinstance(action, LogEvent):
            self._net.note(f"{name} ! {action.event}: {action.text}")
        elif isinstance(action, Dial):
            self._net.note(f"{name} ! Dial {action.url.removeprefix('inproc://')}")

    def _let(self, host: RouterHost, verb: str, *plain: str) -> None:
        if verb == "leave":
            host.router.mesh.members.leave(self._net.now)
        elif verb == "join":
            host.router.mesh.members.join(self._net.now, f"inproc://{plain[0]}")
        elif verb == "start":
            host.start(*map(float, plain))
        elif verb in ("kill", "pause", "resume"):
            getattr(host, verb)()
        else:
            raise ValueError(f"{verb!r} is no event of a router")
        self._net.advance(0.0)
