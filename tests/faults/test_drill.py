"""The drill's own bookkeeping, without the processes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from rpcmq.drill import run
from rpcmq.drill.run import Drill
from rpcmq.drill.topology import Topology


class _Program:
    """Takes a turn of the hub to start, as a process does."""

    def __init__(self, arguments: list[str], env: dict[str, str], name: str) -> None:
        gevent.sleep(0)
        self.name = name


def test_processes_started_at_the_same_time_are_named_in_the_history_as_they_name_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Program", _Program)
    drill: Any = Drill(Topology(), seed=1, folder=tmp_path)
    drill.router = SimpleNamespace(url="tcp://127.0.0.1:1")
    names = ["c0", "c1", "c2"]
    gevent.joinall([gevent.spawn(drill.add, name, "caller") for name in names], raise_error=True)
    assert [drill.places[name].life for name in names] == ["c0#1", "c1#2", "c2#3"]
    drill.recorder.close()
    drill._watch.close()
