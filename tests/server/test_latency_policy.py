"""The latency policy of a router: read when it changes, kept when the next one is refused, forgotten in time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from time import time
from typing import Any

import gevent
import pytest

from rpcmq.config import RouterConfig, load_router_config
from rpcmq.core.router.actions import LogEvent
from rpcmq.latency.policy import Entry, Policy, write_policy
from rpcmq.log_format.latency_policy import LARGEST_BYTES, policy_in_steps
from rpcmq.server import latency_policy
from rpcmq.server.embedded import EmbeddedRouter
from rpcmq.testing import eventually

pytestmark = pytest.mark.integration


def policy(p95_ms: float, method: str = "boot") -> Policy:
    now = time()
    us = (p95_ms * 500, p95_ms * 1000, p95_ms * 2000)
    entry = Entry("", "compute", method, 5000, now - 1, now + 3600.0, us, tuple((each, each) for each in us))  # type: ignore[arg-type]
    return Policy(now, now + 3600.0, 1000, {("", "compute", method): entry})


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

    def looks(self, patch: pytest.MonkeyPatch) -> list[object]:
        """A list that gets an entry at each look at the file, from now on."""
        found: list[object] = []
        look = latency_policy._read_if_changed

        def looking(*args: Any) -> object:
            found.append(args)
            return look(*args)

        patch.setattr(latency_policy, "_read_if_changed", looking)
        return found

    def put(self, content: bytes) -> None:
        """Put a file with ``content`` in the place of the former, as a whole."""
        aside = self.path.with_name("aside")
        aside.write_bytes(content)
        aside.rename(self.path)

    def refusals(self) -> list[str]:
        return [note.text for note in self.notes if note.event == "latency policy refused"]


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Watched]]:
    monkeypatch.setattr(latency_policy, "_LOOK", 0.05)
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
        f"latency policy {watched.path}: the usual times of 1 methods"
    ] * 2


def test_it_may_come_later(watch: Callable[[], Watched], capfd: pytest.CaptureFixture[str]) -> None:
    watched = watch()
    eventually(
        lambda: (
            watched.refusals()
            == [f"latency policy {watched.path}: No such file or directory; what was known before stays"]
        )
    )
    write_policy(watched.path, policy(20))
    eventually(lambda: watched.p95() == 0.02)
    watched.path.unlink()
    eventually(lambda: len(watched.refusals()) == 2)
    assert watched.p95() == 0.02
    # The log has it, and nobody else says it.
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "no JSON"),
        (b"[]", "no latency policy"),
        (b" " * (LARGEST_BYTES + 1), f"has {LARGEST_BYTES + 1} bytes, more than {LARGEST_BYTES}, "),
        (b"", "no latency policy"),
        (b'{"methods": [' + b"[]," * (LARGEST_BYTES // 3 - 10) + b"0]}", "methods[0]: expected an object"),
        (b"[" * LARGEST_BYTES, "no latency policy"),
        (b'{"made_at": ' + b"[" * 1_000_000, "no JSON"),
        (b'{"made_at": ' + b"9" * 4000 + b', "policy": "rpcmq latency", "version": 1}', "made_at = 9999"),
        (b'{"made_at": NaN, "policy": "rpcmq latency", "version": 1}', "made_at = nan"),
    ],
)
def test_one_that_is_refused_leaves_the_former_in_force(
    watch: Callable[[], Watched], tmp_path: Path, content: bytes, text: str
) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    watched.put(content)
    eventually(lambda: len(watched.refusals()) == 1)
    assert text in watched.refusals()[0] and watched.p95() == 0.02
    write_policy(watched.path, policy(30))
    eventually(lambda: watched.p95() == 0.03)
    assert len(watched.refusals()) == 1


def many(methods: int) -> Policy:
    made = policy(20)
    (entry,) = made.entries.values()
    names = [f"method{number}" for number in range(methods)]
    return replace(made, entries={("", "compute", name): replace(entry, method=name) for name in names})


def test_the_router_does_other_things_while_a_large_file_is_parsed_and_forgotten(
    watch: Callable[[], Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A turn is a step, so that this does not depend on how fast the machine is.
    monkeypatch.setattr(latency_policy, "_TURN", 0.0)
    monkeypatch.setattr(latency_policy, "_REST", 0.0)
    turns = 0
    at: list[int] = []

    def parsed(*args: Any) -> Iterator[object]:
        at.append(turns)
        yield from policy_in_steps(*args)
        at.append(turns)

    monkeypatch.setattr(latency_policy, "policy_in_steps", parsed)
    write_policy(tmp_path / "policy.json", many(3000))
    watched = watch()
    usual: Mapping[Any, Any] = {}
    with gevent.Timeout(60):
        while len(usual) < 3000:
            gevent.sleep(0)
            turns += 1
            usual = watched.router.engine.dispatch.hedging.usual
        assert at[1] - at[0] >= 3000
        # All at once are too old; each is forgotten in a turn of its own.
        monkeypatch.setattr(latency_policy, "time", lambda: time() + 7200.0)
        left = set()
        while usual:
            left.add(len(usual))
            gevent.sleep(0)
    assert len(left) >= 3000


def test_a_file_that_is_no_more_set_when_it_is_parsed_does_not_count(
    watch: Callable[[], Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    watched = watch()

    def unset(*args: Any) -> Iterator[object]:
        yield from policy_in_steps(*args)
        watched.router.reconfigure(watched.config(""))

    monkeypatch.setattr(latency_policy, "policy_in_steps", unset)
    taken: list[bytes] = []
    take = latency_policy.LatencyPolicy._take

    def took(self: latency_policy.LatencyPolicy, path: str, data: bytes) -> None:
        take(self, path, data)
        taken.append(data)

    monkeypatch.setattr(latency_policy.LatencyPolicy, "_take", took)
    eventually(lambda: taken)
    assert watched.router.config.hedge.policy_file == ""
    assert watched.p95() is None and not [note for note in watched.notes if note.event == "latency policy"]


def test_a_file_that_makes_the_reader_fail_is_told_once_and_the_next_one_is_read(
    watch: Callable[[], Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def failing(data: bytes, *args: object) -> Iterator[object]:
        read.append(len(data))
        raise MemoryError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(latency_policy, "policy_in_steps", failing)
        write_policy(tmp_path / "policy.json", policy(20))
        watched = watch()
        looks = watched.looks(patch)
        eventually(lambda: len(looks) >= 3)
    assert len(read) == 1 and watched.refusals() == [
        f"latency policy {watched.path}: MemoryError: no more; what was known before stays"
    ]
    write_policy(watched.path, policy(30))
    eventually(lambda: watched.p95() == 0.03)


def make_link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (os.mkfifo, "is no regular file"),
        (make_link("pipe"), "is no regular file"),
        (make_link("/dev/zero"), "is no regular file"),
        (Path.mkdir, "is no regular file"),
        (make_link("policy.json"), "Too many levels of symbolic links"),
    ],
)
def test_what_is_no_file_is_not_waited_for(
    watch: Callable[[], Watched], tmp_path: Path, make: Callable[[Path], None], text: str
) -> None:
    os.mkfifo(tmp_path / "pipe")
    make(tmp_path / "policy.json")
    watched = watch()
    eventually(lambda: watched.refusals() == [f"latency policy {watched.path}: {text}; what was known before stays"])
    # And a link to a file is an ordinary way to have one.
    write_policy(tmp_path / "other.json", policy(20))
    (tmp_path / "link").symlink_to("other.json")
    if watched.path.is_dir():
        watched.path.rmdir()
    (tmp_path / "link").rename(watched.path)
    eventually(lambda: watched.p95() == 0.02)


def test_methods_are_forgotten_when_their_time_is_over(
    watch: Callable[[], Watched], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_policy(tmp_path / "policy.json", policy(20))
    watched = watch()
    eventually(lambda: watched.p95() == 0.02)
    monkeypatch.setattr(latency_policy, "time", lambda: time() + 7200.0)
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
