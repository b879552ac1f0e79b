"""eventlet as the shim provides it, for tests in this process and for programs in a process of their own."""

from __future__ import annotations

import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gevent import subprocess

#: The directory that has to be on the path for `import eventlet` to find ours.
EVENTLET = Path(__file__).parents[3] / "compat/nova/modules/eventlet"


def _ours() -> list[str]:
    return [name for name in sys.modules if name.partition(".")[0] == "eventlet"]


@pytest.fixture(scope="module")
def eventlet() -> Iterator[Any]:
    """The package, imported; forgotten when these tests are over."""
    others = {name: sys.modules.pop(name) for name in _ours()}
    finders = list(sys.meta_path)
    sys.path.insert(0, str(EVENTLET))
    try:
        yield importlib.import_module("eventlet")
    finally:
        sys.path.remove(str(EVENTLET))
        sys.meta_path[:] = finders
        for name in _ours():
            del sys.modules[name]
        sys.modules.update(others)


@pytest.fixture
def program() -> Callable[..., str]:
    """Runs a program in a process of its own and gives what it printed; it must end well."""

    def run(code: str, status: int = 0) -> str:
        environment = dict(os.environ, PYTHONPATH=str(EVENTLET))
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=30,
            check=False,
        )
        text = str(done.stdout.decode())
        assert done.returncode == status, text
        return text

    return run
