"""The latency policy of a router: read when it changes, kept when the next one is refused, forgotten in time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from time import time

import pytest

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.core.router.actions import LogEvent
from rpcmq.latency.policy import Entry, Policy, write_policy
from rpcmq.log_format.latency_policy import LARGEST_BYTES
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing import eventually

pytestmark = pytest.mark.integration


def policy(p95_ms: float, seconds: float = 3600.0, method: str = "boot") -> Policy:
    now = time()
    us = (p95_ms * 500, p95_ms * 1000, p95_ms * 2000)
    entry = Entry("", "compute", method, 5000, now - 1, now + seconds, us, tuple((each, each) for each in us))  # type: ignore[arg-type]
    return Policy(now, now + max(seconds, 60.0), 1000, {("", "compute", method): entry})


class Watched:
    """A router whose policy is in ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[LogEvent] = []
        self.router = EmbeddedRouter(self.config(), self.notes.append)

    def config(self, path: Path | str | None = None) -> RouterConfig:
        flags = {"router.listen": "tcp://127.0.0.1:0", "hedge.policy_file": str(self.path if path is None else path)}
        return load_router_config(flags=flags)

    def p95(self) -> float | None:
        usual = self.router.engine.dispatch.hedging.usual.get(("", "compute", "boot"))
        return None if usual is None else usual[1]

    def refusals(self) -> list[str]:
        return [note.text for note in self.notes if note.event == "latency policy refused"]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[[], Watched]]:
    made: list[Watched] = []

    def make() -> Watched:
        made.append(Watched(tmp_path / "policy.json"))
        return made[-1]

    yield make
    for each in made:
        each.router.close(0)


def test_it_is_read_at_the_start_and_when_it_changes(watch: Callable[[], Watched], tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    write_policy(watched.path, policy(30))
    eventually(lambda: watched.p95() == 0.03)
    assert [note.text for note in watched.notes if note.event == "latency policy"] == [
        f"{watched.path}: the usual times of 1 methods"
    ] * 2


def test_it_may_come_later(watch: Callable[[], Watched]) -> None:
    watched = watch()
    eventually(
        lambda: watched.refusals() == [f"{watched.path}: No such file or directory; what was known before stays"]
    )
    write_policy(watched.path, policy(20))
    eventually(lambda: watched.p95() == 0.02)
    watched.path.unlink()
    eventually(lambda: len(watched.refusals()) == 2)
    assert watched.p95() == 0.02


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "no JSON"),
        (b"[]", "no latency policy"),
        (b" " * (LARGEST_BYTES + 1), f"more than {LARGEST_BYTES} bytes, which no setting changes"),
        (b"", "no JSON"),
    ],
)
def test_one_that_is_refused_leaves_the_former_in_force(
    watch: Callable[[], Watched], tmp_path: Path, content: bytes, text: str
) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    watched.path.write_bytes(content)
    eventually(lambda: len(watched.refusals()) == 1)
    assert text in watched.refusals()[0] and watched.p95() == 0.02
    write_policy(watched.path, policy(30))
    eventually(lambda: watched.p95() == 0.03)
    assert len(watched.refusals()) == 1


def test_what_is_no_file_is_not_waited_for(watch: Callable[[], Watched], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "policy.json")
    watched = watch()
    eventually(lambda: "is no regular file" in "".join(watched.refusals()))


def test_methods_are_forgotten_when_their_time_is_over(watch: Callable[[], Watched], tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.json", policy(20, seconds=4.0))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    eventually(lambda: watched.p95() is None)
    assert not watched.refusals()


def test_the_file_is_a_live_setting(watch: Callable[[], Watched], tmp_path: Path) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    write_policy(tmp_path / "other.json", policy(40))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    watched.router.reconfigure(watched.config(tmp_path / "other.json"))
    eventually(lambda: watched.p95() == 0.04)
    watched.router.reconfigure(watched.config(""))
    assert watched.p95() is None
