"""Fixtures of the proxy's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.proxy.world import World


@pytest.fixture
def world(connect: Callable[..., Any]) -> Iterator[World]:
    """A router, and what a test adds to it."""
    made = World(connect)
    yield made
    made.close()
