"""The quarantines that outlive a router, and the ends of quarantines, so that nobody brings back what has ended.

Each is a row that the router keeps under the fingerprint of the call: a quarantine with its story, or the time at which
it has ended. A router that was away meanwhile has an older row, and believes the newer one of others. Times are ages
between routers, and of the wall clock in the rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rpcmq.nodes import Context, ProtocolError
from rpcmq.nodes.poison.evidence import Evidence
from rpcmq.nodes.poison.facts import Suspect
from rpcmq.nodes.poison.news import age_of, count_of, list_of, quarantine_of, text_of, told_quarantine

__all__ = ["Archive", "ends_of"]

#: The version of a row; one with another number is left alone.
_VERSION = 1
#: Ends that are remembered, and that are told in one message.
_MAX_ENDS, _MAX_TOLD = 2_000, 100


class Archive:
    """Keeps what is quarantined, and what was.

    Args:
        lasts: seconds after which a quarantine ends by itself, and its end is forgotten.
        log: writes to the router's log: (now, event, text).
    """

    def __init__(self, context: Context, lasts: float, log: Callable[[float, str, str], None]) -> None:
        self._context = context
        self._lasts = lasts
        self._log = log
        #: The times at which quarantines have ended (monotonic seconds), by fingerprint, the earliest first.
        self._ends: OrderedDict[str, float] = OrderedDict()

    # --- the disk ----------------------------------------------------------------------------

    def restore(self, now: float, evidence: Evidence) -> int:
        """Have ``evidence`` quarantine what was when the router, or the node, has ended; return how much that is."""
        count = 0
        wall_ms = self._context.wall_ms(now)
        for fingerprint, row in self._context.kept().items():
            if row.get("version") != _VERSION:
                text = f"{fingerprint[:12]} is of version {row.get('version')!r:.20}, and this rpcmq knows {_VERSION}"
                self._log(now, "not restored", f"{text}: it stays in the file as it is")
                continue
            try:
                age = max(0.0, wall_ms - count_of(row.get("at_ms"), "at_ms")) / 1000
                if "quarantine" not in row:
                    self._note_end(fingerprint, now - age)
                    continue
                suspect, since = quarantine_of(row["quarantine"], now - age)
                suspect.stopped = count_of(row.get("stopped"), "stopped")
                if suspect.call.fingerprint != fingerprint:
                    raise ProtocolError("fingerprint: is that of another call", "poison")
            except ProtocolError as error:
                self._log(now, "not restored", f"{fingerprint[:12]} makes no sense, and is forgotten: {error}")
                self._keep(now, fingerprint, None)
                continue
            if evidence.adopt(suspect, since):
                count += 1
            else:
                text = f"{fingerprint[:12]} is let through: max_quarantined calls are quarantined already"
                self._log(now, "not restored", text)
                self._keep(now, fingerprint, None)
        self._ends = OrderedDict(sorted(self._ends.items(), key=lambda end: end[1]))
        self.forget_old(now)
        return count

    def keep(self, now: float, suspect: Suspect) -> None:
        """Keep that ``suspect`` is quarantined, and its story."""
        self._ends.pop(suspect.call.fingerprint, None)
        row = {"quarantine": told_quarantine(suspect, now), "stopped": suspect.stopped}
        self._keep(now, suspect.call.fingerprint, row)

    def end(self, now: float, fingerprint: str, ended_at: float) -> None:
        """Keep that a quarantine has ended."""
        self._note_end(fingerprint, ended_at)
        self._keep(now, fingerprint, {}, ended_at)
        while len(self._ends) > _MAX_ENDS:
            self._keep(now, self._ends.popitem(last=False)[0], None)

    def _note_end(self, fingerprint: str, ended_at: float) -> None:
        self._ends[fingerprint] = max(ended_at, self._ends.pop(fingerprint, ended_at))

    def _keep(self, now: float, fingerprint: str, row: dict[str, Any] | None, at: float | None = None) -> None:
        if row is not None:
            row = {"version": _VERSION, "at_ms": self._context.wall_ms(now if at is None else at), **row}
        try:
            self._context.keep(fingerprint, row)
        except ValueError as error:
            self._log(now, "not kept", f"{fingerprint[:12]} is forgotten when the router ends: {error}")

    # --- other routers -----------------------------------------------------------------------

    def has_ended(self, fingerprint: str, since: float) -> bool:
        """Return whether a quarantine that began then (monotonic seconds) has ended, as far as is known here."""
        ended_at = self._ends.get(fingerprint)
        return ended_at is not None and ended_at > since

    def told(self, now: float, fingerprints: Iterable[str] = ()) -> Iterator[list[list[Any]]]:
        """The ends of the quarantines of ``fingerprints``, or of all, for other routers: a message each."""
        names = list(fingerprints) or list(self._ends)
        ends = [[name, now - self._ends[name]] for name in names]
        return (ends[at : at + _MAX_TOLD] for at in range(0, len(ends), _MAX_TOLD))

    # --- time --------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """The time of the next :meth:`forget_old` (monotonic seconds)."""
        return next(iter(self._ends.values()), float("inf")) + self._lasts

    def forget_old(self, now: float) -> None:
        """Forget ends of quarantines that would have ended by themselves by now."""
        while self._ends and self.next_deadline() <= now:
            self._keep(now, self._ends.popitem(last=False)[0], None)


def ends_of(news: Mapping[str, Any], now: float) -> list[tuple[str, float]]:
    """Read what :meth:`Archive.told` has made: fingerprints, and when their quarantines have ended.

    Raises:
        ProtocolError: it makes no sense.
    """
    rows = (list_of(each, "end", 2) for each in list_of(news.get("ends"), "ends", _MAX_TOLD))
    pairs = ((*row, None, None)[:2] for row in rows)
    return [(text_of(name, "fingerprint"), now - age_of(age)) for name, age in pairs]
