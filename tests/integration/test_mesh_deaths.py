"""Three routers that are killed, stopped and restarted under load: nothing is lost, doubled or told an error.

The calls are not idempotent, so none may be tried again by chance: each is started once, and its caller has its result.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random

import gevent
import pytest

from rpcmq.client import Client
from rpcmq.errors import RpcError
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from rpcmq.testing.router_mesh import RouterMesh
from tests.integration.cluster import message
from tests.integration.sent_and_started import History, violations

pytestmark = [pytest.mark.integration, pytest.mark.fault]

NODE = Path(__file__).parent / "programs" / "mesh_node.py"
#: Greenlets of each caller that call, and the pause between two casts of each caller (seconds).
WORKERS, PAUSE = 6, 0.01


class Caller:
    """Calls and casts by way of one client until it is told to end."""

    def __init__(self, client: Client, name: str, history: History) -> None:
        self._client, self._name, self._history = client, name, history
        self._numbers = count()
        self._random = Random(name)
        self._goes_on = True
        self.ended = 0
        self._greenlets = [*(gevent.spawn(self._call) for _ in range(WORKERS)), gevent.spawn(self._cast)]

    def _message(self, verb: str) -> tuple[str, dict[str, object]]:
        key = f"{verb}/{self._name}/{next(self._numbers)}"
        return key, message("work", key=key, seconds=self._random.uniform(0.0, 0.04))

    def _call(self) -> None:
        while self._goes_on:
            key, work = self._message("call")
            self._history.calls.add(key)
            try:
                self._history.answers[key] = self._client.call(None, "compute", work, timeout=60)
            except RpcError as error:
                self._history.errors[key] = f"{type(error).__name__}: {error}"
            self.ended += 1

    def _cast(self) -> None:
        while self._goes_on:
            key, work = self._message("cast")
            try:
                self._client.cast(None, "compute", work)
                self._history.casts.add(key)
            except RpcError as error:
                self._history.errors[key] = f"{type(error).__name__}: {error}"
            gevent.sleep(PAUSE)

    def end(self) -> None:
        self._goes_on = False
        gevent.joinall(self._greenlets, timeout=90, raise_error=True)


class Cloud:
    """Three routers, a service and a caller at each, and what they have sent and started."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.mesh = stack.enter_context(RouterMesh(3))
        self.history = History()
        self._folder = folder
        for router in self.mesh:
            file = folder / f"{router.name}.started"
            node = Program([sys.executable, str(NODE), router.url, str(file)], name=f"node at {router.name}")
            stack.enter_context(node)
            node.expect("^serving$")
        clients = [stack.enter_context(Client(router.url)) for router in self.mesh]
        self.callers = [
            Caller(client, router.name[-1], self.history) for client, router in zip(clients, self.mesh, strict=True)
        ]
        self.wait_for_answers()

    def wait_for_answers(self) -> None:
        """Wait until each caller has had some more answers."""
        until = [caller.ended + 4 * WORKERS for caller in self.callers]
        eventually(
            lambda: all(c.ended >= n for c, n in zip(self.callers, until, strict=True)), 40, "calls are answered"
        )

    def end(self) -> list[str]:
        """Return what is wrong, after all has ended."""
        for caller in self.callers:
            caller.end()

        def is_all_started() -> bool:
            self.history.read_started(self._folder)
            return self.history.casts <= self.history.started.keys()

        try:
            eventually(is_all_started, 30)
        except AssertionError:
            pass  # the history says which
        return list(violations(self.history))


def kill(router: RouterProcess, cloud: Cloud) -> None:
    router.kill()
    cloud.wait_for_answers()
    router.restart()


def stop(router: RouterProcess, cloud: Cloud) -> None:
    router.pause()
    cloud.wait_for_answers()
    router.resume()


def terminate(router: RouterProcess, cloud: Cloud) -> None:
    router.signal(signal.SIGTERM)
    router.wait(40)
    cloud.wait_for_answers()
    router.restart()


@pytest.mark.long
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("fault", "names"), [(kill, "abc"), (stop, "b"), (terminate, "abc")], ids=["kill -9", "SIGSTOP", "rolling restart"]
)
def test_nothing_is_lost_doubled_or_failed(
    fault: Callable[[RouterProcess, Cloud], None], names: str, stack: ExitStack, tmp_path: Path
) -> None:
    cloud = Cloud(stack, tmp_path)
    for name in names:
        fault(cloud.mesh[name], cloud)
        cloud.mesh.wait_until_linked()
        cloud.wait_for_answers()
    assert cloud.end() == []
    assert len(cloud.history.casts) > 50 and len(cloud.history.answers) > 200


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def true_history() -> History:
    history = History(answers={"call/1": "call/1"}, calls={"call/1"}, casts={"cast/1"})
    history.started.update(["call/1", "cast/1"])
    return history


def test_a_true_history_has_no_violation() -> None:
    assert list(violations(true_history())) == []


@pytest.mark.parametrize(
    ("expected", "falsify"),
    [
        ("doubled: call/1 was started 2 times", lambda h: h.started.update(["call/1"])),
        ("doubled: cast/1 was started 2 times", lambda h: h.started.update(["cast/1"])),
        ("lost: cast cast/1 was never started", lambda h: h.started.pop("cast/1")),
        ("lost: call call/1 has not ended", lambda h: h.answers.clear()),
        ("failed: call/2: LinkLost: gone", lambda h: h.errors.update({"call/2": "LinkLost: gone"})),
        ("wrong: call call/1 has the answer of call/2", lambda h: h.answers.update({"call/1": "call/2"})),
        ("wrong: call call/1 was answered and never started", lambda h: h.started.pop("call/1")),
        ("wrong: call/9 was started, and nobody sent it", lambda h: h.started.update(["call/9"])),
    ],
)
def test_a_falsified_history_has_one(expected: str, falsify: Callable[[History], object]) -> None:
    history = true_history()
    falsify(history)
    assert list(violations(history)) == [expected]


def test_the_starts_of_all_services_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.started").write_text("call/1\ncast/1\n")
    (tmp_path / "b.started").write_text("call/1\n")
    history = History(calls={"call/1"}, casts={"cast/1"}, answers={"call/1": "call/1"})
    history.read_started(tmp_path)
    assert list(violations(history)) == ["doubled: call/1 was started 2 times"]
