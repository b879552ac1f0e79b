"""The reason for which no queue server answers, as a router tells it: whether one may still come, and what to do."""

from __future__ import annotations

from collections.abc import Mapping

from rpcmq.errors import CallError, NoConsumer

__all__ = ["Absence", "absent", "in_words"]

_NONE = "no router of this mesh has a queue server: rpcmq router --queue-dir DIR"
#: The states of queue servers, as their routers tell them, in words.
_WORDS = {
    "starting": "is starting",
    "serving": "is not linked at present",
    "draining": "ends, with its router",
    "silent": "does not answer",
    "waiting": "waits",
    "unavailable": "is unavailable",
}


class Absence:
    """The absence of queue servers.

    Args:
        states: of all that there are, as ``starting`` or ``unavailable: REASON``, by the name of their router.
        are_all: there are no others.
    """

    def __init__(self, states: Mapping[str, str], are_all: bool) -> None:
        self.states = states
        self._are_all = are_all

    @property
    def is_final(self) -> bool:
        """Whether no queue server is to be expected: there is none, or none that can work as things are."""
        return self._are_all and all(_word(state) == "unavailable" for state in self.states.values())

    def is_without(self, owner: str) -> bool:
        """Return whether the router ``owner`` is known to have none."""
        return owner not in self.states and self._are_all

    def is_unavailable(self, owner: str) -> bool:
        """Return whether that of ``owner`` cannot work as things are."""
        return _word(self.states.get(owner, "")) == "unavailable"

    def text(self, owner: str = "") -> str:
        """Say how the queue servers, or that of ``owner``, are; a sentence without its end."""
        if owner and owner not in self.states:
            return f"router {owner!r} has no queue server, or is not there: rpcmq router --queue-dir DIR"
        states = {owner: self.states[owner]} if owner else self.states
        told = (f"the queue server of {name} {in_words(state)}" for name, state in states.items())
        return "; ".join(told) or (_NONE if self._are_all else f"{_NONE}; not all routers are known")


def absent(error: CallError) -> Absence | None:
    """The absence that ``error`` tells of; None: it is another error, or that of a router of an earlier version."""
    if not isinstance(error, NoConsumer) or not isinstance(error.details.get("queue_servers"), dict):
        return None
    return Absence(error.details["queue_servers"], bool(error.details.get("queue_servers_all")))


def in_words(state: str) -> str:
    """The state of a queue server as a predicate."""
    word, _, reason = state.partition(": ")
    words = _WORDS.get(word, word)
    return f"{words}: {reason}" if reason else words


def _word(state: str) -> str:
    return state.partition(": ")[0]
