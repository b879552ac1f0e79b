"""Routers of the tests of the mesh."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.testing.mesh_network import MeshNetwork


@pytest.fixture
def empty() -> Iterator[MeshNetwork]:
    """No routers yet; none of those that are added may meet an internal error."""
    made = MeshNetwork(names=())
    yield made
    for host in made.hosts.values():
        assert [note.text for note in host.notes if note.event == "internal error"] == []
