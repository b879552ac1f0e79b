"""The way from one router to another, computed from the first one's view of the mesh."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.cli.mesh_path import path_to


def view_of(own: int, connections: str, linked: str, told: dict[int, str] | None = None) -> dict[str, Any]:
    """The view of router ``own`` of a mesh with ``connections`` ("12 23"), which has links to ``linked`` ("23")."""
    neighbours: dict[int, list[int]] = {}
    for one, other in (map(int, pair) for pair in connections.split()):
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    for id, others in (told or {}).items():
        neighbours[id] = list(map(int, others))
    rows = [
        {
            "id": id,
            "name": f"r{id}",
            "state": "answering" if str(id) in linked else "not linked",
            "neighbours": others,
        }
        for id, others in neighbours.items()
        if id != own
    ]
    # A url that led to no router yet.
    rows.append({"id": 0, "name": "", "state": "not linked"})
    return {"router": f"r{own}", "router_id": own, "routers": rows}


@pytest.mark.parametrize(
    ("connections", "linked", "end", "path"),
    [
        ("12 13 23", "23", 3, [1, 3]),
        ("12 23", "23", 3, [1, 2, 3]),
        ("12 23 34 41", "234", 3, [1, 2, 3]),
        ("14 43 12 23", "234", 3, [1, 2, 3]),
        ("12 23 34 45", "2345", 5, [1, 2, 3, 4, 5]),
    ],
    ids=["full", "line", "ring, lower id", "ring, in another order", "long"],
)
def test_the_path_is_the_shortest_over_the_lower_ids(connections: str, linked: str, end: int, path: list[int]) -> None:
    assert path_to(view_of(1, connections, linked), end) == path


def test_a_connection_that_one_end_does_not_tell_of_is_not_used() -> None:
    # 2 says that it is connected to 3, and 3 knows nothing of that.
    view = view_of(1, "12 14 45 53", "2345", told={2: "13"})
    assert path_to(view, 3) == [1, 4, 5, 3]


def test_a_link_that_nobody_has_told_of_yet_is_direct() -> None:
    assert path_to(view_of(1, "12", "23", told={3: ""}), 3) == [1, 3]
