"""Plugged-in nodes are found by their entry points, and their settings are checked, before the router starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rpcmq.config.nodes import NodeTable
from rpcmq.config.values import Setting
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.errors import ConfigError
from rpcmq.nodes.desk import Desk
from rpcmq.nodes.keeper import Keeper
from rpcmq.nodes.node import API_VERSION, Node
from rpcmq.nodes.overrun import Steps, Watchdog
from rpcmq.nodes.plan import Plan
from rpcmq.nodes.plug_in import PlugIn
from rpcmq.wire import FIRST_FREE_NODE_KIND, FIRST_NODE_KIND

__all__ = ["GROUP", "PlugIns", "installed_types", "origin_of", "plans_for", "plug_ins_for"]

#: The group of entry points.
GROUP = "rpcmq.nodes"
#: The distribution whose nodes may take kinds below FIRST_FREE_NODE_KIND.
_OWN = "rpcmq"
_LAST_KIND = 0xFF
Maker = Callable[[NodeContext], NodeType]


@dataclass
class PlugIns:
    """The makers of a router's plugged-in nodes, and their watchdog.

    Args:
        plans: the nodes.
        keepers: of those that keep something for their next life, by name.
    """

    plans: Sequence[Plan]
    keepers: dict[str, Keeper] = field(default_factory=dict)
    steps: Steps = field(default_factory=Steps)
    watchdog: Watchdog | None = None

    @property
    def makers(self) -> tuple[Maker, ...]:
        """Makers for :class:`rpcmq.core.router.router.Router`; none without nodes."""
        made: list[Maker] = [partial(PlugIn, plan, self.steps, self.keepers.get(plan.name)) for plan in self.plans]
        return (*made, Desk) if made else ()

    def watch(self) -> None:
        """Begin to break off steps that take too long."""
        if self.plans and self.watchdog is None:
            self.watchdog = Watchdog(self.steps)

    def close(self) -> None:
        """Watch no more."""
        if self.watchdog is not None:
            self.watchdog.close()
            self.watchdog = None


def plug_ins_for(tables: Sequence[NodeTable]) -> PlugIns:
    """The nodes that ``tables`` describe.

    Raises:
        ConfigError: as for :func:`plans_for`.
    """
    return PlugIns(plans_for(tables))


def installed_types() -> dict[str, list[EntryPoint]]:
    """The entry points of node types that are installed, by name: of each one, as a rule. None is loaded."""
    found: dict[str, list[EntryPoint]] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda each: (each.name, origin_of(each))):
        found.setdefault(point.name, []).append(point)
    return found


def origin_of(point: EntryPoint) -> str:
    """The name and version of the distribution that ``point`` is from."""
    return f"{point.dist.name} {point.dist.version}" if point.dist is not None else "no distribution"


def plans_for(tables: Sequence[NodeTable]) -> list[Plan]:
    """Find the nodes that ``tables`` describe, load their code, and check their settings.

    Raises:
        ConfigError: one line for each thing that is wrong: a type that is not installed or cannot be loaded, a setting
            that is unknown or wrong, or a kind or a type that two of them claim.
    """
    if not tables:
        return []
    known, problems, plans = installed_types(), list[str](), list[Plan]()
    for number, table in enumerate(tables):
        try:
            plans.append(_plan(f"node[{number}]", table, known))
        except ConfigError as error:
            problems += str(error).splitlines()
    problems += _double_kinds(plans)
    if problems:
        raise ConfigError("\n".join(problems))
    return plans


def _plan(where: str, table: NodeTable, known: Mapping[str, Sequence[EntryPoint]]) -> Plan:
    points = known.get(table.type)
    if points is None:
        near = get_close_matches(table.type, known, 1, 0.6)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        text = f"expected a node type that is installed: {', '.join(known) or 'there are none'}{meant}"
        raise ConfigError(f"{where}.type = {table.type!r}: {text}")
    if len(points) > 1:
        text = f"is a node type of {' and of '.join(map(origin_of, points))}: uninstall all but one of them"
        raise ConfigError(f"{where}.type = {table.type!r}: {text}")
    point = points[0]
    try:
        make = point.load()
    except (Exception, SystemExit) as error:  # a module that was written as a program may exit
        text = f"cannot be loaded from {point.value!r} of {origin_of(point)}: {type(error).__name__}: {error}"
        raise ConfigError(f"{where}.type = {table.type!r}: {text}") from error
    if problems := list(_problems_of(make, point)):
        raise ConfigError("\n".join(f"{where}.type = {table.type!r}: {each}" for each in problems))
    settings = _settings(where, table.options, make)
    bounds = table.max_bytes, table.max_seconds
    return Plan(table.name, table.type, origin_of(point), make, settings, *bounds, table.file)


def _problems_of(make: Any, point: EntryPoint) -> Iterator[str]:
    """Say why ``make`` is no node of this version of the contract."""
    whose = f"{point.value} of {origin_of(point)}"
    if not isinstance(make, type) or not issubclass(make, Node):
        yield f"{whose} is no class derived from rpcmq.nodes.Node"
        return
    if make.api_version != API_VERSION:
        yield f"{whose} is written for version {make.api_version} of rpcmq.nodes, and this is version {API_VERSION}"
        return
    if not is_dataclass(make.Settings) or not all("setting" in each.metadata for each in fields(make.Settings)):
        yield f"{whose}: Settings must be a dataclass whose fields are made with rpcmq.nodes.setting()"
    own = point.dist is not None and point.dist.name == _OWN
    least = FIRST_NODE_KIND if own else FIRST_FREE_NODE_KIND
    for kind in make.kinds:
        if type(kind) is not int or not least <= kind <= _LAST_KIND:
            yield f"{whose} claims the kind {kind!r}; those of plug-ins are from {least:#x} to {_LAST_KIND:#x}"


def _settings(where: str, options: Mapping[str, Any], make: type[Node]) -> Any:
    known: dict[str, Setting] = {each.name: each.metadata["setting"] for each in fields(make.Settings)}
    problems: list[str] = []
    values: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            near = get_close_matches(name, known, 1, 0.7)
            expected = f"did you mean {near[0]}?" if near else f"known: {', '.join(known) or 'none'}"
            problems.append(f"{where}.{name}: unknown setting of this node type; {expected}")
            continue
        try:
            values[name] = known[name].kind.check(value)
        except ValueError:
            problems.append(f"{where}.{name} = {value!r}: expected {known[name].kind.expected}")
    if not problems:
        try:
            return make.Settings(**values)
        except Exception as error:
            text = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            problems.append(f"{where}: its settings are refused: {text}")
    raise ConfigError("\n".join(problems))


def _double_kinds(plans: Sequence[Plan]) -> Iterator[str]:
    """Kinds that two of the nodes claim: a message of one could go to either."""
    owners: dict[int, Plan] = {}
    for plan in plans:
        for kind in plan.make.kinds:
            other = owners.setdefault(kind, plan)
            if other is not plan:
                first, second = (f"{each.name!r} (type {each.type_name!r} of {each.origin})" for each in (other, plan))
                yield f"node: kind {kind:#04x} is claimed by {first} and by {second}: leave out one of them"
