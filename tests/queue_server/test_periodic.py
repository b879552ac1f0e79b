"""Periodic items over real processes: declared by programs of every shell, put each second, by one queue server."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rpcmq
from rpcmq.client.queue.queue_servers import QueueServers
from rpcmq.errors import NoConsumer, UsageError
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.queue_servers import QueueServerProcess

pytest.importorskip("cronsim", reason="cronsim is not installed: make setup")

EACH_SECOND = "* * * * * *"
MESSAGE = {"method": "close_day", "args": {"day": 1}}


class Days:
    """Notes which items it was given."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.contexts: list[Any] = []

    def close_day(self, ctx: Any, day: int) -> None:
        """Close the day."""
        item = rpcmq.current_item()
        assert item is not None
        self.ids.append(item.id)
        self.contexts.append(ctx)

    def await_more(self, count: int) -> None:
        """Wait until it was given so many more."""
        seen = len(self.ids)
        eventually(lambda: len(self.ids) >= seen + count, 30.0)

    @property
    def times(self) -> list[datetime]:
        """The times of its items, in their order."""
        return sorted(datetime.fromisoformat(id.removeprefix("often@")) for id in self.ids)


def rows(client: rpcmq.Client, owner: str) -> list[dict[str, Any]]:
    """The periodic items of an owner."""
    try:
        return list(QueueServers(client, 20.0).look(owner, "periodic"))
    except NoConsumer:
        return []  # it starts, or is gone


def test_an_item_is_put_each_second_until_it_is_removed(client, queue_server, work):
    days = Days()
    work(days)
    row = client.declare_periodic({"user": "ann"}, "billing", "often", EACH_SECOND, MESSAGE, zone="Europe/Berlin")
    assert (row["owner"], row["queue"], row["name"], row["zone"]) == ("here", "billing", "often", "Europe/Berlin")
    assert datetime.fromisoformat(row["next"]).utcoffset() in (timedelta(hours=1), timedelta(hours=2))
    # It does not put anything in its first seconds.
    days.await_more(3)
    assert client.remove_periodic("billing", "often") is True
    assert client.remove_periodic("billing", "often") is False
    assert days.contexts[0] == {"user": "ann"}
    assert set(Counter(days.ids).values()) == {1}


@pytest.mark.long
def test_each_time_is_put_once_though_the_queue_server_is_killed(router, rpcmq_client, queue_server):
    days = Days()
    with rpcmq.Worker("billing", days, router=router.url):
        rpcmq_client.declare_periodic(None, "billing", "often", EACH_SECOND, MESSAGE, missed="all")
        rpcmq_client.declare_queue("billing", lease=1.0)
        for _ in range(2):
            days.await_more(2)
            queue_server.kill()
            queue_server.restart()
        days.await_more(3)
        assert rpcmq_client.remove_periodic("billing", "often", timeout=60)

        def is_drained() -> bool:
            row = QueueServers(rpcmq_client, 20.0).look("here", "show", queue="billing")
            return bool(row["ready"] + row["running"] + row["postponed"] == 0)

        eventually(is_drained, 30.0)
    times = sorted(set(days.times))
    assert [b - a for a, b in pairwise(times)] == [timedelta(seconds=1)] * (len(times) - 1)


def test_a_line_feed_at_the_end_of_an_expression_is_no_part_of_it(client, queue_server):
    assert client.declare_periodic(None, "billing", "nightly", " 0 3 * * *\n", MESSAGE)["cron"] == "0 3 * * *"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"cron": "61 * * * *"}, "queue 'billing': '61 \\* \\* \\* \\*' is no cron expression: Bad minute"),
        ({"zone": "Europe/Nowhere"}, "there is no time zone 'Europe/Nowhere'"),
        ({"name": "a@b"}, "the name of a periodic item must be"),
        ({"missed": "none"}, "missed must be one of last, skip, all, not 'none'"),
        ({"msg": {"method": "x", "args": {"a": "b" * 70_000}}}, "must have 65536 bytes at the most, not 7"),
        ({"priority": 10}, "priority must be an integer from 0 to 9"),
    ],
)
def test_what_cannot_be_is_refused_where_it_is_declared(client, queue_server, wrong, text):
    given = {"ctx": None, "queue": "billing", "name": "often", "cron": "0 3 * * *", "msg": MESSAGE} | wrong
    with pytest.raises(UsageError, match=text):
        client.declare_periodic(**given)
    with pytest.raises(UsageError, match="the name of a periodic item must be"):
        client.remove_periodic("billing", "a@b")


def test_to_remove_what_is_not_there_makes_no_queue(client, rpcmq_client, queue_server):
    assert client.remove_periodic("typo", "often") is False
    with pytest.raises(UsageError, match="the name of a periodic item must be"):
        client.remove_periodic("typo", "a@b")
    assert QueueServers(rpcmq_client, 20.0).look("here", "queues")["queues"] == []


# --- several queue servers -------------------------------------------------------------------


@pytest.fixture
def other_server(router, tmp_path: Path) -> Iterator[QueueServerProcess]:
    """A queue server of another router of the same mesh, as far as clients can tell."""
    with QueueServerProcess(router.url, tmp_path / "others", "there") as server:
        yield server


def declare(url: str, **options: Any) -> str:
    """Declare it as a program does that starts; return the owner."""
    with rpcmq.Client(url) as client:
        return str(client.declare_periodic(None, "billing", "often", EACH_SECOND, MESSAGE, **options)["owner"])


def test_one_owner_puts_what_is_declared_at_several_and_another_one_if_it_is_gone(
    router, rpcmq_client, queue_server, other_server
):
    servers = {"here": queue_server, "there": other_server}
    days = Days()
    with rpcmq.Worker("billing", days, router=router.url):
        first = declare(router.url)
        other = "there" if first == "here" else "here"
        assert {declare(router.url, priority=n) for n in range(8)} == {first}
        assert [len(rows(rpcmq_client, owner)) for owner in (first, other)] == [1, 0]
        days.await_more(2)
        servers[first].signal(signal.SIGTERM)
        assert servers[first].wait() == 0
        eventually(lambda: declare(router.url) == other, 30.0)
        servers[first].restart()
        eventually(lambda: not rows(rpcmq_client, first) and len(rows(rpcmq_client, other)) == 1, 30.0)
        servers[first].expect("periodic item 'often' is put by " + other)
        days.await_more(3)
        assert {declare(router.url) for _ in range(4)} == {other}
        with rpcmq.Client(router.url) as client:
            assert client.remove_periodic("billing", "often")
        eventually(lambda: not rows(rpcmq_client, first) and not rows(rpcmq_client, other), 30.0)
        assert set(Counter(days.ids).values()) == {1}
