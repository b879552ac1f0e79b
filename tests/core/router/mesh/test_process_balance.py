"""Processes that are asked to go on at routers with fewer of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from rpcmq.core.router.mesh.process_balance import Balance
from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.testing.process import Process
from rpcmq.wire import Kind
from rpcmq.wire.bodies import CONSUMER_ROLE

INTERVAL = 10.0
SETTINGS = Settings(recovery_seconds=0.0, mesh_rebalance_seconds=INTERVAL)


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=SETTINGS)
    made.advance(2.0)
    return made


def processes(net: MeshNetwork, router: str, count: int, **hello: Any) -> list[Process]:
    return [net.process(f"{router}{number}", router=router, **hello) for number in range(count)]


def asked(all_of_them: list[Process]) -> Iterator[tuple[Process, str]]:
    """Each process that was asked since the last time, with the router that it was asked to go to."""
    for process in all_of_them:
        for message in process.got(Kind.ROUTERS):
            if url := message.body.get("go_to"):
                yield process, url.removeprefix("inproc://")
        process.inbox.clear()


def obey(net: MeshNetwork, all_of_them: list[Process], seconds: float) -> int:
    """Have processes go where they are asked to go, for ``seconds`` of virtual time; return how many did."""
    moved = 0
    for _ in range(int(seconds)):
        net.advance(1.0)
        for process, router in list(asked(all_of_them)):
            process.move(router)
            moved += 1
    return moved


def linked(net: MeshNetwork) -> dict[str, int]:
    return {
        name: sum(link.queue_type == "roundrobin" and link.route is not None for link in net.router_of(name).links)
        for name in net.hosts
    }


def test_those_of_a_router_that_was_restarted_come_back_to_it_and_then_all_is_quiet(net: MeshNetwork) -> None:
    everybody = [*processes(net, "a", 6), *processes(net, "b", 6)]
    assert obey(net, everybody, 3 * INTERVAL) == 4
    assert linked(net) == {"a": 4, "b": 4, "c": 4}
    net.hosts["c"].kill()
    for process in everybody:
        if process.router == "c":
            process.move("a")
    net.advance(2.0)
    net.hosts["c"].start()
    assert linked(net) == {"a": 8, "b": 4, "c": 0}
    obey(net, everybody, 10 * INTERVAL)
    assert linked(net) == {"a": 4, "b": 4, "c": 4}
    assert obey(net, everybody, 20 * INTERVAL) == 0


def test_a_mesh_in_balance_sends_nothing_but_what_it_sends_anyway() -> None:
    sent = []
    for interval in (0.0, INTERVAL):
        net = MeshNetwork(settings=replace(SETTINGS, mesh_rebalance_seconds=interval))
        everybody = [net.process(f"{router}{n}", router=router) for router in "abc" for n in range(3)]
        net.advance(5 * INTERVAL)
        before = links_sent(net)
        net.advance(12 * INTERVAL)
        sent.append([after - count for after, count in zip(links_sent(net), before, strict=True)])
        assert not list(asked(everybody))
    assert sent[0] == sent[1]


def links_sent(net: MeshNetwork) -> list[int]:
    """The messages that the routers have sent to each other."""
    return [link.sent_messages for name in net.hosts for link in net.router_of(name).links if link.queue_type == "mesh"]


def test_others_are_told_how_many_processes_a_router_has(net: MeshNetwork) -> None:
    observer = net.process("observer", router="a")
    processes(net, "b", 2)
    net.advance(2 * INTERVAL)
    view = observer.query("mesh")
    assert {row["name"]: row["process_count"] for row in view["routers"]} == {"b": 2, "c": 0}
    assert view["process_count"] == 1


def test_it_can_be_turned_off_and_on_again(net: MeshNetwork) -> None:
    for name in net.hosts:
        net.router_of(name).settings.mesh_rebalance_seconds = 0.0
    everybody = processes(net, "a", 9)
    assert obey(net, everybody, 10 * INTERVAL) == 0
    for name in net.hosts:
        net.router_of(name).settings.mesh_rebalance_seconds = INTERVAL
    assert obey(net, everybody, 10 * INTERVAL) == 6


@pytest.mark.parametrize("hello", [{"follows_mesh": False}, {"role": CONSUMER_ROLE}, {"queue_type": "pubsub"}], ids=str)
def test_processes_that_must_stay_are_neither_counted_nor_asked(net: MeshNetwork, hello: dict[str, Any]) -> None:
    others = processes(net, "a", 9, **hello)
    net.advance(5 * INTERVAL)
    assert not list(asked(others))


def test_consumers_of_a_domain_stay_where_it_is() -> None:
    net = MeshNetwork(("a", "b"), SETTINGS)
    net.add_router("c", mesh_domains=("volume.#",))
    net.advance(2.0)
    served, others = processes(net, "c", 4), [net.process(f"o{n}", router="c") for n in range(4)]
    for process in served:
        process.register("volume.one")
    net.advance(10 * INTERVAL)
    assert not list(asked(served))
    assert len(list(asked(others))) > 2


def test_one_that_has_nothing_to_do_is_asked_first(net: MeshNetwork) -> None:
    everybody = processes(net, "a", 6)
    busy = everybody[:2]
    for process in busy:
        process.request("nowhere", ttl=1000)
    net.advance(3 * INTERVAL)
    found = {process.identity for process, _ in asked(everybody)}
    assert len(found) == 4 and not found & {process.identity for process in busy}


def test_one_that_does_not_go_is_not_asked_again_soon(net: MeshNetwork) -> None:
    everybody = processes(net, "a", 6)
    net.advance(15 * INTERVAL)
    times = [process.identity for process, _ in asked(everybody)]
    assert len(times) == len(set(times))
    net.advance(30 * INTERVAL)
    assert list(asked(everybody))


def test_nobody_is_sent_to_a_router_that_drains_or_has_left(net: MeshNetwork) -> None:
    everybody = processes(net, "a", 9)
    net.router_of("b").begin_drain(net.now)
    net.router_of("c").mesh.members.leave(net.now)
    net.advance(10 * INTERVAL)
    assert not list(asked(everybody))


def test_a_router_that_drains_asks_nobody(net: MeshNetwork) -> None:
    everybody = processes(net, "a", 9)
    net.router_of("a").begin_drain(net.now)
    net.advance(10 * INTERVAL)
    assert not list(asked(everybody))


def test_a_router_that_does_not_count_its_processes_is_left_alone(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    everybody = processes(net, "a", 4)
    for name in "bc":
        mesh = net.router_of(name).mesh
        monkeypatch.setattr(mesh.members._context, "processes", None)
        mesh.members._context.own_changed(net.now)
        (balance,) = [part for part in mesh.parts if isinstance(part, Balance)]
        monkeypatch.setattr(balance, "_look", lambda now: None)
    net.advance(10 * INTERVAL)
    assert not list(asked(everybody))


def test_those_who_are_many_are_asked_one_after_the_other(net: MeshNetwork) -> None:
    everybody = processes(net, "a", 60)
    net.advance(INTERVAL)
    seen = []
    for _ in range(100):
        net.advance(0.1)
        seen.append(len(list(asked(everybody))))
    assert sum(seen) == 40 and max(seen) <= 2
