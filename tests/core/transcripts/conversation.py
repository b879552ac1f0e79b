"""A conversation of processes with a router as text: each event, and below it what the router was given and did.

A transcript has one event a line; indented below it stands what follows from it, in its order:

=====================  ==========================================================
``api > CAST ...``     the router is given a message of the process ``api``
``api < CONFIRM ...``  the router sends one
``api x lost``         the connection of ``api`` is gone, as the router sees it
``! text``             a log event, with its kind
``! kind name``        any other action
``at 1.500``           seconds since the beginning; what stands below happens then
=====================  ==========================================================

Events are ``<process> <verb> ...`` and ``router <verb> ...``, as :class:`Conversation` lists them, and
``advance <seconds>``. Lines with ``#`` are comments. Heartbeats are left out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rpcmq.core.router.actions import Action, LogEvent
from rpcmq.core.router.rights import Key, Right
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.connections import Connection, Way
from rpcmq.testing.endpoint import Endpoint
from rpcmq.testing.network import Message, Network, Process
from rpcmq.wire import (
    FIRST_SESSION_KIND,
    KEY_BYTES,
    KIND_AT,
    NO_TTL,
    SETTLEMENT,
    Flag,
    Kind,
    sequence_of_key,
    with_flag,
)
from tests.core.transcripts.mesh_conversation import MeshConversation

__all__ = ["TRANSCRIPTS", "Conversation", "rewritten"]

TRANSCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))

_INDENT = "    "
#: The first event of a transcript of several routers.
_IS_OF_MESH = re.compile(r"^mesh$", re.MULTILINE)
#: Kinds whose payload is a JSON object, and those in which it is one number.
_BODIES = {
    Kind.HELLO, Kind.WELCOME, Kind.REFUSED, Kind.REGISTER, Kind.REGISTERED, Kind.ERROR, Kind.SUBSCRIBE,
    Kind.SUBSCRIBED, Kind.DECLARE, Kind.DROPPED, Kind.INTRODUCTION, Kind.QUERY, Kind.ANSWER, Kind.GOODBYE, Kind.DRAIN,
}  # fmt: skip
_COUNTS = {Kind.CONFIRM, Kind.EVENT_CREDIT, Kind.LOST, Kind.GRANT}
#: The members shown of bodies that mostly repeat the settings.
_TOLD_OF = {Kind.HELLO: {"received"}, Kind.WELCOME: {"resumed", "received"}}
_FLAGS = {value: name for name, value in vars(Flag).items() if name.isupper()}


def rewritten(text: str) -> str:
    """``text`` with its events run anew, and below each what follows from it now."""
    conversation = MeshConversation() if _IS_OF_MESH.search(text) else Conversation()
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(_INDENT):
            continue
        lines.append(line)
        if line and not line.startswith("#"):
            lines += [_INDENT + each for each in conversation.run(line)]
    return "\n".join(lines) + "\n"


class _Recording(Network):
    """Writes down what goes over its connections, and what its router asks for."""

    def __init__(self, settings: Settings, lines: list[str]) -> None:
        self._lines = lines
        super().__init__(settings)
        self._began = self._told_at = self.now
        self.host.on_action = self._note_action

    def _note(self, line: str) -> None:
        if self.now != self._told_at:
            self._told_at = self.now
            self._lines.append(f"at {self.now - self._began:.3f}")
        self._lines.append(line)

    def put(self, connection: Connection | None, way: Way | None, messages: list[bytes]) -> None:
        if connection is not None:
            arrow = ">" if way is connection.to_router else "<"
            for message in messages:
                if message[KIND_AT] != Kind.HEARTBEAT:
                    self._note(f"{self._dialer_of(connection.route)} {arrow} {self._told(message)}")
        super().put(connection, way, messages)

    def broken(self, process: Endpoint, connection: Connection, is_noticed: bool, is_delivered: bool = False) -> None:
        self._note(f"{process.identity} x lost" + ("" if is_noticed else ", unnoticed"))
        super().broken(process, connection, is_noticed, is_delivered)

    def _note_action(self, action: Action) -> None:
        if isinstance(action, LogEvent):
            self._note(f"! {action.event}: {action.text}")
        else:
            self._note(f"! {type(action).__name__} {self._dialer_of(action.route)}")

    def _dialer_of(self, route: bytes) -> str:
        return route.partition(b"#")[0].decode()

    def _told(self, raw: bytes) -> str:
        message = Message(raw)
        header, kind = message.header, message.kind
        words = [kind.name]
        if kind < FIRST_SESSION_KIND:
            words += [str(header.sequence)] if header.sequence else []
        elif any(message.key):
            words.append(self._key(message.key))
        if header.address_length:
            words.append("/".join(filter(None, reversed(message.address))) + f":{message.method}".rstrip(":"))
        if header.ttl != NO_TTL:
            words.append(f"ttl={header.ttl / 1000:g}")
        words += [f"{name}={value}" for name in ("attempt", "consumer") if (value := getattr(header, name))]
        words += [name.lower() for bit, name in _FLAGS.items() if header.flags & bit]
        return " ".join([*words, *self._payload(message)])

    def _payload(self, message: Message) -> list[str]:
        kind, payload = message.kind, message.payload
        if not payload:
            return []
        if kind in _COUNTS:
            return [str(int.from_bytes(payload))]
        if kind is Kind.SETTLE:
            return [
                f"{self._key(key)}={Outcome(outcome).name}" for key, _, outcome, _ in SETTLEMENT.iter_unpack(payload)
            ]
        if kind is Kind.DELIVERED:
            return [f"{len(payload)} bytes"]
        if kind is Kind.REGISTER and "recent" in message.body:
            keys = bytes.fromhex(message.body["recent"])
            recent = " ".join(self._key(keys[i : i + KEY_BYTES]) for i in range(0, len(keys), KEY_BYTES))
            return [f"credit={message.body['credit']} recent=({recent})"]
        if kind in _BODIES:
            body = {name: value for name, value in message.body.items() if name in _TOLD_OF.get(kind, message.body)}
            return [_field(name, value) for name, value in body.items()]
        return [repr(payload)[1:]]

    def _key(self, key: bytes) -> str:
        """The name of the process that gave the message its key, and its number there."""
        sender = next((p.identity for p in self.processes.values() if p.uplink.origin == key[:12]), "?")
        return f"{sender}#{sequence_of_key(key)}"


class Conversation:
    """Runs one event after the other."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._net = _Recording(Settings(recovery_seconds=0.0), self._lines)
        self._processes: dict[str, Process] = {}

    def run(self, event: str) -> list[str]:
        """Run one event; return what followed, a line each.

        Raises:
            ValueError: there is no such event.
        """
        who, *words = shlex.split(event)
        pairs = (word.split("=", 1) for word in words if "=" in word)
        given = {name: _value(name, word) for name, word in pairs}
        plain = [word for word in words if "=" not in word]
        self._lines.clear()
        if who == "advance":
            self._net.advance(float(plain[0]))
        elif who == "process":
            self._processes[plain[0]] = self._net.process(plain[0], **given)
        else:
            about: Any = self if who == "router" else self._processes[who]
            self._perform(about, plain[0], plain[1:], given)
        self._net.run()
        self._net.router.dispatch.check()
        return self._lines

    def _perform(self, about: Any, verb: str, plain: list[str], given: dict[str, Any]) -> None:
        name = f"_router_{verb}" if about is self else f"_process_{verb}"
        own: Callable[..., None] | None = getattr(self, name, None)
        if own is not None:
            own(*([] if about is self else [about]), *plain, **given)
        elif about is not self and hasattr(Process, verb):
            getattr(about, verb)(*plain, **given)
        else:
            raise ValueError(f"{verb!r} is no event of a transcript")

    # --- the router --------------------------------------------------------------------------

    def _router_settings(self, **given: Any) -> None:
        for name, value in given.items():
            setattr(self._net.settings, name, value)

    def _router_restart(self) -> None:
        self._net.restart_router()

    def _router_keys(self, *names: str) -> None:
        """Only processes with these keys may connect; each key may do anything."""
        everything = (Right(frozenset(["call", "cast", "serve"]), ("#",)),)
        self._net.router.set_authorized_keys(self._net.now, [Key(name, name.upper(), everything) for name in names])

    def _router_begin_drain(self) -> None:
        self._net.router.begin_drain(self._net.now)

    def _router_finish_drain(self) -> None:
        """The drain is over, as a stopping router ends it."""
        self._net.router.refuse_nested_work()
        self._net.router.finish_drain(self._net.now)

    # --- processes ---------------------------------------------------------------------------

    def _process_reply(self, process: Process, payload: str = "") -> None:
        process.reply(process.take(Kind.REQUEST), payload.encode())

    def _process_fault(self, process: Process, payload: str = "") -> None:
        process.fault(process.take(Kind.REQUEST), payload.encode())

    def _process_settle(self, process: Process) -> None:
        casts = process.got(Kind.CAST)
        for tag in sorted({cast.header.consumer for cast in casts}):
            process.settle(*(cast for cast in casts if cast.header.consumer == tag))

    def _process_register_again(self, process: Process, topic: str, credit: int) -> None:
        """Register after a restart of the router, and report the casts that came before it."""
        had = [message.key for message in process.received if message.kind is Kind.CAST]
        process.register(topic, credit=credit, recent=b"".join(had).hex())

    def _process_taken(self, process: Process) -> None:
        process.taken(len(process.got(Kind.PUBLISH)))

    def _process_reconnect(self, process: Process) -> None:
        """Reconnect; to a router that has lost the session, send everything again as a client does."""
        welcomes = len(process.welcomes)
        process.connect()
        for welcome in process.welcomes[welcomes:]:
            with self._net.together():
                for message in welcome.sent:
                    process.uplink.send(with_flag(message, Flag.RESENT))
                for message in welcome.unsent:
                    process.uplink.send(message)


def _field(name: str, value: Any) -> str:
    if name == "outcome":
        return Outcome(value).name
    if isinstance(value, dict):
        return f"{name}=({', '.join(_field(*each) for each in value.items())})"
    return f"{name}={value}" if name != "text" else repr(value)


def _value(name: str, word: str) -> Any:
    """The Python value that ``word`` stands for as the argument ``name``."""
    if word == "true":
        return True
    if name == "payload":
        return word.encode()
    if name == "flags":
        flags = 0
        for each in word.split(","):
            flags |= getattr(Flag, each.upper())
        return flags
    try:
        return float(word) if "." in word else int(word)
    except ValueError:
        return word
