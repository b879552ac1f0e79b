"""Uploads while their sender, their reader or the router dies, or stands still; and how much memory they take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import gevent
import pytest

import rpcmq
from rpcmq.client import Client
from rpcmq.testing import eventually
from rpcmq.testing.processes import Program, RouterProcess
from tests.integration.cluster import QUICK, Proxy, message, program

pytestmark = [pytest.mark.integration, pytest.mark.fault]

MIB = 1 << 20
#: By how much an upload may make a process grow.
MOST_MIB = 32


def rss_mib(process: Program) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


@pytest.fixture
def router() -> Iterator[RouterProcess]:
    with RouterProcess(**QUICK, link_resume_seconds=3) as started:
        yield started


@pytest.fixture(params=["gevent", "threads"])
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def reader(router: RouterProcess, shell: str) -> Iterator[Program]:
    with served(router, shell) as started:
        yield started


@contextmanager
def served(router: RouterProcess, shell: str, host: str = "node") -> Iterator[Program]:
    with program("uploads", "serve", router.url, host, RPCMQ_SHELL=shell) as started:
        started.expect("serving")
        yield started


def sender(router: RouterProcess, shell: str, mib: int, host: str = "node") -> Program:
    return program("uploads", "send", router.url, host, mib, RPCMQ_SHELL=shell)


def upload(mib: int) -> dict[str, object]:
    return message("store", body=(bytes(MIB // 4) for _ in range(4 * mib)))


def test_a_large_upload_grows_no_process(router: RouterProcess, reader: Program, shell: str):
    with sender(router, shell, 4) as warming:
        warming.expect("stored 4")
    before = rss_mib(router), rss_mib(reader)
    with sender(router, shell, 8) as small, sender(router, shell, 192) as large:
        peaks = [int(each.expect(r"peak KiB (\d+)", 120)[1]) / 1024 for each in (small, large)]
        assert "stored 192" in large.said()
    assert peaks[1] - peaks[0] < MOST_MIB
    assert rss_mib(router) - before[0] < MOST_MIB and rss_mib(reader) - before[1] < MOST_MIB


def test_the_reader_of_a_killed_sender_is_told(router: RouterProcess, reader: Program, shell: str):
    with sender(router, shell, 0) as sending:
        reader.expect("read 12")
        sending.kill()
        assert reader.expect("broken (.*)")[1].startswith("CallerGone")
        reader.expect("kept 0")
    with sender(router, shell, 4) as again:
        again.expect("stored 4")


def test_the_sender_to_a_killed_reader_is_told_and_its_iterable_closed(
    router: RouterProcess, reader: Program, shell: str
):
    with sender(router, shell, 0) as sending:
        sending.expect("asked for 12")
        reader.kill()
        sending.expect("closed")
        found = sending.expect("ended LinkLost (.*)")[1]
        assert "items of its stream were sent, which no other consumer can be given" in found


def test_both_ends_are_told_of_a_killed_router(router: RouterProcess, reader: Program, shell: str):
    with sender(router, shell, 0) as sending:
        reader.expect("read 12")
        router.kill()
        router.restart()
        sending.expect("closed")
        assert "its stream under way" in sending.expect("ended LinkLost (.*)")[1]
        reader.expect("broken CallerGone")
    with Client(router.url) as client:
        eventually(lambda: client.call(None, "files", message("ping"), 20) == "pong")


def test_a_reader_that_stands_still_makes_nobody_grow_and_holds_up_nobody(
    router: RouterProcess, reader: Program, shell: str
):
    with (
        served(router, shell, "slow") as slow,
        sender(router, shell, 0, "slow") as sending,
        Client(router.url) as client,
    ):
        slow.expect("read 8")
        before = rss_mib(router), rss_mib(sending)
        slow.pause()
        try:
            for _ in range(3):  # meanwhile the sender would send some 100 MiB
                assert client.call(None, "files.node", upload(20), timeout=60) == 20 * MIB
            assert rss_mib(router) - before[0] < MOST_MIB and rss_mib(sending) - before[1] < MOST_MIB
            stuck = sending.said()
        finally:
            slow.resume()
        assert "ended" not in stuck
        eventually(lambda: len(sending.said()) > len(stuck), 60)


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_connection_that_is_cut_again_and_again_loses_and_doubles_nothing(router: RouterProcess, reader: Program):
    with Proxy(router.url) as proxy, Client(proxy.url) as client:
        client.connect(20)
        sizes = [100 * n for n in range(1, 301)]
        call = gevent.spawn(
            client.call, None, "files", message("store", body=rpcmq.stream(map(bytes, sizes))), timeout=60
        )
        while not call.ready():
            gevent.sleep(0.05)
            proxy.reset()
        assert call.get(timeout=60) == sum(sizes)
