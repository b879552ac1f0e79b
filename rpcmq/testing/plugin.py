"""pytest fixtures of rpcmq; pytest finds them by itself where rpcmq is installed.

pytest loads this file in every project of an environment, so it loads nothing until a fixture is
used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from rpcmq import testing

if TYPE_CHECKING:
    from rpcmq.client import Client

__all__ = ["rpcmq_client", "rpcmq_router"]


@pytest.fixture
def rpcmq_router() -> Iterator[testing.InProcessRouter]:
    """A router inside the test process, for one test; ``rpcmq.rpc`` uses it meanwhile."""
    with testing.router() as router:
        yield router


@pytest.fixture
def rpcmq_client(rpcmq_router: testing.InProcessRouter) -> Iterator[Client]:
    """A client of ``rpcmq_router``."""
    from rpcmq.client import Client

    with Client(rpcmq_router.url) as client:
        yield client
