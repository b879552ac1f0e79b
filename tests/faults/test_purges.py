"""No purge is lost while MongoDB is away and all front ends that heard of it are killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpcmq.proxy.messages import Headers
from tests.faults.purge_drill import BODY, HEARD, Outcome, run
from tests.proxy.store.mongo_server import Server, mongo_server
from tests.proxy.world import Reply

__all__ = ["mongo_server"]


@pytest.mark.fault
@pytest.mark.long
@pytest.mark.timeout(400)
def test_nothing_that_was_purged_is_served(tmp_path: Path, mongo_server: Server) -> None:
    outcome = run(tmp_path, 2000, 1, mongo_server)
    print(dict(outcome.seen))
    assert outcome.wrong == []
    assert outcome.seen["hits"] > 100 and outcome.seen["purges: 202"]


@pytest.mark.parametrize(
    ("meant", "made", "asked_at", "is_wrong"),
    [
        ("/3/1", 99.0, 102.0 + HEARD, True),
        ("/3/", 99.0, 102.0 + HEARD, True),
        ("/", 99.0, 102.0 + HEARD, True),
        ("/3/", 100.5, 102.0 + HEARD, False),
        ("/3/", 99.0, 100.9 + HEARD, False),
        ("/3/10", 99.0, 102.0 + HEARD, False),
        ("/4/", 99.0, 102.0 + HEARD, False),
    ],
)
def test_the_check_finds_what_was_purged(meant: str, made: float, asked_at: float, is_wrong: bool) -> None:
    outcome = Outcome()
    outcome.has_purged(meant, 100.0, 101.0)
    fields = (("X-Target", "/3/1"), ("X-Made", repr(made)), ("Cache-Status", "rpcmq; hit; ttl=1"))
    outcome.check(0, "/3/1", Reply(200, Headers(fields), BODY), asked_at)
    assert bool(outcome.wrong) is is_wrong
