"""Plans of runs with several routers in which something goes wrong without one rule of adoption.

They are modelled after the counterexamples to the first draft of the protocol, which the traces of the model keep
(``tests/mesh/traces.py``).
"""

from __future__ import annotations

from dataclasses import replace

from tests.faults.mesh_plan import MeshPlan, mesh_plan_of
from tests.faults.plan import Fault, Operation

__all__ = [
    "BETWEEN_ROUTERS", "CUT_OFF", "HOME_GONE", "JOINS", "KNOWN_TO_ONE", "LATE", "MOVED_BOTH", "UNKNOWN",
]  # fmt: skip

_SETTINGS = replace(mesh_plan_of(0).settings, recovery_seconds=0.0, consumer_grace_seconds=30.0)

#: A router that is cut off from the others, and not from processes, still has a cast of one that has gone elsewhere.
#: There it is started by a consumer that was free to promise; another one, which was busy then, comes to the router,
#: which has forgotten its sender.
CUT_OFF = MeshPlan(
    seed=0,
    settings=replace(_SETTINGS, resume_seconds=10.0),
    callers=1,
    services=2,
    credit=1,
    steps=(
        *((2.0 + 0.1 * n, Operation("cast", f"c0-{n}", 0, "compute", seconds=8.0)) for n in range(3)),
        (2.5, Fault("isolate router", "a", 25.0)),
        (3.0, Fault("move", "c0", 0.1)),
        (4.0, Fault("move", "s0", 0.1)),
        (12.0, Fault("move", "s1", 0.1)),
        (14.0, Fault("move", "s1", 0.1)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "b")),
    is_gentle=False,
)

#: C8: a consumer comes to a router, is given a call, and stops; the router is killed before others know the consumer.
UNKNOWN = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=2,
    credit=1,
    steps=(
        (1.5, Fault("delay routers", "ab", 30.0, 0.4)),
        (1.5, Fault("delay routers", "ac", 30.0, 0.4)),
        (2.05, Operation("call", "c0-0", 0, "mail", seconds=8.0, timeout=300.0)),
        (2.2, Fault("stop", "s0", 20.0)),
        (2.3, Fault("kill router", "a", 25.0, 60.0)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "b")),
    is_gentle=False,
    groups=(("s1", "mail", ""),),
    mail_at=2.0,
)

#: C7: the caller goes from router to router, and the question of the first one comes last; C6: the consumer, which was
#: stopped, comes to a router after that was asked.
LATE = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=1,
    credit=1,
    steps=(
        (1.5, Fault("delay routers", "bd", 30.0, 2.0)),
        (1.5, Fault("delay routers", "cd", 30.0, 0.3)),
        (1.99, Fault("stop", "s0", 4.22)),
        (2.0, Operation("call", "c0-0", 0, "compute", seconds=8.0, timeout=60.0)),
        (2.3, Fault("kill router", "a", 25.0, 60.0)),
        (2.53, Fault("cut routers", "bd", 2.9)),
        (2.55, Fault("move", "c0", 0.1)),
        (2.83, Fault("move", "c0", 0.1)),
    ),
    routers="abcd",
    homes=(("c0", "a"), ("s0", "a")),
    is_gentle=False,
)

#: The same, and one router knows the consumer: not the one to which the caller goes.
KNOWN_TO_ONE = replace(
    UNKNOWN,
    steps=tuple(step for step in UNKNOWN.steps if not (isinstance(step[1], Fault) and step[1].target == "ab")),
)

#: A call waits at a router that can reach one other only, and that late; its caller goes to the third one. Then a
#: consumer comes to the first one.
JOINS = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=2,
    credit=1,
    steps=(
        (2.0, Operation("cast", "c0-0", 0, "mail", seconds=8.0)),
        (2.1, Operation("call", "c0-1", 0, "mail", seconds=1.0, timeout=60.0)),
        (2.2, Fault("cut routers", "ac", 20.0)),
        (2.2, Fault("delay routers", "ab", 20.0, 1.0)),
        (2.3, Fault("move", "c0", 0.1)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "b")),
    is_gentle=False,
    groups=(("s1", "mail", ""),),
    mail_at=2.8,
)

#: The router of a caller and of the consumer that runs its call is killed, and both go on elsewhere.
MOVED_BOTH = MeshPlan(
    seed=0,
    settings=_SETTINGS,
    callers=1,
    services=1,
    credit=1,
    steps=(
        (2.0, Operation("call", "c0-0", 0, "compute", seconds=8.0, timeout=60.0)),
        (3.0, Fault("kill router", "a", 25.0, 60.0)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a")),
    is_gentle=False,
)

#: C9: the router of the consumer alone is killed.
HOME_GONE = replace(
    MOVED_BOTH,
    steps=(MOVED_BOTH.steps[0], (3.0, Fault("kill router", "b", 25.0, 60.0))),
    homes=(("c0", "a"), ("s0", "b")),
)

#: C5: a call is on its way to a consumer when that goes to another router; there it promises, and another one starts
#: the call.
BETWEEN_ROUTERS = MeshPlan(
    seed=0,
    settings=replace(_SETTINGS, consumer_grace_seconds=0.5),
    callers=1,
    services=2,
    credit=1,
    steps=(
        (2.0, Operation("cast", "c0-0", 0, "compute", "s1", seconds=1.0)),
        (2.1, Fault("cut", "s0", 2.0)),
        (2.2, Operation("call", "c0-1", 0, "compute", seconds=8.0, timeout=60.0)),
        (2.5, Fault("move", "s0", 0.1)),
    ),
    routers="abc",
    homes=(("c0", "a"), ("s0", "a"), ("s1", "a")),
    is_gentle=False,
)
