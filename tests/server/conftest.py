"""The spool of the tests of the dispatch log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcmq.server import spool as spool_module
from tests.server.spooled import Disk


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    """A spool that does not wait after a failure."""
    monkeypatch.setattr(spool_module, "_RETRY", 0.0)
    monkeypatch.setattr(spool_module, "_LOOK", 0.0)
    made = Disk(tmp_path)
    yield made
    made.close()
