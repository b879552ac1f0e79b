"""Legacy modules of a chosen era, loaded anew for each test that asks for them, without front module and drivers."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import compat.nova

Load = Callable[[str], Any]
"""Imports a module by its legacy name."""

_CORE = Path(compat.nova.__file__).parent / "modules/core/nova/rpc"


@pytest.fixture
def at() -> Iterator[Callable[[str | None], Load]]:
    """Puts the shim into an era (None: what the imports tell); gives what imports from it."""

    def install(era: str | None) -> Load:
        compat.nova.uninstall()
        compat.nova.install(tree=False, era=era, patched=False)
        # A front module with nothing in it: what is tested here works below it.
        rpc = ModuleType("nova.rpc")
        rpc.__path__ = [str(_CORE)]
        sys.modules["nova.rpc"] = rpc
        importlib.import_module("nova").rpc = rpc  # type: ignore[attr-defined]
        return importlib.import_module

    yield install
    compat.nova.uninstall()
