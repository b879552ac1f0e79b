"""A service whose methods can be held up, for the programs of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.client.endpoints import Compute


class Held(Compute):
    def wait_here(self, ctx: Any) -> str:
        self.started.set()
        self.go_on.wait(60)
        return "released"

    def release(self, ctx: Any) -> None:
        self.go_on.set()


@pytest.fixture
def held(serve: Any) -> Iterator[Held]:
    """A service in this process, in gevent."""
    endpoint = Held()
    serve(endpoint)
    yield endpoint
    endpoint.go_on.set()
