"""``rpcmq version``."""

from __future__ import annotations

import json
import platform
from importlib.metadata import PackageNotFoundError, version

import click

from rpcmq import __version__
from rpcmq.cli.options import State, json_option

__all__ = ["version_command"]

_LIBRARIES = ("pyzmq", "gevent", "greenlet", "tenacity", "dill", "click", "rich")


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


@click.command("version")
@json_option
@click.pass_obj
def version_command(state: State) -> None:
    """Print the versions of rpcmq, of Python and of the libraries in use."""
    versions = {"rpcmq": __version__, "python": platform.python_version()}
    versions |= {name: _version_of(name) for name in _LIBRARIES}
    if state.json:
        print(json.dumps(versions))
        return
    for name, number in versions.items():
        print(f"{name:<9} {number}")
