"""The addresses of the mesh, as a router shows them."""

from __future__ import annotations

from typing import Any

from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import Kind, json_bytes
from tests.core.router.mesh.links import end_link, link_all


def rows(net: MeshNetwork, router: str, by: str = "ops") -> dict[tuple[str, str, str], dict[str, int]]:
    answer: dict[str, Any] = net.process(f"{by}-{router}", router=router).query("addresses")
    assert answer["truncated"] == 0
    return {(row["topic"], row["server"], row["group"]): row["consumers"] for row in answer["addresses"]}


def test_each_router_shows_the_same_addresses_with_their_consumers_by_router() -> None:
    net = link_all(MeshNetwork())
    for router in "bc":
        process = net.process(f"node-{router}", router=router)
        process.register("compute", server=f"node-{router}")
        process.register("compute", server="shared", exchange="")
    process.send(Kind.DECLARE, json_bytes({"group": "audit"}), format=1, address=b"\0\4\0jobs")
    net.process("api", router="a").cast("misspelt")
    net.advance(1.0)
    expected = {
        ("compute", "", ""): {"b": 2, "c": 2},
        ("compute", "node-b", ""): {"b": 1},
        ("compute", "node-c", ""): {"c": 1},
        ("compute", "shared", ""): {"b": 1, "c": 1},
        ("jobs", "", "audit"): {"c": 0},
    }
    assert [rows(net, router) for router in "abc"] == [expected] * 3
    (topic,) = [t for t in net.process("ops", router="a").query("topics")["topics"] if t["topic"] == "misspelt"]
    assert topic["elsewhere"] == {}
    net.cut("a", "b")
    end_link(net, "a", "b")
    assert ("compute", "node-b", "") not in rows(net, "a", by="other")


def test_topics_show_the_consumers_that_other_routers_have() -> None:
    net = link_all(MeshNetwork())
    net.process("node", router="b").register("compute")
    net.process("api", router="a").cast("compute")
    net.advance(1.0)
    (topic,) = net.process("ops", router="a").query("topics")["topics"]
    assert topic["elsewhere"] == {"b": 1} and topic["consumers"] == []
