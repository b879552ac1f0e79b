"""Services with several routers: registered at each; what becomes of one router does not concern the others."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
import pytest

import rpcmq.aio
from rpcmq import testing
from rpcmq.client import Client, Service
from rpcmq.client.consumer import Consumer
from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.errors import CallTimeout, IdentityTaken, RouterUnreachable
from rpcmq.testing import InProcessRouter, eventually
from rpcmq.testing.processes import RouterProcess
from rpcmq.transport.key_files import read_key_file
from tests import from_threads
from tests.client.endpoints import Compute, topic
from tests.from_threads import each_blocking_shell, new_event
from tests.integration.cluster import BRISK, Routers, message
from tests.keys import Folder, right

client_shell = each_blocking_shell


def serving(shell: str) -> Iterator[Callable[..., Any]]:
    """Makes and starts services in ``shell``."""
    with ExitStack() as stack:

        def serve(endpoint: Any, *urls: str, start: bool = True, **settings: Any) -> Any:
            given: dict[str, Any] = {
                "router": ",".join(urls), "host": "node-7", "reconnect_max_seconds": 0.1, "concurrency": 64,
                "shell": shell, **settings,
            }  # fmt: skip
            service = Service("compute", endpoint, **given)
            stack.callback(service.stop, 5.0)
            if start:
                service.start()
            return service

        yield serve


@pytest.fixture
def serve(client_shell: str) -> Iterator[Callable[..., Any]]:
    """Makes and starts services, in gevent and in threads."""
    yield from serving(client_shell)


@pytest.fixture
def serve_in_gevent() -> Iterator[Callable[..., Any]]:
    """Makes and starts services, in gevent only."""
    yield from serving("gevent")


@pytest.fixture
def callers(routers: Routers) -> Iterator[tuple[Client, Client]]:
    """A caller at each router."""
    with Client(routers[0].url, shell="gevent") as one, Client(routers[1].url, shell="gevent") as two:
        yield one, two


def call(client: Client, method: str, /, timeout: float = 20.0, **args: Any) -> Any:
    return client.call(None, "compute", message(method, **args), timeout)


def is_served(router: InProcessRouter | RouterProcess) -> bool:
    with Client(router.url, shell="gevent") as client:
        rows = [row for row in client.query("topics")["topics"] if row["topic"] == "compute"]
        return bool(rows and rows[0]["consumers"])


class Work:
    """Counts how many requests run at once."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.ended: Counter[Any] = Counter()
        self.order: list[Any] = []
        self.go_on = new_event()

    def work(self, ctx: Any, key: Any = "", seconds: float = 0.0) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        self.order.append(key)
        if seconds:
            gevent.sleep(seconds)
        else:
            self.go_on.wait()
        self.running -= 1
        self.ended[key] += 1
        return key


# --- each router has it -----------------------------------------------------------------------------


def test_a_service_answers_at_each_of_its_routers_by_the_way_the_request_came(routers, serve, callers) -> None:
    compute = Compute()
    service = serve(compute, *(router.url for router in routers), identity="node")
    for caller in callers:
        assert call(caller, "add", a=1, b=2) == 3
        assert caller.call(None, "compute.node-7", message("add", a=1), 20) == 1
        assert caller.describe("compute")["endpoint"] == "Compute"
        assert list(caller.multicall(None, "compute", message("count", n=40), 20)) == [*range(40)]
        with pytest.raises(ValueError, match="x"):
            call(caller, "fail")
        assert [row["identity"] for row in topic_row(caller)["consumers"]] == ["node"]
    assert service.stop(5.0)
    for caller in callers:
        assert not topic_row(caller)["consumers"]


def topic_row(client: Client) -> dict[str, Any]:
    return next(row for row in client.query("topics")["topics"] if row["topic"] == "compute")


