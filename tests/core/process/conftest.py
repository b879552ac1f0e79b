"""Processes for the tests of their engines."""

from __future__ import annotations

import pytest

from tests.core.process.calling import Process


@pytest.fixture
def process() -> Process:
    """A caller that is connected."""
    return Process()


@pytest.fixture
def keeper() -> Process:
    """A caller whose router says which casts need not be retained."""
    made = Process()
    made.connect(tells_delivered=True, boot=4)
    made.connect(tells_delivered=True, boot=5)
    return made
