"""Two routers that know nothing of each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq import testing
from tests.integration.cluster import Routers


@pytest.fixture
def routers() -> Iterator[Routers]:
    with testing.router() as one, testing.router() as two:
        yield one, two
        for router in (one, two):
            router.check()
