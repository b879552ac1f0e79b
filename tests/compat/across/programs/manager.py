"""The manager that the services of these tests run. ``context`` comes first: right by keyword and by position."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from gevent.event import Event


class Manager:
    """Methods of every kind, and a record of what was run."""

    RPC_API_VERSION = "1.2"

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.started: list[Any] = []
        self._gates: dict[str, Event] = {}

    # --- for the test ------------------------------------------------------------------------

    def take(self) -> list[Any]:
        """Return and forget the notes so far."""
        seen, self.seen = self.seen, []
        return seen

    def gate(self, name: str) -> Event:
        """Set it, and who waits there goes on."""
        return self._gates.setdefault(name, Event())

    # --- values ------------------------------------------------------------------------------

    def add(self, context: Any, a: int, b: int) -> int:
        return a + b

    def echo(self, context: Any, value: Any) -> Any:
        return value

    def context_last(self, a: int, context: Any) -> Any:
        return [a, context.to_dict()["request_id"]]

    def who(self, context: Any) -> Any:
        return context.to_dict()

    def fail(self, context: Any, text: str) -> None:
        raise ValueError(text)

    def exit(self, context: Any, code: int) -> None:
        raise SystemExit(code)

    def unserializable(self, context: Any) -> Any:
        return {"fine": 1, "thing": object()}

    def reply_a_thing(self, context: Any) -> None:
        context.reply(object())

    # --- several values ----------------------------------------------------------------------

    def count(self, context: Any, n: int) -> Iterator[int]:
        yield from range(n)

    def nones(self, context: Any, n: int) -> Iterator[None]:
        for _ in range(n):
            yield None

    def count_and_fail(self, context: Any, n: int) -> Iterator[int]:
        yield from range(n)
        raise KeyError("after the last")

    def reply(self, context: Any, values: list[Any]) -> None:
        for value in values:
            context.reply(value)

    def reply_and_return(self, context: Any, values: list[Any]) -> Any:
        for value in values[:-1]:
            context.reply(value)
        return values[-1]

    def reply_past_the_end(self, context: Any, values: list[Any]) -> str:
        for value in values:
            context.reply(value)
        context.reply(ending=True)
        context.reply("too late")
        return "too late as well"

    def note_each(self, context: Any, n: int) -> Iterator[int]:
        for number in range(n):
            self.seen.append(number)
            yield number
        self.seen.append("end")

    # --- time --------------------------------------------------------------------------------

    def note(self, context: Any, value: Any) -> None:
        self.seen.append(value)

    def wait(self, context: Any, gate: str, value: Any = None) -> Any:
        """Until the test, or another message, opens the gate."""
        self.started.append(gate)
        self.gate(gate).wait()
        self.seen.append(("passed", gate))
        return value

    def open(self, context: Any, gate: str) -> None:
        self.gate(gate).set()

    def slow_count(self, context: Any, n: int, seconds: float) -> Iterator[int]:
        for number in range(n):
            time.sleep(seconds)
            yield number

    # --- further calls -----------------------------------------------------------------------

    def ask(self, context: Any, where: str, what: str, args: dict[str, Any], seconds: float | None = None) -> Any:
        from nova import rpc

        return rpc.call(context, where, {"method": what, "args": args}, seconds)
