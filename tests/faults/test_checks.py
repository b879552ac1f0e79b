"""Each check finds the history that breaks it, names the ids, and leaves the one that does not alone."""

from __future__ import annotations

from time import monotonic, sleep

import gevent
import pytest

from rpcmq.drill.checks import Checker, check
from rpcmq.drill.history import ANSWERS, SILENT, Event, What
from rpcmq.drill.stalls import StallWatch
from rpcmq.testing import eventually
from tests.faults.histories import (
    BACK,
    CONFIRMED,
    FULL,
    KILLED,
    LATER,
    RESTARTED,
    SILENT_ROUTER,
    UP,
    WELL,
    Line,
    accept,
    busy,
    cast,
    confirm,
    counted,
    declared,
    dispatch,
    done,
    dropped,
    dropped_in_all,
    end,
    exited,
    fault,
    finish,
    healed,
    linked,
    misspelt,
    quick_calls,
    returned,
    says,
    start,
    submit,
    verdict_on,
)

HOLDS: dict[str, list[Line]] = {
    "a call": WELL,
    "a confirmed cast": CONFIRMED,
    "a cast that its sender did not wait for": [cast(0, confirm=False), start(0.2), finish(0.3)],
    "a fanout to two": [cast(0, verb="fanout", confirm=False), start(0.2, "s1"), start(0.2, "s2")],
    "an idempotent call run twice": [submit(0, idempotent=True), start(0.1, "s1"), start(0.2, "s2"), end(1)],
    "a call whose caller died": [submit(0), fault(1, "kill", "c")],
    "the kill of a service is told": [*KILLED, end(1.6, "link_lost")],
    "the kill of a service is told late to one who is stopped": [
        *KILLED, fault(1.1, "stop", "c"), healed(5, "stop", "c"), end(5.1, "link_lost"),
    ],
    "the kill of a service while the router is down": [
        submit(0), fault(0.5, "kill", "router"), start(0.4), fault(1, "kill", "s"), healed(3, "kill", "router"),
        end(3.4, "link_lost"),
    ],
    "the kill of a service before its caller has come back": [
        submit(0), linked(0, "c"), start(0.1), *BACK, fault(2.1, "kill", "s"), linked(4, "c"), end(4, "link_lost"),
    ],
    "recovery": [*WELL, *BACK, submit(2.5, "c-2"), start(2.6, id="c-2"), end(3.0, id="c-2")],
    "recovery of one who was done": [*WELL, (0.9, "c", What.DONE, "", {"left": 0}), *BACK, counted(99)],
    "a stop that is declared in time": [fault(1, "stop", "s"), declared(13.1, "unresponsive"), healed(14, "stop", "s")],
    "a stop of one whose connection was gone before": [
        linked(0, "s"), fault(0.9, "reset", "s"), fault(1, "stop", "s"), declared(1.1, "away"), healed(5, "stop", "s"),
    ],
    "a stop seen by a router that was stopped itself": [
        fault(1, "stop", "router"), healed(9, "stop", "router"), fault(9, "stop", "s"), declared(13, "unresponsive"),
    ],
    "work for one that answers again": [
        fault(1, "stop", "s"), declared(14, "unresponsive"), submit(15), accept(15), healed(20, "stop", "s"),
        declared(20, "answering"), dispatch(20), start(20.1), finish(20.2), end(20.3),
    ],
    "work for one that another router took for silent": [
        declared(0.1, "unresponsive"), *BACK, submit(3), accept(3), dispatch(3), start(3.1), end(3.2),
    ],
    "a start that was dispatched": [submit(0), accept(0.1), dispatch(0.1), start(0.2), finish(0.3), end(0.4)],
    "a start by the second that it was sent to": [
        submit(0, idempotent=True), accept(0.1), dispatch(0.1, "s1"), fault(0.2, "kill", "s1"),
        dispatch(0.3, "s", attempt=1), start(0.4, attempt=1), finish(0.5), end(0.6),
    ],
    "a start of what a router has sent that was killed since": [
        submit(0), accept(0.1), dispatch(0.1), fault(0.15, "kill", "router"), start(0.2), end(0.3, "link_lost"),
        healed(0.4, "kill", "router"), submit(1, "c-2"), accept(1, "c-2"), dispatch(1, id="c-2"), start(1.1, id="c-2"),
        end(1.2, id="c-2"),
    ],
    "a call taken back from one that was killed before it had it": [
        submit(0), accept(0.1), dispatch(0.2), fault(0.3, "kill", "s"), dispatch(0.5, "s2"), start(0.6, "s2"), end(5),
    ],
    "a fanout": [
        submit(0, verb="fanout"), accept(0.1), dispatch(0.1), dispatch(0.1, "s2"), start(0.2), start(0.2, "s2"),
    ],
    "an idempotent call that the router has taken again": [
        submit(0, idempotent=True), accept(0.1), dispatch(0.1), start(0.2), accept(0.3), dispatch(0.3), start(0.4),
        end(0.5),
    ],
    "a cast in a router that is killed with its sender": [
        cast(0), confirm(0.1), end(0.1), fault(0.5, "kill", "c"), *BACK,
    ],
    "a cast in a router that is killed after its sender had ended": [
        cast(0), confirm(0.1), end(0.1), (0.9, "c", What.DONE, "", {"left": 0}), *BACK,
    ],
    "a cast that a consumer had that was killed, as was the router": [
        cast(0), accept(0.1), confirm(0.1), end(0.1), dispatch(0.2), fault(0.5, "kill", "s"), *BACK,
    ],
    "a cast in a router that is killed after its sender had lost the session in which it sent it": [
        linked(0, "c"), cast(0), confirm(0.1), end(0.1), linked(0.9, "c", away=31), *BACK,
    ],
    "a cast that the router dropped and said so": [
        cast(0), confirm(0.1), end(0.1), (1.0, "router", What.SETTLE, "c-1", {"outcome": "link_lost"}),
    ],
    "a cast that was refused": [cast(0), end(0.1, "overloaded")],
    "a cast run again after its consumer died and the router restarted": [
        *CONFIRMED, fault(0.5, "kill", "s"), *BACK, start(3, "s2"),
    ],
    "a cast run again after its consumer came back too late": [
        *CONFIRMED, linked(0, "s"), *BACK, start(4.7, "s2"), linked(5.0, "s"),
    ],
    "a cast run again after its sender lost its session": [
        linked(0, "c"), *CONFIRMED, linked(37, "c", away=35.0), start(41, "s2"),
    ],
    "a cast run again after its sender lost its session with the router's next life": [
        linked(0, "c"), *CONFIRMED, linked(0, "s"), *BACK, linked(2.5, "s"), linked(2.5, "c", away=1.5),
        *LATER, fault(3, "cut", "c"), healed(40, "cut", "c"), linked(40, "c", away=0.1), start(41, "s2"),
    ],
    "a cast run again after its sender lost its session with a router that was stopped before": [
        linked(0, "c"), *CONFIRMED, fault(1, "stop", "router"), healed(9, "stop", "router"),
        linked(45, "c", away=35.0), start(46, "s2"),
    ],
    "a late answer that was counted": [submit(0), end(1, "timeout"), start(0.1), finish(2), counted(9, late_answers=1)],
    "a call that waits for the router's next life": [
        submit(0.9), *RESTARTED, start(3.1), finish(3.2), end(3.3),
    ],
    "a call whose time is up before the router is back": [submit(0.9, timeout=1.0), *RESTARTED, end(2.0, "timeout")],
    "a call that takes longer than the drain": [
        submit(0.5, timeout=60.0), start(0.6), fault(1, "restart", "router"), exited(31.1), end(31.2, "link_lost"),
        finish(35), healed(36, "restart", "router"),
    ],
    "a call whose service is killed while the router restarts": [
        submit(0.5), accept(0.5), dispatch(0.5), start(0.6), RESTARTED[0], fault(1.5, "kill", "s"),
        end(1.9, "link_lost"), *RESTARTED[1:],
    ],
    "a silence of which everybody says so": [
        *SILENT_ROUTER, says(32.3, SILENT), says(32.5, SILENT, "s"), healed(35, "silence", "router"),
        says(35.1, ANSWERS), says(35.2, ANSWERS, "s"),
    ],
    "a silence in which everybody connects anew": [
        *SILENT_ROUTER, says(32.3, SILENT), says(32.5, SILENT, "s"), healed(85, "silence", "router"),
        linked(85.1, "c", resumed=True, away=5.0), linked(85.2, "s", resumed=True, away=5.0),
    ],
    "a silence too short to be noticed": [*SILENT_ROUTER, healed(32, "silence", "router")],
    "a silence that one did not notice who was stopped": [
        *SILENT_ROUTER, fault(21, "stop", "c"), says(32.5, SILENT, "s"), healed(35, "silence", "router"),
        says(35.2, ANSWERS, "s"), healed(36, "stop", "c"),
    ],
    "a cast that was run after its plain sender was killed": [
        cast(0, confirm=False), returned(0.01), fault(1, "kill", "c"), start(1.1), finish(1.2),
    ],
    "a cast whose sender was killed at once": [cast(0, confirm=False), returned(0.01), fault(0.1, "kill", "c")],
    "a cast whose sender was killed while the router was silent": [
        fault(0, "silence", "router"), cast(1, confirm=False), returned(1.01), fault(3, "kill", "c"),
        healed(4, "silence", "router"),
    ],
    "busy, and silent because it was stopped": [
        busy(0, 60), fault(1, "stop", "c"), declared(14, "quiet", "c"), healed(15, "stop", "c"),
    ],
    "quiet long after it was busy": [busy(0, 5), declared(60, "quiet", "c")],
    "small calls beside large ones": [*quick_calls(0.25), counted(99, "c", lost_wakeups=1)],
    "casts to a topic that nobody has": [
        *misspelt(0), *misspelt(0, "c-2"), done(80), dropped(2, "c"), dropped(2), dropped_in_all(2),
    ],
    "casts to a topic that nobody has, of which one was refused with an error": [
        *misspelt(0), cast(0, "c-2", topic="typo", misspelt=True), end(0.1, "overloaded", "c-2"), done(80),
        dropped(1, "c"), dropped(1), dropped(3, reason="queue full"), dropped(3, "c", reason="queue full"),
        dropped_in_all(1), (90, "drill", What.DROPPED_IN_ALL, "router", FULL),
    ],
    "casts to a topic that nobody has, of a router that was killed": [*misspelt(0), *BACK, done(80)],
    "a connection that was reset": [
        linked(0, "c", link="aa"), fault(1, "reset", "c"), linked(1.2, "c", True, link="aa", away=0.1),
        healed(4, "reset", "c"),
    ],
    "a nested call does not make its service a caller": [
        submit(0, process="s", nested=True), start(0.1, "s2"), end(0.2, process="s"), *BACK, counted(99),
    ],
    "a session that starts over after too long": [linked(0, "c"), linked(50, "c", away=31.0)],
    "a session that starts over because the router did": [linked(0, "c"), *BACK, linked(2.5, "c", away=1.5)],
    "a session that is resumed": [linked(0, "c"), linked(5, "c", resumed=True, away=1.0)],
    "an answer later than the timeout of one that was stopped": [
        submit(0, timeout=1.0), fault(0.5, "stop", "c"), healed(9, "stop", "c"), end(9, "timeout"),
    ],
}  # fmt: skip

