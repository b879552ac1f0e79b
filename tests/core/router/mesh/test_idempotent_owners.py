"""Idempotent messages are not asked for: their sender sends them again, and the former owner gives them up."""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Flag, Kind
from tests.faults.mesh_rest import unrest

FLAGS = Flag.IDEMPOTENT


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    made.advance(2.0)
    return made


@pytest.mark.parametrize("kind", [Kind.REQUEST, Kind.CAST])
@pytest.mark.parametrize("group", ["", "audit"])
@pytest.mark.parametrize("is_late", [False, True], ids=["the former first", "the former last"])
def test_the_former_owner_forgets_what_a_later_one_has_there(
    net: MeshNetwork, kind: Kind, group: str, is_late: bool
) -> None:
    node = net.process("node", router="b")
    node.register("jobs", tag=0, credit=5, group=group)
    net.advance(1.0)
    api = net.process("api", router="a")
    if is_late:
        net.cut("a", "b")
    call = api._message(kind, "jobs", "run", b"", flags=FLAGS, ttl=60)
    net.advance(0.1)
    api.move("c")
    api._message(kind, "jobs", "run", b"", key=call.key, hops=1, flags=FLAGS | Flag.RESENT, ttl=60)
    net.advance(0.1)
    net.heal()
    net.advance(0.5)
    again = [message for message in node.inbox if message.kind is kind][-1]
    if kind is Kind.CAST:
        node.settle(again)
    else:
        node.reply(again, b"done")
        assert [end.payload for end in call.ends] == [b"done"]
    net.advance(60.0)
    for name in "abc":
        assert unrest(net.router_of(name)) == []
        assert not net.router_of(name).dispatch.requests.drops.totals
