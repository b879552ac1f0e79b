"""The shortest ways through a mesh."""

from __future__ import annotations

from random import Random

import pytest

from rpcmq.core.router.mesh.member_table import MemberTable
from rpcmq.core.router.mesh.routes import Route, path, routes
from rpcmq.wire.mesh_bodies import MemberBody
from rpcmq.wire.relay import MAX_HOPS


def table_of(neighbours: dict[int, set[int]], own: int = 1, left: int = 0) -> MemberTable:
    table = MemberTable()
    for id, others in neighbours.items():
        if id != own:
            said = MemberBody(
                mesh="m", name=f"r{id}", id=id, incarnation=1, sequence=1, neighbours=tuple(others), left=id == left
            )
            table.take(0.0, said, 2)
    return table


def symmetric(*pairs: tuple[int, int]) -> dict[int, set[int]]:
    graph: dict[int, set[int]] = {}
    for one, other in pairs:
        graph.setdefault(one, set()).add(other)
        graph.setdefault(other, set()).add(one)
    return graph


def test_a_line() -> None:
    graph = symmetric((1, 2), (2, 3), (3, 4))
    found = routes(1, graph[1], table_of(graph))
    assert found == {2: Route(2, 1, 2), 3: Route(2, 2, 2), 4: Route(2, 3, 3)}
    assert path(found, 4) == [2, 3] and path(found, 2) == [] and path(found, 9) == []


def test_of_two_ways_the_one_over_the_lower_id() -> None:
    graph = symmetric((1, 3), (1, 2), (2, 4), (3, 4))
    assert routes(1, graph[1], table_of(graph))[4].hop == 2


def test_a_connection_counts_when_both_ends_report_it() -> None:
    graph = symmetric((1, 2), (2, 3))
    graph[3].discard(2)
    assert 3 not in routes(1, graph[1], table_of(graph))


def test_a_router_that_has_left_is_on_no_way() -> None:
    graph = symmetric((1, 2), (2, 3))
    assert 3 not in routes(1, graph[1], table_of(graph, left=2))


def test_no_way_is_longer_than_the_hop_limit() -> None:
    graph = symmetric(*((id, id + 1) for id in range(1, 40)))
    found = routes(1, graph[1], table_of(graph))
    assert max(found) == MAX_HOPS + 1 and max(route.length for route in found.values()) == MAX_HOPS


@pytest.mark.parametrize("seed", range(20))
def test_each_router_on_a_way_agrees_about_the_rest_of_it(seed: int) -> None:
    rng = Random(seed)
    pairs = {(id, rng.randrange(1, id)) for id in range(2, 30)}
    pairs |= {(rng.randrange(1, 30), rng.randrange(1, 30)) for _ in range(20)}
    graph = symmetric(*(pair for pair in pairs if pair[0] != pair[1]))
    found = {id: routes(id, graph[id], table_of(graph, own=id)) for id in graph}
    for id, ways in found.items():
        assert set(ways) == set(graph) - {id}
        for other, route in ways.items():
            rest = 0 if route.hop == other else found[route.hop][other].length
            assert route.length == 1 + rest, "otherwise messages could go in circles"
