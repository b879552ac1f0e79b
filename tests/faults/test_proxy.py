"""Origins, fetchers, front ends and routers are killed under load: no response is wrong, mixed up, truncated and kept,
or staler than it may be.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.proxy.messages import Headers
from tests.faults.proxy_drill import Outcome, body_of, run
from tests.proxy.world import Reply

REQUESTS = 3000


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("with_router", [False, True])
def test_nothing_is_wrong_or_truncated_while_everything_is_killed(tmp_path: Path, with_router: bool) -> None:
    outcome = run(tmp_path, REQUESTS, 1, with_router=with_router)
    print(dict(outcome.seen))
    assert outcome.wrong == []
    assert outcome.seen["200"] > 200 and outcome.seen["hits"] > 20 and outcome.seen["origins killed"]


@pytest.mark.parametrize(
    ("body", "age", "target", "cache"),
    [
        (body_of("/0a")[:-1], 0.0, "/0a", "rpcmq; hit; ttl=1"),
        (body_of("/1a"), 0.0, "/0a", "rpcmq; hit; ttl=1"),
        (body_of("/0a"), 0.0, "/1a", "rpcmq; hit; ttl=1"),
        (body_of("/0a"), 2.0, "/0a", "rpcmq; hit; ttl=1"),
        (body_of("/0a"), 4000.0, "/0a", "rpcmq; fwd=stale; detail=stale-if-error"),
    ],
)
def test_the_check_finds_what_is_wrong(body: bytes, age: float, target: str, cache: str) -> None:
    outcome = Outcome()
    headers = Headers((("X-Target", target), ("X-Made", repr(10_000.0 - age)), ("Cache-Status", cache)))
    outcome.check("/0a", Reply(200, headers, body), 10_000.0)
    assert len(outcome.wrong) == 1
    good = Headers((("X-Target", "/0a"), ("X-Made", "9999.5"), ("Cache-Status", "rpcmq; hit; ttl=1")))
    outcome.check("/0a", Reply(200, good, body_of("/0a")), 10_000.0)
    assert len(outcome.wrong) == 1