BROKEN: dict[str, tuple[str, tuple[str, ...], list[Line]]] = {
    "ends twice": ("ended twice", ("c-1",), [*WELL, end(0.4, "timeout")]),
    "ends with what no guarantee names": ("unexpected end", ("c-1",), [submit(0), end(0.1, "UsageError")]),
    "never ends": ("never ended", ("c-1",), [submit(0), start(0.1)]),
    "a confirmation never comes": ("never ended", ("c-1",), [cast(0), start(0.1)]),
    "a result without a handler": ("answered by nobody", ("c-1",), [submit(0), end(0.3)]),
    "a call started twice": ("started twice", ("c-1",), [submit(0), start(0.1), start(0.2, "s2"), end(1)]),
    "a call started twice though a consumer died": (
        "started twice", ("c-1",), [submit(0), start(0.1), fault(0.2, "kill", "s"), start(0.3, "s2"), end(0.4)],
    ),
    "an idempotent call started twice as the same attempt": (
        "same attempt", ("c-1",),
        [
            submit(0, idempotent=True), accept(0), dispatch(0.1), start(0.1), dispatch(0.2, "s2"), start(0.3, "s2"),
            end(1),
        ],
    ),
    "a cast started twice": ("started twice", ("c-1",), [*CONFIRMED, start(1, "s2")]),
    "a cast started twice by the same": ("started twice", ("c-1",), [*CONFIRMED, *BACK, start(3)]),
    "a cast started twice though its consumer was back in time": (
        "started twice", ("c-1",), [*CONFIRMED, linked(0, "s"), *BACK, linked(2.5, "s"), start(3.2, "s2")],
    ),
    "a cast started twice though its sender began anew with the router's next life only": (
        "started twice", ("c-1",),
        [linked(0, "c"), *CONFIRMED, linked(0, "s"), *BACK, linked(2.5, "s"), linked(2.5, "c", away=1.5),
         start(4, "s2")],
    ),
    "a cast started twice though its sender had long been told when it lost its session": (
        "started twice", ("c-1",),
        [linked(0, "c"), *CONFIRMED, linked(60, "c", away=35.0), start(61, "s2")],
    ),
    "a cast started twice by the same after its sender lost its session": (
        "started twice", ("c-1",), [linked(0, "c"), *CONFIRMED, linked(37, "c", away=35.0), start(41)],
    ),
    "a cast lost with a router's next life, in which its sender lost its session": (
        "confirmed and lost", ("c-1",),
        [linked(0, "c"), cast(0), confirm(0.1), end(0.1), *BACK, linked(2.1, "c", away=1.5), linked(40, "c", away=31)],
    ),
    "a fanout started twice by one": (
        "started twice", ("c-1",), [cast(0, verb="fanout", confirm=False), start(0.2, "s1"), start(0.3, "s1")],
    ),
    "the answer to another call": ("misrouted", ("c-1", "c-2"), [submit(0), start(0.1), end(0.3, of="c-2")]),
    "the answer to another caller": ("misrouted", ("c-1",), [submit(0), start(0.1), end(0.3, process="d")]),
    "run by another topic": ("misrouted", ("c-1",), [submit(0), start(0.1, topic="u"), end(0.3)]),
    "run though nobody sent it": ("misrouted", ("c-9",), [*WELL, start(1, id="c-9")]),
    "a confirmed cast that nobody runs": ("confirmed and lost", ("c-1",), [cast(0), confirm(0.1), end(0.1)]),
    "one that is lost beside one that the router dropped": (
        "confirmed and lost", ("c-2",),
        [cast(0), confirm(0.1), end(0.1), (0.2, "router", What.SETTLE, "c-1", {"outcome": "link_lost"}),
         cast(0, "c-2"), confirm(0.1, "c-2"), end(0.1, id="c-2")],
    ),
    "a cast in a router that was killed, beside a consumer that was killed and had it not": (
        "confirmed and lost", ("c-1",),
        [cast(0), accept(0.1), confirm(0.1), end(0.1), dispatch(0.2, "s2"), fault(0.5, "kill", "s"), *BACK],
    ),
    "a cast in a router that was killed": (
        "confirmed and lost", ("c-1",), [cast(0), confirm(0.1), end(0.1), *BACK, linked(2.1, "c", away=1.5)],
    ),
    "a cast in a router that was killed after its consumer": (
        "confirmed and lost", ("c-1",), [fault(0, "kill", "s"), cast(0.1), confirm(0.2), end(0.2), *BACK],
    ),
    "a cast that is lost in silence": ("taken and lost", ("c-1",), [cast(0, confirm=False)]),
    "a cast that was given back for a while and is lost": (
        "taken and lost", ("c-1",),
        [cast(0, confirm=False), (0.1, "router", What.SETTLE, "c-1", {"outcome": "overloaded"})],
    ),
    "a caller that keeps casts": ("not taken", ("c",), [*WELL, (9, "c", What.DONE, "", {"left": 3})]),
    "the kill of a service is told late": ("told late", ("c-1",), [*KILLED, end(2.1, "link_lost")]),
    "the kill of a service that had not begun is told late": (
        "told late", ("c-1",), [submit(0), accept(0.1), dispatch(0.2), fault(1, "kill", "s"), end(2.1, "link_lost")],
    ),
    "slow recovery": ("slow recovery", ("c",), [*WELL, *BACK, submit(2.5, "c-2"), start(5.2, id="c-2"),
                                               end(5.3, id="c-2")]),
    "no recovery": ("slow recovery", ("c",), [*WELL, *BACK, counted(9)]),
    "declared unresponsive too early": (
        "declared too early", ("s",), [fault(1, "stop", "s"), declared(4, "unresponsive"), healed(5, "stop", "s")],
    ),
    "declared lost too early": (
        "declared too early", ("s",), [fault(1, "stop", "s"), declared(20, "away"), healed(21, "stop", "s")],
    ),
    "declared lost though it has replaced the connection that was reset": (
        "declared too early", ("s",),
        [fault(0.8, "reset", "s"), linked(0.9, "s"), fault(1, "stop", "s"), declared(1.1, "away"),
         healed(5, "stop", "s")],
    ),
    "declared unresponsive too early though its connection was reset": (
        "declared too early", ("s",),
        [fault(0.9, "reset", "s"), fault(1, "stop", "s"), declared(1.1, "unresponsive"), healed(5, "stop", "s")],
    ),
    "sent to one that is unresponsive": (
        "sent to a silent process", ("c-1", "s"),
        [submit(0), accept(0.1), declared(1, "unresponsive"), dispatch(2), start(3), end(4)],
    ),
    "started, and dispatched to nobody": (
        "not dispatched", ("c-1", "s"), [submit(0), accept(0.1), start(0.2), end(0.4)],
    ),
    "started, and dispatched to another": (
        "not dispatched", ("c-1", "s"), [submit(0), accept(0.1), dispatch(0.1, "s2"), start(0.2), end(0.4)],
    ),
    "started at an attempt at which it was not dispatched": (
        "not dispatched", ("c-1", "s"), [submit(0), accept(0.1), dispatch(0.1), start(0.2, attempt=1), end(0.4)],
    ),
    "started before it was dispatched": (
        "not dispatched", ("c-1", "s"), [submit(0), accept(0.1), start(0.2), dispatch(0.3), end(0.4)],
    ),
    "dispatched by a router that has not taken it": (
        "not accepted", ("c-1", "s"), [submit(0), dispatch(0.1), start(0.2), end(0.4)],
    ),
    "dispatched by a router of which only an earlier life has taken it": (
        "not accepted", ("c-1", "s"), [submit(0), accept(0.1), *BACK, dispatch(3), start(3.1), end(3.2)],
    ),
    "taken twice": ("accepted twice", ("c-1",), [submit(0), accept(0.1), accept(0.2), dispatch(0.2), start(0.3),
                                                 end(0.4)]),
    "a session that is not resumed": ("not resumed", ("c",), [linked(0, "c"), linked(5, "c", away=1.0)]),
    "overdue": ("overdue", ("c-1",), [submit(0, timeout=1.0), start(0.1), end(2.5, "timeout")]),
    "a late answer that nobody counted": (
        "answers not accounted for", (),
        [submit(0), end(1, "timeout"), start(0.1), finish(2), counted(9, late_answers=0)],
    ),
    "a call that a planned restart fails": (
        "failed by a planned restart", ("c-1",),
        [submit(0.9), accept(0.9), dispatch(0.9), start(0.95), RESTARTED[0], end(1.9, "link_lost"), *RESTARTED[1:]],
    ),
    "a call that is not sent to the router's next life": (
        "failed by a planned restart", ("c-1",), [*RESTARTED[:2], submit(2.5), *RESTARTED[2:], end(12.5, "timeout")],
    ),
    "a call that outlives a drain that was cut short": (
        "failed by a planned restart", ("c-1",),
        [submit(0.5), start(0.6), *RESTARTED[:2], end(2.1, "link_lost"), finish(5), healed(6, "restart", "router")],
    ),
    "a cast that a planned restart loses": (
        "confirmed and lost", ("c-1",), [cast(0), confirm(0.1), end(0.1), *RESTARTED],
    ),
    "a silence that nobody notices": (
        "silence not noticed", ("c",), [linked(0, "c"), *SILENT_ROUTER[2:], healed(35, "silence", "router")],
    ),
    "a silence that is noticed late": (
        "silence not noticed", ("c",),
        [linked(0, "c"), *SILENT_ROUTER[2:], says(34, SILENT), healed(35, "silence", "router"), says(35.1, ANSWERS)],
    ),
    "a silence that is said too early": (
        "called silent too early", ("c",),
        [linked(0, "c"), *SILENT_ROUTER[2:], says(24, SILENT), healed(35, "silence", "router"), says(35.1, ANSWERS)],
    ),
    "a silence after which one says nothing more": (
        "not back after silence", ("c",),
        [linked(0, "c"), *SILENT_ROUTER[2:], says(32.5, SILENT), healed(35, "silence", "router")],
    ),
    "a connection that is not given up though its router is lost": (
        "not back after silence", ("c",),
        [linked(0, "c"), *SILENT_ROUTER[2:], says(32.5, SILENT), healed(85, "silence", "router"), says(85.1, ANSWERS)],
    ),
    "a caller without an answer after a silence": (
        "slow recovery", ("c",),
        [*WELL, *UP, fault(20, "silence", "router"), healed(25, "silence", "router"), counted(99)],
    ),
    "a cast that a plain sender kept to itself": (
        "sent and lost", ("c-1",), [cast(0, confirm=False), returned(0.01), fault(1, "kill", "c")],
    ),
    "a cast that the router had when its sender was killed": (
        "taken and lost", ("c-1",), [cast(0, confirm=False), accept(0.1), fault(0.2, "kill", "c")],
    ),
    "declared unresponsive while it computes": (
        "declared while busy", ("c",), [busy(0, 30), declared(13, "unresponsive", "c")],
    ),
    "declared quiet for what it did when it was busy": (
        "declared while busy", ("c",), [busy(0, 12), declared(13, "quiet", "c")],
    ),
    "a connection that breaks by itself": (
        "connection broken", ("c",), [linked(0, "c", link="aa"), linked(1.2, "c", True, link="aa", away=0.1)],
    ),
    "a payload that has changed": (
        "payload changed", ("c-1",),
        [submit(0), (0.1, "s", What.START, "c-1", {"topic": "t", "changed": True}), end(1)],
    ),
    "a result that has changed": (
        "payload changed", ("c-1",),
        [submit(0), start(0.1), (0.3, "c", What.END, "c-1", {"outcome": "ok", "of": "c-1", "changed": True})],
    ),
    "a process that was not woken": (
        "lost wake-ups", ("c", "2"), [*WELL, counted(9, lost_wakeups=0), counted(9, "c", lost_wakeups=2)],
    ),
    "a drop that the router does not list": (
        "drops not accounted for", ("typo",),
        [*misspelt(0), *misspelt(0, "c-2"), done(80), dropped(2, "c"), dropped(1), dropped_in_all(1)],
    ),
    "a drop that its sender is not told of": (
        "sender not told of drops", ("c", "typo"), [*misspelt(0), done(80), dropped(1), dropped_in_all(1)],
    ),
    "a drop that is forgotten in the totals": (
        "totals of drops differ", ("cast", "aged out"), [*misspelt(0), done(80), dropped(1, "c"), dropped(1)],
    ),
    "the same id twice": ("history", ("c-1",), [*WELL, submit(1), end(2)]),
}  # fmt: skip