def test_casts_fanouts_and_groups_reach_a_service_once(routers, serve, callers) -> None:
    urls = [router.url for router in routers]
    first, second, audit = Compute(), Compute(), Compute()
    serve(first, *urls, host="one")
    serve(second, *urls, host="two")
    serve(audit, *urls, group="audit")
    for number, caller in enumerate(callers):
        assert caller.fanout_cast(None, "compute", message("note", value=number), confirm=True) == 2
        caller.cast(None, "compute", message("note", value=10 + number))
    eventually(lambda: len(first.seen) + len(second.seen) == 6 and len(audit.seen) == 2)
    assert sorted(first.seen + second.seen) == [0, 0, 1, 1, 10, 11] and sorted(audit.seen) == [10, 11]


def test_direct_calls_are_introduced_by_each_router(routers, serve, callers) -> None:
    serve(Compute(), *(router.url for router in routers), direct=True)
    for caller, router in zip(callers, routers, strict=True):
        assert caller.call(None, "compute", message("add", a=5), 20, direct=True) == 5
        assert not caller.process.direct.fallbacks and not any(
            row["calls"] for row in router.query("methods")["methods"]
        )


def test_a_cancelled_call_and_keepalives_find_their_router(routers, serve, callers, monkeypatch) -> None:
    begin = Consumer._keep_alive
    monkeypatch.setattr(Consumer, "_keep_alive", lambda consumer, task, seconds: begin(consumer, task, 0.05))
    compute = Compute()
    serve(compute, *(router.url for router in routers))
    for caller in callers:
        compute.started.clear()
        compute.ended.clear()
        # On a machine that stands still a timeout may be over before the method begins.
        for timeout in (0.3, 3.0, 20.0):
            with pytest.raises(CallTimeout):
                call(caller, "until_cancelled", timeout)
            if compute.started.is_set():
                break
        eventually(lambda: compute.ended)

    def all_have_shown_life() -> bool:
        calls = [each for caller in callers for each in caller.process.calls.open.values()]
        return len(calls) == len(callers) and all(each.sign_of_life > each.sent_at for each in calls)

    held = [gevent.spawn(caller.call, None, "compute", message("hold"), 30, sign_of_life=20) for caller in callers]
    eventually(all_have_shown_life)
    compute.go_on.set()
    assert [each.get(timeout=20) for each in held] == ["held", "held"]


def test_a_method_calls_over_the_service_s_own_client_under_the_same_identity(routers, serve, callers) -> None:
    made: list[Any] = []

    class Asker(Compute):
        def ask(self, ctx: Any, a: int) -> Any:
            # In the thread or greenlet of the method.
            client = made[0].client
            return getattr(client, "driven", client).call(None, "compute", message("add", a=a), 20)

    made.append(serve(Asker(), *(router.url for router in routers), identity="node"))
    for caller in callers:
        assert call(caller, "ask", a=4) == 4
    links = [
        (row["identity"], row["role"])
        for caller in callers
        for row in caller.query("processes")["processes"]
        if row["identity"] == "node"
    ]
    assert sorted(links) == [("node", "consumer"), ("node", "consumer"), ("node", "process")]


def test_a_second_process_of_the_identity_is_refused(routers, serve_in_gevent) -> None:
    urls = [router.url for router in routers]
    serve_in_gevent(Compute(), *urls, identity="node")
    with pytest.raises(IdentityTaken, match="taken by a live process"):
        serve_in_gevent(Compute(), *urls, identity="node")


def test_keys_hold_at_each_router(tmp_path: Path, serve_in_gevent) -> None:
    folder = Folder(tmp_path)
    with ExitStack() as stack:
        service, *others = (folder.add(name) for name in ("compute", "api", "scheduler"))
        urls = [stack.enter_context(testing.router(security_keys=str(folder))).url for _ in range(2)]
        serve_in_gevent(Compute(), *urls, key_file=service)
        for number, (url, key_file) in enumerate(zip(urls, others, strict=True)):
            caller = stack.enter_context(Client(url, key_file=key_file, shell="gevent"))
            assert call(caller, "add", a=number) == number


