"""A cast whose consumer is linked to another router, as its sender sees it."""

from __future__ import annotations

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.process import Process
from rpcmq.wire import Flag, Kind


def delivered(process: Process) -> list[bytes]:
    """The sequences of the casts that it need not keep any more."""
    payloads = [message.payload for message in process.inbox if message.kind is Kind.DELIVERED]
    return [payload[at : at + 8] for payload in payloads for at in range(0, len(payload), 8)]


def test_its_sender_has_room_and_a_confirmation_at_once_and_keeps_it_until_it_is_done() -> None:
    net = MeshNetwork(("a", "b"), Settings(recovery_seconds=0.0))
    net.advance(2.0)
    api, node = net.process("api", router="a", keeps=True), net.process("node", router="b")
    node.register("compute", credit=2)
    net.advance(1.0)

    cast = api.cast("compute", "reboot", flags=Flag.CONFIRM)
    message = node.take(Kind.CAST)
    node.uplink.acknowledge()
    net.advance(5.0)

    assert len(api.got(Kind.CONFIRM)) == 1
    assert api.uplink.unacknowledged == 0, "its window has room for another one"
    assert delivered(api) == []
    node.settle(message)
    net.advance(1.0)
    assert delivered(api) == [cast.key[12:]]
