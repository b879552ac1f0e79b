"""Claims to the name of an owner behind which no queue server stands: they end nobody."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gevent
import pytest

from rpcmq.client.queue.protocol import CLAIMS, OPERATORS
from rpcmq.queue_server import claim as claim_module
from rpcmq.queue_server.claim import Claim
from rpcmq.testing import eventually


@pytest.fixture
def client_shell() -> str:
    """A queue server lives in gevent."""
    return "gevent"


@pytest.fixture
def claim(client: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The claim of a queue server, which looks about at once."""
    monkeypatch.setattr(claim_module, "_SOON", 0.01)
    monkeypatch.setattr(claim_module, "_LATER", 0.01)
    client.connect()
    return Claim(client, "here", "1234")


def forge(claim: Claim, seconds: float = 1e300) -> None:
    claim.endpoint().claim(None, "here", "forged", seconds, "nowhere")


@pytest.fixture
def looks(claim: Claim, losses: list[None]) -> Iterator[list[None]]:
    """How often others were looked for."""
    looks: list[None] = []

    @contextmanager
    def aside() -> Iterator[None]:
        looks.append(None)
        yield

    keeper = gevent.spawn(claim.keep_up, aside, lambda: losses.append(None))
    yield looks
    keeper.kill()


@pytest.fixture
def losses() -> list[None]:
    """How often the claim was lost."""
    return []


def test_a_claim_behind_which_nobody_stands_is_looked_into_once_and_not_believed(
    claim: Claim, looks: list[None], losses: list[None]
) -> None:
    forge(claim)
    eventually(lambda: looks and not claim._is_doubted)
    for _ in range(100):
        forge(claim)
    assert not claim._is_doubted and not claim.lost and not losses and len(looks) == 1


@pytest.mark.usefixtures("looks")
def test_a_claim_of_one_that_serves_the_name_is_believed(claim: Claim, losses: list[None], serve: Any) -> None:
    class Other:
        def who(self, ctx: Any) -> str:
            return "pid 7 on elsewhere"

    serve(Other(), CLAIMS, host="here", exchange=OPERATORS)
    forge(claim, 1e9)
    eventually(lambda: losses)
    assert "another queue server of this mesh (pid 7 on elsewhere) serves the items of 'here'" in claim.lost
