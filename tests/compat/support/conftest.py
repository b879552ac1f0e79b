"""The support modules under their legacy names, for one test; nothing of them stays."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import compat.nova
from compat.nova import options

Load = Callable[..., Any]


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str | None], Load]]:
    """Installs the shim for an era and gives the way to import a module of it."""
    monkeypatch.setattr(options, "_said_ignored", False)
    monkeypatch.delenv("RPCMQ_ROUTER", raising=False)
    before = set(sys.modules)

    def install(era: str | None = None) -> Load:
        # Not patched: the test process itself is plain.
        compat.nova.install(tree=False, era=era, patched=False)
        return importlib.import_module

    yield install
    compat.nova.uninstall()
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("nova", "oslo", "oslo_config"):
            del sys.modules[name]


@pytest.fixture
def load(stand_in: Callable[[str | None], Load]) -> Load:
    """Imports a module by its legacy name, in no given era."""
    return stand_in(None)
