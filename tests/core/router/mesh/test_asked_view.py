"""The view ``stuck`` shows messages that wait for the word of consumers, and for whose."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
def test_messages_that_are_asked_for_are_shown_with_the_consumer_they_wait_for(kind: Kind) -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    node = net.process("node-7", router="b")
    node.register("jobs", "node-7", tag=0)
    net.advance(1.0)
    api = net.process("api", router="a")
    api._message(kind, "jobs", "run", b"", server="node-7", ttl=60)
    node.take(kind)
    node.die()
    net.hosts["b"].kill()
    net.advance(3.0)
    admin = net.process("admin", router="a")
    (row,) = admin.query("stuck")["stuck"]
    assert (row["kind"], row["state"], row["caller"]) == ("call" if kind is Kind.REQUEST else "cast", "asked", "api")
    assert row["why"].startswith("asked for ") and row["why"].endswith("no word from node-7, which was at router b")
    if kind is Kind.REQUEST:
        assert [call["state"] for call in admin.query("calls")["calls"]] == ["asked"]
    net.advance(10.0)
    assert admin.query("stuck") == {"stuck": [], "truncated": 0}


def test_a_message_that_waits_for_a_consumer_that_has_left_names_it() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0, mesh_return_seconds=5.0))
    net.advance(2.0)
    node = net.process("node", router="a")
    node.register("jobs", tag=0)
    net.advance(1.0)
    net.process("api", router="c").request("jobs", "run", ttl=60)
    node.take(Kind.REQUEST)
    node.die()
    net.advance(1.0)
    (row,) = net.process("admin", router="c").query("stuck")["stuck"]
    assert row["why"].endswith(("no word from node", "no word from node, which was at router a"))
