"""The topics that are watched and guarded because of suspect calls, and a quick look for such calls."""

from __future__ import annotations

from collections.abc import Iterable

from rpcmq.nodes import Context, Passage
from rpcmq.nodes.poison.evidence import Evidence
from rpcmq.nodes.poison.facts import Suspect, Topic

__all__ = ["Places"]

#: Topics that a node may watch.
_MAX_TOPICS = 1_000
_Shape = tuple[str, str, str, str, int]


class Places:
    """Has the router show the topics of suspect calls, and ask about those of quarantined ones."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._watched: set[Topic] = set()
        self._guarded: set[Topic] = set()
        self._suspect: set[_Shape] = set()
        self._quarantined: set[_Shape] = set()

    def update(self, evidence: Evidence) -> None:
        """Look at the calls that are suspect now."""
        quarantined, suspects = evidence.quarantined.values(), evidence.suspects.values()
        self._quarantined = {_shape_of(each) for each in quarantined}
        self._suspect = {_shape_of(each) for each in suspects} | self._quarantined
        guarded = _topics_of(quarantined)
        watched = guarded | set(sorted(_topics_of(suspects) - guarded)[: _MAX_TOPICS - len(guarded)])
        for exchange, topic in self._guarded - guarded:
            self._context.unguard_topic(topic, exchange)
        for exchange, topic in guarded - self._guarded:
            self._context.guard_topic(topic, exchange)
        for exchange, topic in self._watched - watched:
            self._context.unwatch_topic(topic, exchange)
        for exchange, topic in watched - self._watched:
            self._context.watch_topic(topic, exchange)
        self._watched, self._guarded = watched, guarded

    def may_be_suspect(self, passage: Passage) -> bool:
        """Return whether a call may be one that has killed."""
        return _shape_of_passage(passage) in self._suspect

    def may_be_quarantined(self, passage: Passage) -> bool:
        """Return whether a call may be one that is quarantined."""
        return _shape_of_passage(passage) in self._quarantined


def _topics_of(suspects: Iterable[Suspect]) -> set[Topic]:
    return {each.call.place for each in suspects}


def _shape_of(suspect: Suspect) -> _Shape:
    call = suspect.call
    return call.exchange, call.topic, call.server, call.method, call.size_bytes


def _shape_of_passage(passage: Passage) -> _Shape:
    return passage.exchange, passage.topic, passage.server, passage.method, passage.request_bytes
