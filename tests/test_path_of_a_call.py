"""``docs/contributing/path-of-a-call.md`` shows which functions one call goes through, as it was seen to.

``python -m tests.test_path_of_a_call`` draws it anew.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from rpcmq import Client, Service
from rpcmq.testing import router
from rpcmq.testing.checked_states import unchecked

DOCUMENT = Path(__file__).parent.parent / "docs" / "contributing" / "path-of-a-call.md"
#: Modules by their room; what is in none of them (the wire, small helpers) is not drawn.
ROOMS = {
    "rpcmq.client": "client",
    "rpcmq.payload": "payload",
    "rpcmq.core.process": "core/process",
    "rpcmq.transport": "transport",
    "rpcmq.core.router": "core/router",
}
PROGRAM, ROUTER = "program", "core/router"
#: An argument that the call takes along, by which its bytes and objects are told from all others.
MARK = "host-7f3a9c"
#: Objects of the engines that hold a message.
HOLDERS = {"Request", "Delivery", "Call", "Task"}


class Step(NamedTuple):
    """A public function that was given the call, and the room that it was called from."""

    room: str
    name: str
    module: str
    by: str


class Hosts:
    """The endpoint."""

    def reboot(self, ctx: object, host: str) -> str:
        """The method that is called."""
        return host


def carries(value: Any, depth: int = 0) -> bool:
    """Return whether ``value`` is, or holds, the call or its answer."""
    match value:
        case str():
            return MARK in value
        case bytes() | memoryview():
            return MARK.encode() in bytes(value)
        case list() | tuple():
            inner: list[Any] = list(value[:20])
        case dict():
            inner = list(value.values())[:20]
        case _ if type(value).__name__ in HOLDERS:
            inner = [getattr(value, name, None) for name in (*getattr(value, "__slots__", ()), *vars_of(value))]
        case _:
            return False
    return depth < 3 and any(carries(each, depth + 1) for each in inner)


def vars_of(value: object) -> dict[str, Any]:
    return getattr(value, "__dict__", {})


def room_of(module: str) -> str | None:
    if module == __name__:
        return PROGRAM
    return next((room for name, room in ROOMS.items() if module == name or module.startswith(f"{name}.")), None)


def arguments_of(frame: FrameType) -> Iterator[Any]:
    code: CodeType = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[: count + bool(code.co_flags & 4) + bool(code.co_flags & 8)]:
        yield frame.f_locals.get(name)


def traced() -> list[Step]:
    """Make a call over a loopback connection; return the functions that were given it, in their order."""
    steps: list[Step] = []
    shown: set[FrameType] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        room = room_of(module) if event == "call" else None
        name = frame.f_code.co_qualname
        if room is None or any(word.startswith(("_", "<")) for word in name.split(".")):
            return
        if (room == PROGRAM) == (name == "Hosts.reboot") and any(map(carries, arguments_of(frame))):
            steps.append(Step(room, name, module, caller_of(frame, shown)))
            shown.add(frame)

    with unchecked(), router(), Client() as caller, Client() as server, Service("compute", Hosts(), client=server):
        call = {"method": "reboot", "args": {"host": "warm"}}
        caller.call(None, "compute", call)
        call = {"method": "reboot", "args": {"host": MARK}}
        sys.setprofile(note)
        try:
            caller.call(None, "compute", call)
        finally:
            sys.setprofile(None)
    return steps


def caller_of(frame: FrameType, shown: set[FrameType]) -> str:
    """The room of the nearest caller that is drawn, or is in another room than ``frame``."""
    own = room_of(frame.f_globals["__name__"]) or PROGRAM
    back = frame.f_back
    while back is not None and back not in shown:
        room = room_of(back.f_globals.get("__name__", ""))
        if room not in (own, None):
            return room or own
        back = back.f_back
    return room_of(back.f_globals["__name__"]) or own if back is not None else own


def diagram(steps: list[Step]) -> Iterator[str]:
    """The lines of a Mermaid sequence diagram of ``steps``."""
    yield "```mermaid"
    yield "sequenceDiagram"
    yield "    autonumber"
    for side, rooms in SIDES.items():
        yield f"    box {side}"
        yield from (f"    participant {identifier(side, room)} as {room}" for room in rooms)
        yield "    end"
    side, before, way = "caller", PROGRAM, iter(("router", "consumer", "router", "caller"))
    module = ""
    for step in steps:
        if step.name in ("Intake.receive", "Uplink.receive"):
            other = next(way)
            yield f"    {identifier(side, 'transport')}-->>{identifier(other, 'transport')}: a batch over ZeroMQ"
            side, before = other, "transport"
        if step.room == "transport":
            # It takes what it sends out of the engine's outbox.
            before = ROUTER if side == "router" else "core/process"
        elif step.by in SIDES[side]:
            before = step.by
        if before != step.room or module != step.module:
            yield f"    {identifier(side, before)}->>{identifier(side, step.room)}: {step.name}"
        if step.room == PROGRAM:
            yield f"    {identifier(side, PROGRAM)}-->>{identifier(side, before)}: what it returns"
        before, module = step.room, step.module
    yield f"    {identifier(side, 'client')}-->>{identifier(side, PROGRAM)}: the result"
    yield "```"


SIDES = {
    "caller": (PROGRAM, "client", "payload", "core/process", "transport"),
    "router": ("transport", ROUTER),
    "consumer": ("transport", "core/process", "client", "payload", PROGRAM),
}


def identifier(side: str, room: str) -> str:
    return f"{side}_{room.rpartition('/')[2]}"


def generated(document: str) -> str:
    """``document`` with its diagram as it should be."""
    drawn = "".join(line + "\n" for line in diagram(traced()))
    pattern = r"(<!-- path: .*? -->\n).*?(<!-- end of path -->\n)"
    document, count = re.subn(pattern, lambda found: found[1] + drawn + found[2], document, flags=re.DOTALL)
    assert count == 1
    return document


@pytest.mark.own_hub
def test_the_diagram_is_up_to_date():
    document = DOCUMENT.read_text()
    assert document == generated(document), "run: python -m tests.test_path_of_a_call"


@pytest.mark.own_hub
def test_a_call_goes_through_every_room_and_home_again():
    rooms = [step.room for step in traced()]
    assert {*ROOMS.values(), PROGRAM} == set(rooms)
    assert (rooms[0], rooms[-1], rooms.count(PROGRAM)) == ("client", "payload", 1)


if __name__ == "__main__":
    DOCUMENT.write_text(generated(DOCUMENT.read_text()))
