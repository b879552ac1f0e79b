"""Named histories of the model of adoption: each breaks an invariant while its rules are off, and holds with all.

A trace is a list of lines as `tests.mesh.explore` prints them. ``settle`` reads all that can be read, in a fixed order;
``settle except A> >s0`` leaves alone what A has sent and what is on its way to s0.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.mesh.world import (
    Action,
    Setting,
    World,
    broken_at_rest,
    broken_safety,
    enabled,
    faults,
    healed,
    step,
    world_of,
)

#: Words of an action after its kind, for the kinds that have others than who and to.
FIELDS = {"read": "who to link", "lose": "who to link", "give": "who to key", "finish": "who key", "window": "who key"}


@dataclass(frozen=True)
class Trace:
    """``lines`` from a world with ``homes`` break the invariant ``broken`` without the rules ``needs``."""

    name: str
    needs: tuple[str, ...]
    broken: str
    homes: dict[str, str]
    lines: str


TRACES = (
    Trace(
        "a consumer between two routers is not asked: one kill, and it had the call",
        ("roll",), "started twice", {"c0": "A", "s0": "A", "s1": "B"},
        """read c0 A 1; give A s0 c0; read A s0 1; kill A; leave c0 B; settle; window B c0; give B s1 c0; settle""",
    ),
    Trace(
        "the answer was read by the router that is killed: nobody remembers the call",
        ("keep",), "started twice", {"c0": "A", "s0": "A", "s1": "B"},
        """read c0 A 1; give A s0 c0; read A s0 1; finish s0 c0; read s0 A 1; read A s0 1; kill A; lose A c0 1;
        leave c0 B; leave s0 C; settle; give B s1 c0; settle""",
    ),
    Trace(
        "a router speaks for a consumer that has gone on, and a stopped router wakes up: no kill",
        ("promise",), "started twice", {"c0": "A", "s0": "A", "s1": "B"},
        """stop A; leave c0 B; leave s0 B; resume A; read c0 A 1; reset s0 A; read s0 A 3; give A s0 c0; read A s0 3;
        read c0 B 2; read s0 B 2; read B C; read C B; give B s1 c0; read B s1 1""",
    ),
    Trace(
        "the offer of a dead owner arrives after its home said that nobody had the call",
        ("promise", "fence"), "started twice", {"c0": "A", "s0": "B", "s1": "C"},
        """read c0 A 1; give A s0 c0; kill A; leave c0 C; settle except A>; give C s1 c0; read C s1 1; read A B;
        read B s0 1""",
    ),
    Trace(
        "a consumer reads the connection that it left, after its new home said that it had nothing",
        ("promise", "drop_old"), "started twice", {"c0": "A", "s0": "A", "s1": "B"},
        """read c0 A 1; give A s0 c0; reset s0 B; settle except >s0; give A s1 c0; settle except >s0; read A s0 1""",
    ),
    Trace(
        "a consumer comes after its new home has answered, and is never asked",
        ("push",), "never ends", {"c0": "A", "s0": "A", "s1": "B"},
        """read c0 A 1; give A s0 c0; kill A; leave c0 B; settle except A>; leave s0 C; settle""",
    ),
    Trace(
        "the question of an earlier owner arrives last and takes the call from the later one",
        ("fence",), "never ends", {"c0": "A", "s0": "C", "s1": "A"},
        """read c0 A 1; give A s0 c0; read A C; read C s0 1; reset c0 B; read c0 B 2; reset c0 C; read c0 C 3;
        settle except B>; read B C; settle; finish s0 c0; settle""",
    ),
    Trace(
        "a consumer gets a call before anyone but its home knows its name, and the home is killed",
        ("announce",), "started twice", {"c0": "A", "s0": "B", "s2": ""},
        """join s2 A; read s2 A 1; read c0 A 1; give A s2 c0; read A s2 1; kill A; lose A B; lose A C; leave c0 B;
        settle; give B s0 c0; read B s0 1""",
    ),
    Trace(
        "the router that knows the name of a consumer does not pass it on",
        ("names",), "started twice", {"c0": "A", "s0": "B", "s2": ""},
        """join s2 A; read s2 A 1; read A C; read C A; read c0 A 1; give A s2 c0; read A s2 1; kill A; lose A B;
        leave c0 B; settle; give B s0 c0; read B s0 1""",
    ),
    Trace(
        "a consumer joins an earlier owner that has not heard of the later one: no kill",
        ("carry",), "started twice", {"c0": "A", "s0": "B", "s2": ""},
        """read c0 A 1; reset c0 C; read c0 C 2; read C B; settle except C> >A; give C s0 c0; read C B; read B s0 1;
        join s2 A; read s2 A 1; read A B; read B A; give A s2 c0; read A s2 1""",
    ),
    Trace(
        "the same, and the earlier owner has heard of the later one and goes on",
        ("give_up",), "started twice", {"c0": "A", "s0": "B", "s2": ""},
        """read c0 A 1; reset c0 C; read c0 C 2; read C B; settle except C> >A; give C s0 c0; read C B; read B s0 1;
        join s2 A; read s2 A 1; read A B; read B A; give A s2 c0; read A s2 1""",
    ),
    Trace(
        "the connection of a consumer is reset while a call is on its way to it: no kill",
        ("ask_again",), "lost", {"c0": "A", "s0": "B", "s1": "C"},
        """read c0 A 1; give A s0 c0; read A B; reset s0 C; settle""",
    ),
    Trace(
        "a consumer that is at work sends its answer to the owner that died",
        ("retag",), "never ends", {"c0": "A", "s0": "C", "s1": "B"},
        """read c0 A 1; give A s0 c0; read A C; read C s0 1; kill A; leave c0 B; settle; finish s0 c0; settle""",
    ),
)  # fmt: skip


def outcome(setting: Setting, trace: Trace) -> tuple[str, list[str]]:
    """Return the invariant that ``trace`` breaks, or "", and the lines that were not possible and left out.

    After its last line everything heals and goes on until nothing more can happen.
    """
    world = world_of(trace.homes, faults=9, kills=1)
    left_out: list[str] = []
    for line in (line.strip() for line in trace.lines.split(";")):
        if line.startswith("settle"):
            world = _settled(setting, world, line.split()[2:])
        elif (action := _action(line)) in (*enabled(setting, world), *faults(setting, world)):
            world = step(setting, world, action)
        else:
            left_out.append(line)
        if broken := broken_safety(world):
            return broken, left_out
    world = healed(world)
    while actions := [action for action in enabled(setting, world) if action.kind != "lose"]:
        world = step(setting, world, actions[0])
        if broken := broken_safety(world):
            return broken, left_out
    return broken_at_rest(world), left_out


def _action(line: str) -> Action:
    kind, *words = line.split()
    fields = dict(zip(FIELDS.get(kind, "who to").split(), words, strict=False))
    return Action(kind, fields["who"], fields.get("to", ""), int(fields.get("link", 0)), fields.get("key", ""))


def _settled(setting: Setting, world: World, excepted: list[str]) -> World:
    while actions := [
        action
        for action in enabled(setting, world)
        if action.kind == "read" and f"{action.who}>" not in excepted and f">{action.to}" not in excepted
    ]:
        world = step(setting, world, actions[0])
    return world
