"""Nodes that do what a node must not do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from math import nan
from time import monotonic, sleep
from typing import Any, ClassVar

from rpcmq.nodes import Ask, Context, Node, Peer, ProtocolError

KIND = 0x90


class Obedient(Node):
    """Answers each ask with what it was asked; the base of the others."""

    kinds: ClassVar[Mapping[int, str]] = {KIND: "ask"}
    controls = ("do",)
    views = ("rows",)

    def take(self, now: float, ask: Ask) -> None:
        ask.answer(ask.payload)

    def control(self, now: float, name: str, peer: Peer, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"did": dict(arguments)}

    def view(self, now: float, name: str) -> Iterable[Mapping[str, Any]]:
        return ({"row": number} for number in range(12))

    def metrics(self) -> Mapping[str, float]:
        return {"answers": 1}


class RaisesIn(Obedient):
    """Raises in one of its methods, once it was made."""

    where = ""
    error: type[BaseException] = RuntimeError

    def __init__(self, context: Context, settings: Any) -> None:
        super().__init__(context, settings)
        self._raise("__init__")

    def _raise(self, where: str) -> None:
        if where == self.where:
            raise self.error(f"on purpose in {where}")

    def take(self, now: float, ask: Ask) -> None:
        self._raise("take")
        self.kept = ask

    def ask_ended(self, now: float, ask: Ask) -> None:
        self._raise("ask_ended")

    def control(self, now: float, name: str, peer: Peer, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        self._raise("control")
        return {}

    def view(self, now: float, name: str) -> Iterator[Mapping[str, Any]]:
        for number in range(12):
            if number == 7:
                self._raise("view")
            yield {"row": number}

    def metrics(self) -> Mapping[str, float]:
        self._raise("metrics")
        return {}

    def tick(self, now: float) -> None:
        self._raise("tick")

    def next_deadline(self) -> float:
        self._raise("next_deadline")
        return 1001.0

    def peer_ended(self, now: float, peer: Peer, reason: str) -> None:
        self._raise("peer_ended")

    def begin_drain(self, now: float) -> None:
        self._raise("begin_drain")

    def close(self, now: float) -> None:
        self._raise("close")


class Exits(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        raise SystemExit(3)


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text either")


class RaisesTheUnspeakable(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        raise Unspeakable


class UnspeakableRefusal(ProtocolError):
    def __str__(self) -> str:
        raise ValueError("no text either")


class RefusesWithoutWords(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        raise UnspeakableRefusal("x", "y" * 10_000)


class Loops(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        while True:
            pass


class Sleeps(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        sleep(600)


class Searches(Obedient):
    """Is busy within a C function."""

    def take(self, now: float, ask: Ask) -> None:
        re.match("(a+)+$", "a" * 60 + "b")


class LoopsAndCatches(Obedient):
    """Goes on after all that is an Exception."""

    def take(self, now: float, ask: Ask) -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue


class Hoards(Obedient):
    def __init__(self, context: Context, settings: Any) -> None:
        super().__init__(context, settings)
        self.kept: list[bytes] = []

    def take(self, now: float, ask: Ask) -> None:
        self.kept.append(ask.payload)
        ask.answer()


HOARD: list[bytes] = []


class HoardsInItsModule(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        HOARD.append(ask.payload)
        ask.answer()


class Keeps(Obedient):
    """Answers nothing."""

    def take(self, now: float, ask: Ask) -> None:
        self.kept = ask


class AnswersTwice(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        assert ask.answer(b"first") and not ask.answer(b"second")
        ask.refuse("third")


class AnswersUnchecked(Obedient):
    kinds: ClassVar[Mapping[int, str]] = {KIND: ""}


class Checks(Obedient):
    kinds: ClassVar[Mapping[int, str]] = {KIND: ""}

    def take(self, now: float, ask: Ask) -> None:
        if ask.require(ask.payload.decode()):
            ask.answer(b"yes")


class Deadline(Obedient):
    value: Any = nan

    def next_deadline(self) -> Any:
        return self.value


class AlwaysDue(Obedient):
    def __init__(self, context: Context, settings: Any) -> None:
        super().__init__(context, settings)
        self.ticks = 0

    def tick(self, now: float) -> None:
        self.ticks += 1

    def next_deadline(self) -> float:
        return 0.0


class WorksAllTheTime(AlwaysDue):
    """Each of its ticks takes 20 ms."""

    def tick(self, now: float) -> None:
        super().tick(now)
        until = monotonic() + 0.02
        while monotonic() < until:
            pass


class Answers(Obedient):
    """Answers its control, and fills its view, with what is no JSON or too large."""

    value: Any = None

    def control(self, now: float, name: str, peer: Peer, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        answer: Mapping[str, Any] = self.value
        return answer

    def view(self, now: float, name: str) -> Iterable[Mapping[str, Any]]:
        return [{"value": self.value}]

    def metrics(self) -> Mapping[str, float]:
        return {"value": self.value}


class SendsTooMuch(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        ask.answer(bytes(4 << 20))


class LogsTooMuch(Obedient):
    def take(self, now: float, ask: Ask) -> None:
        for _ in range(1000):
            self.context.log(now, "noise", "x" * 10_000)
        ask.answer()