@pytest.mark.parametrize("lines", HOLDS.values(), ids=HOLDS.keys())
def test_what_is_promised_holds(lines: list[Line]):
    assert verdict_on(*lines).violations == []


@pytest.mark.parametrize(("name", "ids", "lines"), BROKEN.values(), ids=BROKEN.keys())
def test_what_is_broken_is_found_by_name_and_ids(name: str, ids: tuple[str, ...], lines: list[Line]):
    found = {v.check: v for v in verdict_on(*lines).violations}
    assert name in found, found
    assert all(id in found[name].text for id in ids)
    assert str(found[name]).startswith(f"{name}: ")


def test_figures():
    verdict = verdict_on(
        *WELL, submit(0.5, "c-2"), start(0.6, id="c-2"), fault(1, "kill", "s"), end(1.4, "link_lost", "c-2"),
        cast(2, "d-3", "d"), confirm(2.1, "d-3", "d"), end(2.1, id="d-3", process="d"), fault(2.5, "kill", "d"),
        fault(3, "kill", "router"), healed(4, "kill", "router"), submit(4.1, "c-4"), start(4.2, "s2", "c-4"),
        end(5.5, id="c-4"), counted(9, late_answers=2),
    )  # fmt: skip
    assert verdict.ok and verdict.violations == []
    assert verdict.submitted == {"call": 3, "cast": 1}
    assert verdict.ended == {"ok": 2, "link_lost": 1}
    assert verdict.told == pytest.approx(0.4) and verdict.recovery == pytest.approx(1.5)
    assert (verdict.lost, verdict.forgotten, verdict.late) == (0, 1, 2)


