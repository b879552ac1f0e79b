"""A queue server's engine for each test, without sockets and disks."""

from __future__ import annotations

import pytest

from tests.core.queue.virtual_store import World


@pytest.fixture
def world() -> World:
    """A queue server with an empty store."""
    return World()
