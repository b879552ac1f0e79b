"""Three routers all of whose consumers are busy, and that handle what a neighbour has sent with pauses in between."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.testing.mesh_network import MeshNetwork
from rpcmq.wire import FIRST_SESSION_KIND, KIND_AT, Kind


def pause_between(net: MeshNetwork, rng: Random) -> None:
    """Let messages between routers that were sent as one batch arrive one after the other."""
    put = net.put

    def put_singly(connection: Any, way: Any, messages: list[bytes]) -> None:
        if len(messages) == 1 or messages[0][KIND_AT] < FIRST_SESSION_KIND or messages[0][KIND_AT] == Kind.REGISTER:
            put(connection, way, messages)
            return
        for at, message in enumerate(messages):
            way.put(net.now + at * rng.choice((0.0, 0.001, 0.004)), message, [])
        net.under_way[connection] = None

    net.put = put_singly  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("seed", "rounds"),
    [(0, 200), pytest.param(0, 400, marks=pytest.mark.long), pytest.param(1, 400, marks=pytest.mark.long)],
)
def test_no_request_is_started_twice(seed: int, rounds: int) -> None:
    rng = Random(seed)
    net = MeshNetwork(settings=Settings(recovery_seconds=0.0))
    net.advance(2.0)
    nodes = {name: net.process(f"node-{name}", router=name) for name in "abc"}
    callers = {name: net.process(f"api-{name}", router=name) for name in "abc"}
    for node in nodes.values():
        node.register("compute", credit=4)
    net.advance(2.0)
    for one, other in ("ab", "ac", "bc"):
        net.delay(one, other, rng.choice((0.0, 0.002, 0.01)))
    pause_between(net, rng)
    started: Counter[bytes] = Counter()
    calls = []
    for _ in range(rounds):
        for name in rng.sample("abc", 2):
            with net.together():
                calls += [callers[name].request("compute", "run", ttl=600) for _ in range(rng.randrange(6))]
        for node in rng.sample(list(nodes.values()), 2):
            for request in [each for each in node.inbox if each.kind == Kind.REQUEST][: rng.randrange(1, 5)]:
                node.inbox.remove(request)
                started[request.key] += 1
                node.reply(request, b"done")
        net.advance(rng.choice((0.0, 0.001, 0.003)))
    for _ in range(2000):
        for node in nodes.values():
            for request in [each for each in node.inbox if each.kind == Kind.REQUEST]:
                node.inbox.remove(request)
                started[request.key] += 1
                node.reply(request, b"done")
        net.advance(0.01)
        if all(call.answers for call in calls):
            break
    assert [call.end.kind for call in calls if call.end.kind != Kind.REPLY] == []
    assert max(started.values()) == 1 and len(started) == len(calls)
