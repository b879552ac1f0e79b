"""The answers that operators get: what is quarantined or suspect, and what they release."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from rpcmq.nodes import Ask, Context, ProtocolError
from rpcmq.nodes.poison.evidence import Evidence
from rpcmq.nodes.poison.facts import Suspect
from rpcmq.nodes.poison.story import row_of

__all__ = ["Operators"]

_MAX_ASK_BYTES = 4 << 10
_MAX_ROWS = 2_000
_VERBS = ("show", "release")
#: Seconds that a release waits for the disk.
_KEEP_SECONDS = 3.0


class Operators:
    """Answers the asks of the node.

    Args:
        kills: that it takes for a quarantine.
        release: releases calls, and answers: (now, ask, the calls, their rows).
    """

    def __init__(
        self, context: Context, evidence: Evidence, kills: int,
        release: Callable[[float, Ask, list[Suspect], list[dict[str, Any]]], None],
    ) -> None:  # fmt: skip
        self._context = context
        self._evidence = evidence
        self._kills = kills
        self._release = release
        #: Releases that are not on the disk yet: until when that is waited for (monotonic seconds), and their calls.
        self._waiting: dict[Ask, tuple[float, list[dict[str, Any]]]] = {}

    def take(self, now: float, ask: Ask) -> None:
        """Show what is quarantined, or release it.

        Raises:
            ProtocolError: it makes no sense.
        """
        asked = ask.json_object(_MAX_ASK_BYTES)
        verb, fingerprint, only_revoked = asked.get("do"), asked.get("fingerprint", ""), asked.get("revoked", False)
        if verb not in _VERBS:
            raise ProtocolError(f"do: expected one of {', '.join(_VERBS)}", "poison")
        if not isinstance(fingerprint, str) or not set(fingerprint) <= set("0123456789abcdef"):
            raise ProtocolError("fingerprint: expected hexadecimal digits", "poison")
        if not isinstance(only_revoked, bool):
            raise ProtocolError("revoked: expected true or false", "poison")
        if not ask.require(str(verb)):
            return
        found = self._named(ask, fingerprint)
        if found is None:
            return
        if verb == "release":
            found = [each for each in found if fingerprint or each.quarantined_at is not None]
        if only_revoked:
            found = [each for each in found if self._is_of_revoked_keys(each)]
        rows = [self._row(now, each) for each in found[:_MAX_ROWS]]
        if verb == "release":
            self._release(now, ask, found, rows)
        else:
            self._answer(ask, rows, "")

    # --- releases that wait for the disk -----------------------------------------------------

    def answer_release(self, now: float, ask: Ask, rows: list[dict[str, Any]]) -> None:
        """Tell who has released the calls of ``rows``, once that is on the disk, or cannot be put there."""
        if self._context.keeps and rows:
            self._waiting[ask] = now + _KEEP_SECONDS, rows
        else:
            self._answer(ask, rows, "")

    def kept(self, problem: str) -> None:
        """All changes until now are on the disk; or not, because of ``problem``."""
        while self._waiting:
            ask, (_, rows) = self._waiting.popitem()
            self._answer(ask, rows, problem)

    def ask_ended(self, ask: Ask) -> None:
        """Nobody waits for an answer any more."""
        self._waiting.pop(ask, None)

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        return min((due for due, _ in self._waiting.values()), default=inf)

    def tick(self, now: float) -> None:
        """Answer those who have waited for long."""
        for ask in [ask for ask, (due, _) in self._waiting.items() if due <= now]:
            self._answer(ask, self._waiting.pop(ask)[1], f"the disk takes longer than {_KEEP_SECONDS:g} s")

    def _answer(self, ask: Ask, rows: list[dict[str, Any]], not_kept: str) -> None:
        answer = {"router": self._context.router, "node": self._context.name, "calls": rows}
        ask.answer_json(answer | ({"not_kept": not_kept} if not_kept else {}))

    # --- rows --------------------------------------------------------------------------------

    def _named(self, ask: Ask, fingerprint: str) -> list[Suspect] | None:
        """The calls that ``fingerprint`` begins the name of: one, or all if it is empty; None: the ask is refused."""
        evidence = self._evidence
        found = [*evidence.quarantined.values(), *evidence.suspects.values()]
        if not fingerprint:
            return found
        found = [each for each in found if each.call.fingerprint.startswith(fingerprint)]
        if len(found) == 1:
            return found
        if found:
            ask.refuse(f"{len(found)} calls have a fingerprint that begins with {fingerprint}: give more of its digits")
        else:
            ask.refuse(f"no call with a fingerprint {fingerprint} is quarantined or suspect at this router")
        return None

    def rows(self, now: float) -> Iterator[dict[str, Any]]:
        """The calls that are quarantined, then those that are suspect."""
        for suspect in [*self._evidence.quarantined.values(), *self._evidence.suspects.values()]:
            yield self._row(now, suspect)

    def _row(self, now: float, suspect: Suspect) -> dict[str, Any]:
        since = suspect.touched_at if suspect.quarantined_at is None else suspect.quarantined_at
        row = row_of(suspect, self._evidence.chance_of(now, suspect), self._context.wall_ms(since))
        return row | {"revoked_keys": self._revoked_keys(suspect), "revoked": self._is_of_revoked_keys(suspect)}

    def _revoked_keys(self, suspect: Suspect) -> list[str]:
        """The keys of consumers that it has killed, but for those that this router lets in."""
        return sorted(key for key in suspect.keys if key and not self._context.knows_key(key))

    def _is_of_revoked_keys(self, suspect: Suspect) -> bool:
        """Return whether it is quarantined for deaths of consumers whose key this router does not let in any more."""
        revoked = self._revoked_keys(suspect)
        others = sum(kill.death.key not in revoked for kill in suspect.kills)
        return suspect.quarantined_at is not None and bool(revoked) and others < self._kills
