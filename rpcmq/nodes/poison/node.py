"""Poison: a call that has killed consumers is kept from further ones until an operator releases it.

While nothing has died nothing is watched, and calls and casts cost what they cost without this node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from rpcmq.nodes import Ask, Context, Loss, Node, Passage, Peer, ProtocolError, Stop, integer, number, seconds, setting
from rpcmq.nodes.poison import facts
from rpcmq.nodes.poison.archive import Archive, ends_of
from rpcmq.nodes.poison.evidence import Evidence, Verdict
from rpcmq.nodes.poison.facts import CallName, Death, Flight, Suspect
from rpcmq.nodes.poison.news import (
    death_of,
    flights_of,
    loss_of,
    quarantine_of,
    serving_of,
    text_of,
    told_death,
    told_flights,
    told_loss,
)
from rpcmq.nodes.poison.operators import Operators
from rpcmq.nodes.poison.places import Places
from rpcmq.nodes.poison.story import kill_row, name_of, story_of
from rpcmq.nodes.poison.telling import LOSSES, Telling

__all__ = ["POISON_KIND", "Poison"]

POISON_KIND = 0x81
#: Calls that a consumer had, and bytes of their payloads, beyond which its death says nothing about any of them.
_MAX_FLIGHTS, _MAX_FLIGHT_BYTES = 1_000, 32 << 20
#: Bytes of a payload that count, as for a fingerprint.
_MOST_BYTES = 1 << 20
_MAX_SUSPECTS = 2_000
#: Silence before a connection is lost, in seconds, that speaks for a failure of the host or of the network.
_SILENT_SECONDS = 12.0
#: Seconds after which it is looked again under which keys suspect calls are served.
_LOOK_SECONDS = 2.0
_IS_BACK = "a consumer that was taken for dead is back"
_HOST_FAILED = "its host has failed: another consumer there was lost at the same time"
_OTHERS_DIE = "so many consumers die without it as well that it need not have killed those which had it"
_ARE_CALM = "others died without it as well, so that it need not have killed those which had it, and none dies any more"


@dataclass(frozen=True)
class PoisonSettings:
    """Settings of the node type ``poison``."""

    kills: int = setting(2, integer(2, 10), "consumers that a call must have killed to be quarantined")
    kills_of_one_key: int = setting(
        6, integer(2, 10), "the same where consumers have several keys, and all that have died had one; at least kills"
    )
    within: float = setting(10.0, seconds(0.01, 3600.0), "seconds after it was given a call in which a death is a kill")
    memory: float = setting(600.0, seconds(1, 7 * 86400.0), "seconds for which a death is remembered")
    chance: float = setting(0.001, number(1e-12, 1.0), "probability of so many kills by chance, at most")
    lasts: float = setting(7 * 86400.0, seconds(1, 365 * 86400.0), "seconds after which a quarantine ends by itself")
    max_quarantined: int = setting(200, integer(1, 1000), "calls that are quarantined at a time")


class Poison(Node):
    """Quarantines calls that kill."""

    Settings = PoisonSettings
    kinds = {POISON_KIND: ""}  # noqa: RUF012 - as a plug-in writes it
    views = ("calls",)

    def __init__(self, context: Context, settings: PoisonSettings) -> None:
        super().__init__(context, settings)
        self._evidence = Evidence(
            settings.kills, settings.within, settings.memory, settings.chance, context.now, _MAX_SUSPECTS,
            settings.max_quarantined, settings.kills_of_one_key,
        )  # fmt: skip
        self._telling = Telling(context, self._evidence.serving_keys)
        self._archive = Archive(context, settings.lasts, context.log)
        self._places = Places(context)
        self._operators = Operators(context, self._evidence, settings.kills, self._release)
        #: The name of the session of each process that was away, until that ends.
        self._processes: dict[Peer, str] = {}
        self._last_number = 0
        self._looked_at = context.now
        names = ("deaths", "kills", "quarantined", "stopped", "answered", "lifted", "released", "unjudged")
        self._counts = Counter(dict.fromkeys(names, 0))
        self._restore(context.now)

    def _restore(self, now: float) -> None:
        if count := self._archive.restore(now, self._evidence):
            self._places.update(self._evidence)
            self.context.log(now, "restored", f"quarantines that were in force when the router ended: {count}")

    def close(self, now: float) -> None:
        """Keep how many calls were stopped."""
        for suspect in self._evidence.quarantined.values():
            self._archive.keep(now, suspect)

    # --- losses ------------------------------------------------------------------------------

    def consumer_away(self, now: float, loss: Loss) -> None:
        """Note it: another loss at the same time is no death of its own."""
        lost = self._lost(loss)
        self._evidence.away(lost)
        self._telling.tell(now, "away", loss=told_loss(lost, now))

    def consumer_back(self, now: float, peer: Peer) -> None:
        """No call has killed it."""
        process = self._process_of(peer)
        self._follow(now, self._evidence.back(process), _IS_BACK)
        self._telling.tell(now, "back", process=process)

    def peer_ended(self, now: float, peer: Peer, reason: str) -> None:
        """It cannot come back."""
        self._processes.pop(peer, None)

    def consumer_gone(self, now: float, loss: Loss) -> None:
        """Judge the calls that it had."""
        self._counts["deaths"] += 1
        flights = self._flights_of(loss)
        if flights is None:
            self._counts["unjudged"] += 1
            return
        death = Death(
            self._lost(loss),
            loss.peer.identity,
            consumers=loss.topics,
            router=self.context.router,
            at_ms=self.context.wall_ms(loss.lost_at),
            description=loss.description | ({"key": loss.peer.key} if loss.peer.key else {}),
            is_sudden=not loss.is_leaving and loss.silent_seconds < _SILENT_SECONDS,
        )
        self._telling.serving(now, (flight.call.address for flight in flights.values()))
        verdict = self._evidence.gone(now, death, flights)
        killed = [flight for name, flight in flights.items() if self._has_killed(name, death)]
        self._counts["kills"] += len(killed)
        told = told_flights(killed, now)
        self._telling.tell(now, "gone", death=told_death(death, now), flights=told, count=len(flights))
        self._follow(now, verdict, _HOST_FAILED)
        if verdict.quarantined is not None:
            self._telling.quarantine(now, verdict.quarantined)

    def _has_killed(self, fingerprint: str, death: Death) -> bool:
        suspect = self._evidence.find(fingerprint)
        return suspect is not None and any(kill.death is death for kill in suspect.kills)

    def _flights_of(self, loss: Loss) -> dict[str, Flight] | None:
        """The calls that it had, by fingerprint; None: they are too many to look at."""
        if loss.count > _MAX_FLIGHTS:
            return None
        size_bytes = 0
        flights: dict[str, Flight] = {}
        for passage in loss.in_flight():
            size_bytes += min(passage.request_bytes, _MOST_BYTES)
            if size_bytes > _MAX_FLIGHT_BYTES:
                return None
            call = CallName(
                passage.fingerprint, passage.exchange, passage.topic, passage.server, passage.method, passage.format,
                passage.request_bytes,
            )  # fmt: skip
            flight = Flight(call, passage.given_at, passage.id, passage.caller, passage.attempt)
            former = flights.get(call.fingerprint)
            if former is None or former.given_at < flight.given_at:
                flights[call.fingerprint] = flight
        return flights

    def _lost(self, loss: Loss) -> facts.Loss:
        told = loss.description
        instance = (told["host"], told["pid"]) if "host" in told and "pid" in told else None
        return facts.Loss(loss.lost_at, self._process_of(loss.peer), instance)

    def _process_of(self, peer: Peer) -> str:
        """The name of a session, which no other one of the mesh has."""
        process = self._processes.get(peer)
        if process is None:
            self._last_number += 1
            context = self.context
            process = self._processes[peer] = f"{context.router:.200} {context.boot} {self._last_number}"
        return process

    def _follow(self, now: float, verdict: Verdict, why: str, why_doubted: str = _OTHERS_DIE) -> None:
        for suspect in verdict.lifted:
            self._note_lifted(now, suspect, why)
        for suspect in verdict.doubted:
            self._note_lifted(now, suspect, why_doubted)
            # Those that have not heard of all deaths would go on stopping it.
            self._telling.tell(now, "doubted", fingerprint=suspect.call.fingerprint)
        if verdict.quarantined is not None:
            self._note_quarantine(now, verdict.quarantined)
        self._places.update(self._evidence)

    def _note_lifted(self, now: float, suspect: Suspect, why: str) -> None:
        self._counts["lifted"] += 1
        self._archive.end(now, suspect.call.fingerprint, now)
        text = f"{name_of(suspect)} is let through again: {why}"
        self.context.log(now, "lifted", text, fields=self._audit(now, suspect))

    def _note_quarantine(self, now: float, suspect: Suspect, says: str = "") -> None:
        self._counts["quarantined"] += 1
        self._archive.keep(now, suspect)
        self.context.log(now, "quarantined", story_of(suspect) + says, fields=self._audit(now, suspect))

    # --- calls -------------------------------------------------------------------------------

    def stops(self, passage: Passage) -> Stop | None:
        """Stop what is quarantined."""
        if not self._places.may_be_quarantined(passage):
            return None
        suspect = self._evidence.quarantined.get(passage.fingerprint)
        if suspect is None:
            return None
        suspect.stopped += 1
        self._counts["stopped"] += 1
        call = suspect.call
        may_have_run = bool(passage.attempt)
        text = story_of(suspect) + ("; it may have run" if may_have_run else "")
        return Stop(text, {
            "quarantine": call.fingerprint, "topic": call.topic, "exchange": call.exchange, "method": call.method,
            "started": "unknown" if may_have_run else "no", "router": self.context.router,
            "kills": [kill_row(kill) for kill in suspect.kills[-3:]],
        })  # fmt: skip

    def passed(self, passage: Passage) -> None:
        """A consumer that answers such a call has survived it."""
        is_answer = passage.what in ("reply", "fault", "end") or passage.outcome in ("ok", "remote_error")
        if not is_answer or not self._places.may_be_suspect(passage):
            return
        suspect = self._evidence.answered(passage.fingerprint)
        if suspect is None:
            return
        self._counts["answered"] += 1
        self._telling.tell(passage.now, "answered", fingerprint=suspect.call.fingerprint)
        if suspect.quarantined_at is not None:
            self._archive.end(passage.now, suspect.call.fingerprint, passage.now)
            text = f"{name_of(suspect)} is let through again: {passage.consumer} has answered one"
            self.context.log(passage.now, "lifted", text, passage.consumer, self._audit(passage.now, suspect))
        self._places.update(self._evidence)

    # --- other routers -----------------------------------------------------------------------

    def router_joined(self, now: float, router: str) -> None:
        """Tell it what is quarantined here, and under which keys suspect calls are served."""
        self._evidence.serving_keys.forget_told()
        self._telling.serving(now, (each.call.address for each in self._evidence.suspects.values()))
        self._telling.ends(now, self._archive.told(now), router)
        for suspect in self._evidence.quarantined.values():
            self._telling.quarantine(now, suspect, router)

    def told(self, now: float, router: str, news: Mapping[str, Any]) -> None:
        """Take what another router knows."""
        if news.get("do") in LOSSES:
            self._told_of_loss(now, news)
        else:
            self._told_of_call(now, router, news)
        self._places.update(self._evidence)

    def _told_of_loss(self, now: float, news: Mapping[str, Any]) -> None:
        judge = self._evidence
        match news["do"]:
            case "away":
                judge.away(loss_of(news.get("loss"), now))
            case "back":
                self._follow(now, judge.back(text_of(news.get("process"), "process")), _IS_BACK)
            case _:
                flights, count = flights_of(news.get("flights"), now), news.get("count")
                death = death_of(news.get("death"), now)
                self._telling.serving(now, (flight.call.address for flight in flights.values()))
                verdict = judge.gone(now, death, flights, count if type(count) is int else 0)
                self._follow(now, verdict, _HOST_FAILED)
                if verdict.quarantined is not None:
                    # Those that have heard of other deaths than this one would let it through.
                    self._telling.quarantine(now, verdict.quarantined)

    def _told_of_call(self, now: float, router: str, news: Mapping[str, Any]) -> None:
        judge = self._evidence
        match news.get("do"):
            case "serves":
                serving = serving_of(news.get("serving"))
                for address, keys in serving.items():
                    judge.serving_keys.note(now, address, keys)
                self._telling.serving(now, serving)
            case "doubted":
                doubted = judge.find(text_of(news.get("fingerprint"), "fingerprint"))
                if doubted is not None and judge.let_through(doubted):
                    self._note_lifted(now, doubted, f"{_OTHERS_DIE} (router {router} says so)")
            case "answered" | "release":
                self._let_go(now, router, text_of(news.get("fingerprint"), "fingerprint"), news)
            case "ended":
                for fingerprint, ended_at in ends_of(news, now):
                    self._note_ended(now, router, fingerprint, ended_at)
            case "quarantined":
                suspect, since = quarantine_of(news.get("quarantine"), now)
                if self._archive.has_ended(suspect.call.fingerprint, since):
                    self._telling.ends(now, self._archive.told(now, [suspect.call.fingerprint]), router)
                elif judge.adopt(suspect, since):
                    self._note_quarantine(now, suspect, f" (router {router} says so)")
            case _:
                raise ProtocolError("news of an unknown sort", "poison")

    def _note_ended(self, now: float, router: str, fingerprint: str, ended_at: float) -> None:
        """Another router knows that a quarantine has ended: so has that of here, if it is no later one."""
        suspect = self._evidence.quarantined.get(fingerprint)
        if suspect is None or suspect.quarantined_at is None:
            self._archive.end(now, fingerprint, ended_at)
        elif suspect.quarantined_at < ended_at:
            self._evidence.release(fingerprint)
            self._note_lifted(now, suspect, f"its quarantine has ended at router {router} meanwhile")

    def _let_go(self, now: float, router: str, fingerprint: str, news: Mapping[str, Any]) -> None:
        suspect = self._evidence.release(fingerprint)
        if suspect is None or suspect.quarantined_at is None:
            return
        if news.get("do") == "release":
            self._counts["released"] += 1
            self._archive.end(now, fingerprint, now)
            text = f"{text_of(news.get('by'), 'by')} has released {name_of(suspect)} at router {router}"
            self.context.log(now, "released", text, fields=self._audit(now, suspect))
        else:
            self._note_lifted(now, suspect, f"one was answered at router {router}")

    # --- operators ---------------------------------------------------------------------------

    def take(self, now: float, ask: Ask) -> None:
        """Show what is quarantined, or release it."""
        self._operators.take(now, ask)

    def _release(self, now: float, ask: Ask, released: list[Suspect], rows: list[dict[str, Any]]) -> None:
        for suspect in released:
            self._evidence.release(suspect.call.fingerprint)
            self._counts["released"] += 1
            self._archive.end(now, suspect.call.fingerprint, now)
            killed = f"which had killed {len(suspect.kills)} consumers"
            text = f"{ask.peer.identity} has released {name_of(suspect)}, {killed}"
            fields = self._audit(now, suspect) | {"by": ask.peer.identity, "key": ask.peer.key}
            self.context.log(now, "released", text, ask.peer.identity, fields)
            self._telling.tell(now, "release", fingerprint=suspect.call.fingerprint, by=ask.peer.identity)
        self._places.update(self._evidence)
        self._operators.answer_release(now, ask, rows)

    def was_kept(self, now: float, problem: str) -> None:
        """Tell those whose releases are on the disk now."""
        self._operators.kept(problem)

    def ask_ended(self, now: float, ask: Ask) -> None:
        """Nobody waits for it any more."""
        self._operators.ask_ended(ask)

    def view(self, now: float, name: str) -> Iterator[Mapping[str, Any]]:
        """The calls that are quarantined, then those that are suspect."""
        return self._operators.rows(now)

    def _audit(self, now: float, suspect: Suspect) -> dict[str, Any]:
        call = suspect.call
        return {
            "fingerprint": call.fingerprint, "topic": call.topic, "exchange": call.exchange, "method": call.method,
            "stopped": suspect.stopped, "kills": [kill_row(kill) for kill in suspect.kills],
        }  # fmt: skip

    def metrics(self) -> Mapping[str, float]:
        """Deaths of consumers, kills, and what has become of calls."""
        return {**self._counts, "excused": self._evidence.excused}

    # --- time --------------------------------------------------------------------------------

    def next_deadline(self) -> float:
        """The time of the next :meth:`tick` (monotonic seconds)."""
        ends = (each.quarantined_at for each in self._evidence.quarantined.values())
        first = min((at for at in ends if at is not None), default=inf)
        lasts: float = self.settings.lasts
        look = self._looked_at + _LOOK_SECONDS if self._evidence.suspects else inf
        others = self._archive.next_deadline(), self._operators.next_deadline()
        return min(self._evidence.next_deadline(), first + lasts, look, *others)

    def tick(self, now: float) -> None:
        """Forget what is old, and look what is new."""
        self._evidence.forget_old(now)
        self._archive.forget_old(now)
        self._operators.tick(now)
        if now >= self._looked_at + _LOOK_SECONDS:
            self._looked_at = now
            self._telling.serving(now, (each.call.address for each in self._evidence.suspects.values()))
        for suspect in list(self._evidence.quarantined.values()):
            if suspect.quarantined_at is not None and suspect.quarantined_at + self.settings.lasts <= now:
                self._evidence.release(suspect.call.fingerprint)
                self._note_lifted(now, suspect, f"lasts = {self.settings.lasts:g} s are over")
        self._follow(now, self._evidence.calm(now), "", _ARE_CALM)
