"""Processes and topics that come and go at several routers leave nothing at any of them."""

from __future__ import annotations

from rpcmq.core.router.settings import Settings
from rpcmq.testing.invariants import check_router, left_behind
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind

#: The numbers of identities are used again: as many as there were at a time.
NUMBERS = "router.directory.watcher._interest.own._identities."


def sizes(net: MeshNetwork) -> dict[str, dict[str, int]]:
    """Path -> size of each table that is not empty, by router."""
    found = {}
    for name, host in net.hosts.items():
        found[name] = {
            path: len(table) for path, table in left_behind(host.router).items() if not path.startswith(NUMBERS)
        }
    return found


def test_what_comes_and_goes_leaves_nothing_at_any_router() -> None:
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    before = sizes(net)
    for number in range(24):
        names = "abc"[number % 3 :] + "abc"[: number % 3]
        api, node, audit = (net.process(f"{name}-{number}", router=name) for name in names)
        node.register(f"topic-{number}", server=f"s{number}")
        audit.register(f"topic-{number}", group="audit")
        audit.subscribe(f"event-{number}.#")
        net.advance(0.05)
        call = api.request(f"topic-{number}")
        node.reply(node.take(Kind.REQUEST))
        assert call.end.kind is Kind.REPLY and len(audit.got(Kind.CAST)) == 1
        api.cast(f"topic-{number}", ttl=5)
        api.publish(f"event-{number}.begins")
        for process in (api, node, audit):
            process.stop() if number % 2 else process.die()
    for _ in range(20):
        net.advance(net.router_of("a").settings.mailbox_max_seconds / 10)
    assert sizes(net) == before
    for host in net.hosts.values():
        check_router(host.router)
