"""The network around the model of adoption: wires, faults, and all that may happen next.

A wire keeps the order of its messages. One between routers is a session: a cut only delays it. All that a dead router
has sent, and all that is on a connection which its process left, may still be read or be lost from any message on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.mesh.protocol import (
    Caller,
    Consumer,
    Map,
    Message,
    Out,
    Phase,
    Place,
    Request,
    Rules,
    Send,
    Word,
    caller_reads,
    consumer_finishes,
    consumer_reads,
    moved,
)
from tests.mesh.router import Router, asks_again, gives, router_reads, stops_waiting, takers

ALL = Rules()
ROUTERS = ("A", "B", "C")


class Wire(NamedTuple):
    """One direction of a connection. ``link`` is the generation of the process at one end, 0 between routers."""

    source: str
    target: str
    link: int


class Action(NamedTuple):
    """One step of the world: its kind, who does it, and up to two more words; see `enabled`."""

    kind: str
    who: str
    to: str = ""
    link: int = 0
    key: str = ""

    def __str__(self) -> str:
        return " ".join(str(word) for word in self if word not in ("", 0))


class World(NamedTuple):
    """The whole state. ``faults``, ``kills``, ``moves`` and ``attempts`` are how many of each may still come."""

    routers: Map[str, Router]
    callers: Map[str, Caller]
    consumers: Map[str, Consumer]
    wires: Map[Wire, tuple[Message, ...]] = Map()
    dead: frozenset[str] = frozenset()
    stopped: frozenset[str] = frozenset()
    cuts: frozenset[frozenset[str]] = frozenset()
    faults: int = 0
    kills: int = 0
    moves: int = 0
    attempts: int = 0


@dataclass(frozen=True)
class Setting:
    """Everything about an exploration that does not change on the way."""

    rules: Rules = ALL
    #: Kinds of faults: kill, stop, cut, reset.
    kinds: frozenset[str] = frozenset({"kill", "stop", "cut", "reset"})
    #: Whether a timer may fire at any time, or only when nothing else can happen.
    is_timer_any_time: bool = True


def world_of(homes: dict[str, str], faults: int = 0, kills: int = 0, moves: int = 0, attempts: int = 0) -> World:
    """Return a world whose processes are linked to ``homes``; a caller's request is on its way.

    Names of callers begin with c, of consumers with s. A consumer with the home "" joins later.
    """
    consumers = {name: Consumer(name, 1 if home else 0, home) for name, home in homes.items() if name[0] == "s"}
    callers = {name: Caller(name, 1, home) for name, home in homes.items() if name[0] == "c"}
    names = Map({name: Place(1, each.home) for name, each in consumers.items() if each.home})
    routers = {
        name: Router(name, tuple(peer for peer in ROUTERS if peer != name), _links_at(name, homes), names)
        for name in ROUTERS
    }
    wires = {Wire(name, each.home, 1): (Request(name, 1),) for name, each in callers.items()}
    return World(
        Map(routers),
        Map(callers),
        Map(consumers),
        Map(wires),
        faults=faults,
        kills=kills,
        moves=moves,
        attempts=attempts,
    )


def enabled(setting: Setting, world: World) -> list[Action]:
    """Return all that may happen next but faults and what ends them; timers last, unless they fire at any time."""
    actions = list(_progress(world))
    if setting.is_timer_any_time or not any(action.kind != "lose" for action in actions):
        actions += _timers(setting, world)
    return actions


def faults(setting: Setting, world: World) -> list[Action]:
    """Return the faults that may come next, and what ends one."""
    actions = [Action("resume", name) for name in sorted(world.stopped)]
    actions += [Action("mend", min(pair), max(pair)) for pair in sorted(world.cuts, key=sorted)]
    if not world.faults:
        return actions
    alive = [name for name in ROUTERS if name not in world.dead]
    awake = [name for name in (*alive, *world.consumers) if name not in world.stopped]
    if "kill" in setting.kinds and world.kills and len(alive) > 1:
        actions += [Action("kill", name) for name in alive]
    if "stop" in setting.kinds:
        actions += [Action("stop", name) for name in awake]
    if "cut" in setting.kinds:
        pairs = [(one, other) for one in alive for other in alive if one < other]
        actions += [Action("cut", *pair) for pair in pairs if frozenset(pair) not in world.cuts]
    if "reset" in setting.kinds:
        actions += [Action("reset", name, home) for name in _movable(world) for home in alive]
    return actions


def step(setting: Setting, world: World, action: Action) -> World:
    """Return the world after ``action``, one of `enabled` or `faults`."""
    kind, who = action.kind, action.who
    match kind:
        case "read":
            return _read(setting.rules, world, Wire(who, action.to, action.link))
        case "lose":
            return world._replace(wires=world.wires.drop(Wire(who, action.to, action.link)))
        case "give" | "again" | "window":
            return _owner_acts(setting.rules, world, action)
        case "finish":
            out: Out = []
            consumer = consumer_finishes(world.consumers[who], action.key, out)
            return _sent(setting.rules, world._replace(consumers=world.consumers.put(who, consumer)), who, out)
        case "leave" | "join" | "move" | "reset":
            world = world._replace(moves=world.moves - (kind == "move"), faults=world.faults - (kind == "reset"))
            return _moved(setting.rules, world, who, action.to)
        case "resume":
            return world._replace(stopped=world.stopped - {who})
        case "mend":
            return world._replace(cuts=world.cuts - {frozenset((who, action.to))})
    world = world._replace(faults=world.faults - 1)
    match kind:
        case "stop":
            return world._replace(stopped=world.stopped | {who})
        case "cut":
            return world._replace(cuts=world.cuts | {frozenset((who, action.to))})
        case "kill":
            wires = Map({wire: sent for wire, sent in world.wires.items() if wire.target != who})
            return world._replace(
                wires=wires, dead=world.dead | {who}, stopped=world.stopped - {who}, kills=world.kills - 1,
                routers=world.routers.drop(who),
            )  # fmt: skip
    raise AssertionError(action)


def healed(world: World) -> World:
    """Return the world without further faults, all routers joined and all that was stopped awake; the dead are dead."""
    return world._replace(stopped=frozenset(), cuts=frozenset(), faults=0, kills=0, moves=0, attempts=0)


def starts_of(world: World, key: str) -> int:
    """Return the number of times that the call ``key`` was started anywhere."""
    return sum(consumer.starts.get(key, 0) for consumer in world.consumers.values())


def broken_safety(world: World) -> str:
    """Return the invariant that the world breaks now, or "": nothing starts twice, nobody who lives is called lost."""
    for key, caller in world.callers.items():
        if starts_of(world, key) > 1:
            return "started twice"
        if caller.ended == "lost":
            return "lost"
    return ""


def broken_at_rest(world: World) -> str:
    """Return the invariant that a healed world breaks in which nothing more can happen, or "": each call ended."""
    return "" if all(caller.ended for caller in world.callers.values()) else "never ends"


# --- all that may happen ------------------------------------------------------------------------


def _links_at(router: str, homes: dict[str, str]) -> Map[str, int]:
    return Map({name: 1 for name, home in homes.items() if home == router})


def _movable(world: World) -> list[str]:
    """Processes that can act and have a reason to be linked at all."""
    consumers = [name for name, each in world.consumers.items() if name not in world.stopped and each.home]
    return [*consumers, *(name for name, caller in world.callers.items() if not caller.ended)]


def _progress(world: World) -> Iterator[Action]:
    for wire in world.wires:
        if wire.target not in world.stopped and (not world.cuts or frozenset(wire[:2]) not in world.cuts):
            yield Action("read", *wire)
        if wire.source in world.dead or _is_left(world, wire):
            yield Action("lose", *wire)
    for name, router in world.routers.items():
        if name not in world.stopped:
            for key in router.owned:
                yield from (Action("give", name, consumer, key=key) for consumer in takers(router, key))
    for name, consumer in world.consumers.items():
        if name not in world.stopped:
            for key, record in consumer.records.items():
                if record.word is Word.STARTED:
                    yield Action("finish", name, key=key)
            if not consumer.home:
                yield from (Action("join", name, home) for home in world.routers)
    if world.dead:
        for name in _movable(world):
            if _process(world, name).home in world.dead:
                yield from (Action("leave", name, home) for home in world.routers)


def _timers(setting: Setting, world: World) -> Iterator[Action]:
    for name, router in world.routers.items():
        if name not in world.stopped:
            for key, owned in router.owned.items():
                if owned.phase is Phase.ASKING and not setting.rules.roll:
                    yield Action("window", name, key=key)
                if world.attempts and owned.phase is not Phase.FREE:
                    yield Action("again", name, key=key)
    for name in _movable(world):
        home = _process(world, name).home
        if home in world.stopped:
            yield from (Action("leave", name, other) for other in world.routers if other != home)
        elif setting.is_timer_any_time and world.moves:
            yield from (Action("move", name, other) for other in world.routers)


def _is_left(world: World, wire: Wire) -> bool:
    """Return whether ``wire`` belongs to a connection that its process has left."""
    return (
        wire.link != 0
        and _process(world, wire.source if wire.target in ROUTERS else wire.target).generation != wire.link
    )


def _process(world: World, name: str) -> Caller | Consumer:
    return world.callers[name] if name in world.callers else world.consumers[name]


# --- steps --------------------------------------------------------------------------------------


def _read(rules: Rules, world: World, wire: Wire) -> World:
    message, *rest = world.wires[wire]
    wires = world.wires.put(wire, tuple(rest)) if rest else world.wires.drop(wire)
    world = world._replace(wires=wires)
    target, out = wire.target, Out()
    if target in world.routers:
        router = router_reads(rules, world.routers[target], wire.source, wire.link, message, out)
        world = world._replace(routers=world.routers.put(target, router))
    elif target in world.consumers:
        consumer = consumer_reads(rules, world.consumers[target], message, out)
        world = world._replace(consumers=world.consumers.put(target, consumer))
    else:
        caller = caller_reads(world.callers[target], message)
        world = world._replace(callers=world.callers.put(target, caller))
    return _sent(rules, world, target, out)


def _owner_acts(rules: Rules, world: World, action: Action) -> World:
    out: Out = []
    router = world.routers[action.who]
    if action.kind == "give":
        router = gives(rules, router, action.key, action.to, out)
    elif action.kind == "again":
        world = world._replace(attempts=world.attempts - 1)
        router = asks_again(rules, router, action.key, out)
    else:
        router = stops_waiting(router, action.key)
    return _sent(rules, world._replace(routers=world.routers.put(action.who, router)), action.who, out)


def _moved(rules: Rules, world: World, name: str, home: str) -> World:
    out: Out = []
    process = moved(_process(world, name), home, out)
    if name in world.callers:
        world = world._replace(callers=world.callers.put(name, process))
    else:
        world = world._replace(consumers=world.consumers.put(name, process))
    if rules.drop_old:
        world = world._replace(wires=Map({wire: sent for wire, sent in world.wires.items() if wire.target != name}))
    return _sent(rules, world, name, out)


def _sent(rules: Rules, world: World, source: str, out: list[Send]) -> World:
    """Put what ``source`` sends on its wires; nothing reaches the dead, or a connection that is not read any more."""
    if not out:
        return world
    wires = Map(world.wires)
    for target, link, message in out:
        is_unread = rules.drop_old and link and target not in ROUTERS and _process(world, target).generation != link
        if target not in world.dead and not is_unread:
            wire = Wire(source, target, link)
            wires[wire] = (*wires.get(wire, ()), message)
    return world._replace(wires=wires)