def test_a_router_that_refuses_the_registration_is_asked_again(tmp_path: Path, serve_in_gevent, caplog) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    first, second = Folder(tmp_path / "one"), Folder(tmp_path / "two")
    (second.path / "router.key").write_bytes((first.path / "router.key").read_bytes())
    key_file = first.add("compute")
    key = Key("compute", read_key_file(Path(key_file), client=True).public, (right("call", "#"),))
    second.authorise(key)
    with testing.router(security_keys=str(first)) as one, testing.router(security_keys=str(second)) as two:
        serve_in_gevent(Compute(), one.url, two.url, key_file=key_file)
        assert f"is not served at the router {two.url}: " in caplog.text and "no right to serve" in caplog.text
        assert topic(one)["consumers"]
        second.authorise(replace(key, rights=(EVERYTHING,)))
        eventually(lambda: topic(two)["consumers"], 30)


class AsyncWork:
    """Endpoint of an event loop, which counts how many of its methods run at once."""

    def __init__(self) -> None:
        self.running = self.most = 0

    async def work(self, ctx: Any, key: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.005)
        self.running -= 1
        return key

    def plain(self, ctx: Any, key: Any) -> Any:
        return key

    async def count(self, ctx: Any, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number


def test_a_service_of_an_event_loop_is_registered_at_all_routers(routers, callers) -> None:
    work, ready, done = AsyncWork(), from_threads.Event(), from_threads.Event()

    async def main() -> bool:
        urls = ",".join(router.url for router in routers)
        service = rpcmq.aio.Service("compute", work, host="node-7", router=urls, concurrency=3, direct=True)
        await service.start()
        ready.set()
        while not done.is_set():
            await asyncio.sleep(0.01)
        return await service.stop(5.0)

    runs = gevent.spawn(from_threads.in_thread, asyncio.run, main())
    assert ready.wait()
    for caller in callers:
        assert call(caller, "plain", key=1) == 1
        assert [*caller.multicall(None, "compute", message("count", n=40), 20)] == [*range(40)]
        assert caller.call(None, "compute", message("work", key=2), 20, direct=True) == 2
        assert not caller.process.direct.fallbacks
    asked = [gevent.spawn(call, caller, "work", key=n) for n in range(40) for caller in callers]
    assert [each.get(timeout=30) for each in asked] == [n for n in range(40) for _ in callers]
    assert work.most == 3
    done.set()
    assert runs.get(timeout=20) is True
    assert not any(topic_row(caller)["consumers"] for caller in callers)


# --- one pool of workers ------------------------------------------------------------------------------


def test_all_routers_together_have_no_more_running_than_the_concurrency(routers, serve, callers) -> None:
    work = Work()
    serve(work, *(router.url for router in routers), concurrency=3)
    asked = [gevent.spawn(call, caller, "work", key=n, seconds=0.01) for n in range(60) for caller in callers]
    assert [each.get(timeout=30) for each in asked] == [n for n in range(60) for _ in callers]
    assert work.most == 3


def test_one_router_alone_uses_all_workers(routers, serve, callers) -> None:
    work = Work()
    serve(work, *(router.url for router in routers), concurrency=3)
    asked = [gevent.spawn(call, callers[1], "work", key=n) for n in range(4)]
    eventually(lambda: work.running == 3)
    work.go_on.set()
    gevent.joinall(asked, raise_error=True)
    assert work.most == 3


def test_busy_routers_have_equal_shares_and_a_quiet_one_waits_for_one_turn_only(routers, serve, callers) -> None:
    work = Work()
    serve(work, *(router.url for router in routers), concurrency=2)
    asked = [gevent.spawn(call, callers[0], "work", key="busy", seconds=0.02) for _ in range(60)]
    eventually(lambda: work.ended["busy"] > 4)
    begun = len(work.order)
    assert call(callers[1], "work", key="quiet", seconds=0.005) == "quiet"
    # Those that the first router had delivered go first, and those that came while the call was on its way.
    assert work.order.index("quiet") - begun <= 20
    gevent.joinall(asked, raise_error=True)
    work.order.clear()
    asked = [gevent.spawn(call, callers[n % 2], "work", key=n % 2, seconds=0.02) for n in range(120)]
    gevent.joinall(asked, raise_error=True)
    shares = Counter(work.order[20:80])
    assert min(shares[0], shares[1]) >= 20, shares


def test_what_waits_for_a_worker_is_not_begun_once_nobody_wants_it(routers, serve, callers) -> None:
    work = Work()
    serve(work, *(router.url for router in routers), concurrency=1)
    first = gevent.spawn(call, callers[0], "work", key="first")
    eventually(lambda: work.running == 1)
    with pytest.raises(CallTimeout):
        call(callers[1], "work", 0.2, key="given up")
    assert topic_row(callers[1])["in_flight"] == 1
    callers[1].cast(None, "compute", message("work", key="late"), ttl=0.05)
    callers[1].cast(None, "compute", message("work", key="in time"))
    gevent.sleep(0.1)
    work.go_on.set()
    assert first.get(timeout=20) == "first"
    eventually(lambda: work.ended["in time"] == 1)
    eventually(lambda: topic_row(callers[1])["in_flight"] == 0)
    assert work.order == ["first", "in time"]


def test_stop_lets_finish_what_waits_for_a_worker(routers, serve, callers) -> None:
    work = Work()
    service = serve(work, *(router.url for router in routers), concurrency=1)
    asked = [gevent.spawn(call, caller, "work", key=number) for number, caller in enumerate(callers)]
    eventually(lambda: all(topic_row(caller)["in_flight"] == 1 for caller in callers))
    stopping = gevent.spawn(service.stop, 20.0)
    eventually(lambda: not any(topic_row(caller)["consumers"] for caller in callers))
    work.go_on.set()
    assert [each.get(timeout=20) for each in asked] == [0, 1]
    assert stopping.get(timeout=20) is True


# --- routers that go and come -------------------------------------------------------------------------


def test_start_returns_with_one_router_and_the_other_is_served_when_it_is_there(serve_in_gevent, caplog) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        two.kill()
        serve_in_gevent(Compute(), one.url, two.url)
        assert is_served(one)
        assert f"compute.node-7 is not served at the router {two.url}: nothing listens there" in caplog.text
        two.restart()
        eventually(lambda: is_served(two), 20)
        eventually(lambda: f"is served at the router {two.url} now, too" in caplog.text)


def test_without_a_router_start_names_all_and_can_be_repeated(serve_in_gevent) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        one.kill()
        two.kill()
        service = serve_in_gevent(Compute(), one.url, two.url, start=False)
        with pytest.raises(RouterUnreachable, match=f"{one.url}: nothing listens there; {two.url}: nothing listens"):
            service.start(0.5)
        one.restart()
        two.restart()
        service.start(20)
        eventually(lambda: is_served(one) and is_served(two), 20)


class Load:
    """Calls at one router until :meth:`end`."""

    def __init__(self, *urls: str) -> None:
        self.client = Client(urls, shell="gevent", reconnect_max_seconds=0.1)
        self.ended = 0
        self.failed: list[Exception] = []
        self._goes_on = True
        self._greenlets = [gevent.spawn(self._run, f"{urls}/{number}") for number in range(4)]

    def _run(self, key: str) -> None:
        while self._goes_on:
            try:
                assert call(self.client, "work", key=key, seconds=0.005) == key
                self.ended += 1
            except Exception as error:
                self.failed.append(error)

    def more(self, calls: int = 50) -> None:
        """Wait until so many more calls have ended."""
        until = self.ended + calls
        eventually(lambda: self.ended >= until, 30)

    def end(self) -> None:
        self._goes_on = False
        gevent.joinall(self._greenlets, timeout=60, raise_error=True)
        self.client.close()


def test_callers_of_one_router_see_nothing_of_the_death_of_another(serve) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        serve(Work(), one.url, two.url)
        steady, hit = Load(one.url), Load(two.url)
        for _ in range(2):
            steady.more()
            hit.more()
            two.kill()
            steady.more()
            two.restart()
            steady.more()
            hit.more()
        steady.end()
        hit.end()
        assert steady.failed == []
        assert {type(error).__name__ for error in hit.failed} <= {"LinkLost", "NoConsumer"}


def test_a_silent_router_holds_up_no_other(serve_in_gevent) -> None:
    with (
        RouterProcess(link_lost_seconds=2.5, **BRISK) as one,
        RouterProcess(link_lost_seconds=2.5, **BRISK) as two,
    ):
        service = serve_in_gevent(Work(), one.url, two.url)
        steady = Load(one.url)
        two.pause()
        steady.more(300)
        began = monotonic()
        while monotonic() - began < 3.0:
            steady.more(10)
        two.resume()
        eventually(lambda: is_served(two), 30)
        with Client(two.url, shell="gevent") as caller:
            assert call(caller, "work", key="again", seconds=0.001) == "again"
        steady.end()
        assert steady.failed == []
        assert service.stop(5.0)


def test_a_drain_of_one_router_fails_no_call_of_callers_that_have_both(serve) -> None:
    with RouterProcess(**BRISK) as one, RouterProcess(**BRISK) as two:
        work = Work()
        serve(work, one.url, two.url)
        loads = [Load(one.url, two.url), Load(two.url, one.url)]
        for load in loads:
            load.more()
        assert [load.client.process.connection.reconnects for load in loads] == [0, 0]
        drained = next(router for router in (one, two) if router.url == loads[0].client.process.connection.url)
        drained.signal(signal.SIGTERM)
        assert drained.wait() == 0
        for load in loads:
            load.more()
        drained.restart()
        eventually(lambda: is_served(drained), 20)
        for load in loads:
            load.end()
        assert [load.failed for load in loads] == [[], []]


def test_a_cast_that_its_sender_sends_again_at_another_router_runs_once(serve) -> None:
    with (
        RouterProcess(**BRISK) as one,
        RouterProcess(**BRISK) as two,
        Client([one.url, two.url], shell="gevent", reconnect_max_seconds=0.1) as caster,
    ):
        compute = Compute()
        serve(compute, one.url, two.url)
        caster.connect(20)
        used = next(router for router in (one, two) if router.url == caster.process.connection.url)
        for number in range(100):
            caster.cast(None, "compute", message("note", value=number))
        # The service has them; the caster has no acknowledgement of the last of them.
        eventually(lambda: len(compute.seen) == 100)
        used.kill()
        for number in range(100, 200):
            caster.cast(None, "compute", message("note", value=number))
        eventually(lambda: 199 in compute.seen)
        eventually(lambda: caster.process.casts.open == 0)
        assert Counter(compute.seen) == Counter(range(200))


def test_stop_with_a_router_away_does_not_wait_for_it_and_takes_nothing_when_it_returns(serve_in_gevent) -> None:
    with (
        RouterProcess(**BRISK) as one,
        RouterProcess(**BRISK) as two,
        Client(one.url, shell="gevent") as caller,
    ):
        work = Work()
        service = serve_in_gevent(work, one.url, two.url)
        running = gevent.spawn(call, caller, "work", key="long")
        eventually(lambda: work.running == 1)
        two.kill()
        gevent.sleep(0.1)
        stopping = gevent.spawn(service.stop, 20.0)
        two.restart()
        gevent.sleep(0.5)  # ample for the link to be back
        assert not is_served(two)
        work.go_on.set()
        assert running.get(timeout=20) == "long"
        assert stopping.get(timeout=20) is True
