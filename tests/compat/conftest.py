"""Legacy modules for the tests of the shim."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest

import compat.nova
from tests.compat.mocked import Load


@pytest.fixture
def load() -> Iterator[Load]:
    """Imports legacy modules under the stand-in, for one test."""
    if compat.nova.installed():
        compat.nova.uninstall()
    compat.nova.install(tree=False, era="essex", patched=False)
    yield importlib.import_module
    compat.nova.uninstall()


@pytest.fixture
def mox(load: Load) -> Any:
    return load("mox")
