"""Several routers for tests: linked when they are there, and again after any of them was killed, stopped or added."""

from __future__ import annotations

import os

import pytest

from rpcmq.testing import eventually, routers
from rpcmq.testing.router_mesh import RouterMesh

QUICK = {"mesh_silence_seconds": 1.0, "link_heartbeat_seconds": 0.25, "link_unresponsive_seconds": 1.0}


def test_routers_in_this_process_are_linked_and_named_by_the_environment():
    before = os.environ.get("RPCMQ_ROUTER")
    with routers(3) as (a, b, c):
        assert [each.config.router.name for each in (a, b, c)] == ["a", "b", "c"]
        assert os.environ["RPCMQ_ROUTER"] == f"{a.url},{b.url},{c.url}"
        rows = b.query("processes")["processes"]
        assert sorted(row["identity"] for row in rows) == ["a", "c"]
        for each in (a, b, c):
            each.check()
    assert os.environ.get("RPCMQ_ROUTER") == before


@pytest.mark.fault
@pytest.mark.integration
def test_router_processes_are_linked_again_after_a_kill_and_a_stop():
    with RouterMesh(3, **QUICK) as mesh:
        a, b, c = mesh
        assert mesh["b"] is b and mesh.urls == [a.url, b.url, c.url]
        a.kill()
        with pytest.raises(AssertionError, match="misses"):
            mesh.wait_until_linked(a, b, c, timeout=0.1)
        mesh.wait_until_linked()
        a.restart()
        mesh.wait_until_linked(a, b, c)
        b.pause()
        eventually(lambda: "b" not in mesh.neighbours(a))
        b.resume()
        mesh.wait_until_linked()
        mesh.add()
        mesh.wait_until_linked()
        assert len(mesh.neighbours(mesh["d"])) == 3