def test_lost_doubled_and_misrouted_are_counted():
    verdict = verdict_on(cast(0), confirm(0.1), end(0.1), *([submit(1, "c-2"), start(1, id="c-2"), start(2, id="c-2"),
                                                            end(3, id="c-2", of="c-1")]))  # fmt: skip
    assert (verdict.lost, verdict.doubled, verdict.misrouted) == (1, 1, 1) and not verdict.ok


def test_small_calls_after_a_large_payload_are_a_figure_but_for_those_beside_a_fault():
    assert verdict_on(*quick_calls(0.25)).after_large == pytest.approx(0.25)
    silent = [fault(15.5, "silence", "router"), *quick_calls(5.0)[-42:], healed(99, "silence", "router")]
    verdict = verdict_on(*quick_calls(0.25)[:-42], *silent)
    assert verdict.ok and verdict.after_large == 0, "those that are left are too few for a median"


def test_what_is_broken_is_known_at_once():
    checker = Checker()
    for line in (*WELL, end(0.4)):
        checker.see(Event(*line))
    assert [v.check for v in checker.verdict.violations] == ["ended twice"]


# --- a machine that stands still ------------------------------------------------------------------

LATE_END = [submit(0, timeout=1.0), start(0.1), end(2.8, "timeout")]
SLOW = [
    submit(0), start(0.1), end(0.2), fault(1, "kill", "router"), healed(2, "kill", "router"),
    submit(2.1, "c-2"), start(5.4, id="c-2"), end(5.5, id="c-2"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "check_name"), [(LATE_END, "overdue"), (SLOW, "slow recovery")])
def test_a_stall_of_the_machine_excuses_who_is_late_because_of_it(lines: list[Line], check_name: str):
    events = [Event(*line) for line in lines]
    assert [each.check for each in check(events).violations] == [check_name]
    assert check(events, stalls=[(0.5, 2.5)]).violations == []
    assert [each.check for each in check(events, stalls=[(20.0, 22.0)]).violations] == [check_name]


def test_a_drill_notices_that_it_had_no_cpu():
    watch = StallWatch()
    gevent.sleep(0)
    began = monotonic()
    sleep(1.0)
    eventually(lambda: watch.stalls)
    (begin, end), *_ = watch.stalls
    watch.close()
    assert begin <= began + 0.2 and end >= began + 1.0
