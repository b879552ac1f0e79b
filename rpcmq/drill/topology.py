"""The topology of a drill: its processes, their load, and the router's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rpcmq.errors import ConfigError
from rpcmq.toml import read_toml

__all__ = ["VERBS", "Topology", "load_topology"]

VERBS = ("call", "cast", "fanout", "publish")


@dataclass(frozen=True)
class Topology:
    """Processes and their load.

    Attributes:
        services: how many serve the topic.
        routers: how many; above 1 they are one mesh, and the processes are spread over them.
        callers: how many call.
        subscribers: how many subscribe to the events that callers publish.
        workers: greenlets of a caller that call at the same time.
        concurrency: requests that a service runs at once.
        rate: messages a second of all callers together; 0: as many as can be.
        timeout: of a call (seconds).
        verbs: how often each of :data:`VERBS` is used, relative to the others.
        confirmed: share of the casts that are sent with ``confirm``.
        idempotent: share of the calls that are idempotent.
        handler_seconds: how long a handler takes: one of these, by chance.
        failing: share of handlers that raise.
        hogging: share of handlers that hold the processor instead of sleeping.
        sizes: bytes of text in a message: one of these, by chance.
        mandatory: share of the calls that are mandatory.
        nested: share of the calls whose handler calls in its turn.
        large: share of the messages that have one of ``large_sizes``, and of whose calls the result has it, too.
        large_sizes: bytes of text in a large message: one of these, by chance.
        misspelt: share of the casts that go to topics that nobody has.
        patched: callers and services call ``gevent.monkey.patch_all()`` before anything else.
        plain: how many programs without gevent cast and call from threads, then compute and sleep.
        busy_seconds: how long a plain program computes and sleeps between two rounds.
        direct: whether processes connect to the router itself; otherwise each goes through a proxy of its own,
            which faults of the network need.
        router_config: TOML file of the router; empty: its defaults.
        router: settings of the router on top of that, as ``link_resume_seconds``.
    """

    services: int = 3
    routers: int = 1
    callers: int = 1
    subscribers: int = 0
    workers: int = 32
    concurrency: int = 16
    rate: float = 0.0
    timeout: float = 20.0
    verbs: Mapping[str, float] = field(default_factory=lambda: {"call": 3.0, "cast": 1.0})
    confirmed: float = 0.5
    idempotent: float = 0.0
    handler_seconds: tuple[float, ...] = (0.0, 0.0, 0.0, 0.002)
    failing: float = 0.01
    hogging: float = 0.0
    sizes: tuple[int, ...] = (50, 500)
    mandatory: float = 0.0
    nested: float = 0.0
    large: float = 0.0
    large_sizes: tuple[int, ...] = (64 << 10, 256 << 10, 1 << 20, 3 << 20)
    misspelt: float = 0.0
    patched: bool = False
    plain: int = 0
    busy_seconds: float = 3.0
    direct: bool = True
    router_config: str = ""
    router: Mapping[str, Any] = field(default_factory=dict)


def load_topology(path: str | Path) -> Topology:
    """The topology in the TOML file ``path``.

    Raises:
        ConfigError: it cannot be read, or says what is unknown or wrong.
    """
    values = read_toml(path)
    known = {f.name: f for f in fields(Topology)}
    problems = [f"{name!r} is unknown; known: {', '.join(known)}" for name in values if name not in known]
    default = Topology()
    chosen: dict[str, Any] = {}
    for name, value in values.items():
        if name in known:
            try:
                chosen[name] = _checked(name, value, getattr(default, name))
            except ValueError as error:
                problems.append(f"{name} = {value!r}: {error}")
    if problems:
        raise ConfigError("\n".join(f"{path}: {problem}" for problem in problems))
    config = chosen.get("router_config")
    if config:
        # As its author means it: beside the file that names it.
        chosen["router_config"] = str(Path(path).parent / config)
    return Topology(**chosen)


def _checked(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool | str):
        if type(value) is not type(default):
            raise ValueError(f"expected a {'flag' if isinstance(default, bool) else 'text'}")
        return value
    if isinstance(default, int):
        least = 1 if name in ("routers", "services", "callers", "workers", "concurrency") else 0
        return _number(value, int, least)
    if isinstance(default, float):
        return float(_number(value, (int, float), 0.0))
    if isinstance(default, tuple):
        if not isinstance(value, list) or not value:
            raise ValueError("expected a list of numbers")
        return tuple(_number(each, (int, float) if name == "handler_seconds" else int, 0) for each in value)
    if not isinstance(value, dict):
        raise ValueError("expected a table")
    if name == "verbs":
        for verb, weight in value.items():
            if verb not in VERBS:
                raise ValueError(f"{verb!r} is none of {', '.join(VERBS)}")
            _number(weight, (int, float), 0)
        if not sum(value.values()):
            raise ValueError("one of them must be above 0")
    return value


def _number(value: Any, kind: type | tuple[type, ...], least: float) -> Any:
    is_number = isinstance(value, kind) and not isinstance(value, bool)
    if not is_number or value < least:
        raise ValueError(f"expected {'an integer' if kind is int else 'a number'} >= {least:g}")
    return value
