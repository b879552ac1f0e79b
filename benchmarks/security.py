"""The cost of security: whole calls with CURVE, with signed payloads and plain; the router's engine with rights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.children import Child, router
from benchmarks.ends import both, sample
from benchmarks.engine import NAMES, Engine, measure_in_turn, rows_of
from benchmarks.report import Benchmark, Options, Row, Target
from rpcmq.core.router.rights import EVERYTHING, Key, Right
from rpcmq.core.router.router import Router
from rpcmq.core.router.settings import Settings
from rpcmq.server.authorized_keys import AUTHORIZED, ROUTER_KEY, to_toml
from rpcmq.transport.curve import new_pair
from rpcmq.transport.key_files import KeyFile, write_private
from rpcmq.transport.mac_files import new_mac_key

__all__ = ["BENCHMARKS", "engine"]

_PLAIN = "plain"
_ALL = "CURVE, all rights"
_SOME = "CURVE, some rights"
_SIGNED = "signed payloads, no CURVE"
_WIDTHS = (1, 64, 256)
_RIGHTS = {
    _ALL: ((EVERYTHING,), (EVERYTHING,)),
    _SOME: (
        (Right(frozenset(["serve"]), ("compute.#",)),),
        (Right(frozenset(["call"]), ("image.#",)), Right(frozenset(["call"]), ("compute.#",))),
    ),
}


# --- whole calls ---------------------------------------------------------------------------------


def _folder(root: Path, rights: tuple[tuple[Right, ...], ...]) -> tuple[str, str]:
    """Keys of a router, a service and a caller below ``root``; gives the key files of the latter two."""
    (root / AUTHORIZED).mkdir(mode=0o700, parents=True)
    public, secret = new_pair()
    write_private(root / ROUTER_KEY, KeyFile(public, secret).text())
    for name, allowed in zip(NAMES, rights, strict=True):
        own, own_secret = new_pair()
        write_private(root / f"{name}.key", KeyFile(own, own_secret, name, public).text())
        write_private(root / AUTHORIZED / f"{name}.toml", to_toml(Key(name, own, allowed), None))
    service, caller = (str(root / f"{name}.key") for name in NAMES)
    return service, caller


def _trust(root: Path) -> dict[str, Any]:
    """Keys to sign with, and a policy that takes nothing else."""
    root.mkdir()
    mac_file, trust_file = root / "mac.toml", root / "trust.toml"
    new_mac_key(mac_file, "bench")
    trust_file.write_text('[[topics]]\ntopics = ["#"]\nrequire = true\n')
    return {"mac_file": str(mac_file), "trust_file": str(trust_file)}


@contextmanager
def _system(name: str, root: Path) -> Iterator[tuple[Child, Child]]:
    keys = ("", "")
    settings: dict[str, Any] = {}
    trust: dict[str, Any] = {}
    if name == _SIGNED:
        trust = _trust(root)
    elif name != _PLAIN:
        keys = _folder(root, _RIGHTS[name])
        settings["security_keys"] = str(root)
    with router(**settings) as (daemon, url), both(url, ["compute"], keys=keys, **trust) as calling:
        yield calling, daemon


def run(options: Options) -> list[Row]:
    """Calls/s and latency from one process with W callers to one service."""
    rows = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="rpcmq-bench-")))
        systems = {
            name: stack.enter_context(_system(name, folder / str(number)))
            for number, name in enumerate((_SOME, _ALL, _SIGNED, _PLAIN))
        }
        for width in _WIDTHS:
            together = [Row(system, width, []) for system in systems]
            for number in range(options.rounds):
                for row in together if number % 2 else together[::-1]:
                    calling, daemon = systems[row.system]
                    row.samples.append(sample(calling, daemon, options.seconds, verb="call", width=width))
            rows += together
    return rows


# --- the engine alone ----------------------------------------------------------------------------

_OFF, _ON = "no rights", "rights of a topic"
_EVERYTHING = "all rights"
_METERED = "rights, and a rate"
_ENGINES: dict[str, tuple[Right, ...] | None] = {
    _ON: (*_RIGHTS[_SOME][1], *_RIGHTS[_SOME][0]),
    _EVERYTHING: (EVERYTHING,),
    _METERED: (*_RIGHTS[_SOME][1], *_RIGHTS[_SOME][0]),
    _OFF: None,
}


def _engine(rights: tuple[Right, ...] | None, rate: float | None) -> Engine:
    router = Router(Settings(recovery_seconds=0.0), 1_700_000_000_000, 0.0, lambda: "token")
    if rights is not None:
        router.set_authorized_keys(0.0, [Key(name, name, rights, messages_per_second=rate) for name in NAMES])
    return Engine(router)


def engine() -> None:
    """Engines in one process, measured in turn as it is told."""
    engines = {name: _engine(rights, 1e9 if name == _METERED else None) for name, rights in _ENGINES.items()}
    measure_in_turn(engines)


def run_engine(options: Options) -> list[Row]:
    """CPU time of a call in the engine: no sockets."""
    return rows_of(options, engine, _ENGINES)


BENCHMARKS = (
    Benchmark(
        name="security",
        title="CURVE, rights and signatures: whole calls with W callers, with keys and without",
        case="W",
        metric="calls_per_second",
        ours=_PLAIN,
        run=run,
    ),
    Benchmark(
        name="rights",
        title="Rights: the router's engine alone, CPU time of a call",
        case="a",
        metric="engine_us",
        ours=_ON,
        run=run_engine,
        targets=(Target(_OFF, "engine_us", ("call",), at_most=1.05),),
    ),
)
